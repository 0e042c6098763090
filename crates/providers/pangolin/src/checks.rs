//! What the server does not check, checked before anything is sent. Pure.

use std::net::{Ipv4Addr, Ipv6Addr};

use signpost_dns::Fqdn;

use crate::error::PangolinError;
use crate::types::{Domain, DomainId, Listed, Place, Site, SiteKind, TargetSettings};

/// Where a host is in a domain of the organisation.
pub(crate) fn place(domains: &[Domain], id: &DomainId, host: &Fqdn) -> Result<Place, PangolinError> {
    let domain = domains.iter().find(|domain| domain.id == *id && domain.verified);
    let domain = domain.ok_or_else(|| PangolinError::ForeignDomain { domain: id.0.clone() })?;
    domain.place(host).ok_or_else(|| wrong_host(host, Some(&domain.base)))
}

/// The error for a host that is not served as wanted.
pub(crate) fn wrong_host(wanted: &Fqdn, got: Option<&Fqdn>) -> PangolinError {
    let got = got.map_or("no host", Fqdn::undotted).to_owned();
    PangolinError::WrongHost { wanted: wanted.undotted().to_owned(), got }
}

/// Refuses a host that a listed resource has.
pub(crate) fn host_is_free(resources: &[Listed], host: &Fqdn) -> Result<(), PangolinError> {
    match resources.iter().find(|listed| listed.host.as_ref() == Some(host)) {
        None => Ok(()),
        Some(other) => {
            let by = format!("resource {} {:?}", other.id, other.nice_id);
            Err(PangolinError::HostTaken { host: host.undotted().to_owned(), by })
        }
    }
}

/// Refuses a target whose site is not the organisation's, or whose address cannot be dialled.
pub(crate) fn target(sites: &[Site], wanted: &TargetSettings) -> Result<(), PangolinError> {
    let site = sites.iter().find(|site| site.id == wanted.site);
    let site = site.ok_or(PangolinError::ForeignSite { site: wanted.site.0 })?;
    let host = wanted.host.as_str();
    // Only newt dials by itself; elsewhere the address is put into a URL without brackets.
    let dialled = is_host(host) || (site.kind == SiteKind::Newt && host.parse::<Ipv6Addr>().is_ok());
    if dialled && wanted.port > 0 {
        return Ok(());
    }
    Err(PangolinError::BadAddress { host: format!("{host}:{}", wanted.port) })
}

/// A host name (underscores allowed) or an IPv4 address.
fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let numeric = text.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    text.len() <= 253 && text.split('.').all(label) && (!numeric || text.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SiteId;

    #[test]
    fn an_address_is_a_host_name_or_ipv4_and_ipv6_for_newt_alone() {
        for text in ["app.demo.svc.cluster.local", "app", "my_app", "10.0.0.1"] {
            assert!(is_host(text), "{text}");
        }
        for text in ["", "10.0.0.300", "[::1]", "a.", "http://a", "a b", "-a", "ä", "*", "::1", &"x".repeat(64)] {
            assert!(!is_host(text), "{text}");
        }
        let site = |id, kind| Site { id: SiteId(id), nice_id: "s".into(), name: "s".into(), kind, online: None };
        let sites = [site(1, SiteKind::Local), site(2, SiteKind::Newt)];
        let to = |id| TargetSettings {
            site: SiteId(id),
            host: "fd00::1".into(),
            port: 80,
            method: "http".into(),
            enabled: true,
            path: None,
            priority: 100,
            health: None,
        };
        assert_eq!(target(&sites, &to(2)), Ok(()));
        assert_eq!(target(&sites, &to(1)), Err(PangolinError::BadAddress { host: "fd00::1:80".into() }));
        assert_eq!(target(&sites, &to(4)), Err(PangolinError::ForeignSite { site: 4 }));
    }
}
