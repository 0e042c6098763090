//! What a refusal is about: the inventory shows it at these hosts and at no others.

use signpost_dns::Fqdn;
use signpost_planning::{Reason, Refusal, Refused};

/// What of an Ingress a refusal is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// All of its hosts.
    Ingress,
    /// One of its hosts.
    Host(Fqdn),
    /// None of the hosts that it claims: a warning, or a host that cannot be a name.
    NoHost,
}

/// A refusal, and what of the Ingress it is about.
pub(crate) type HostRefusal = Refused<About>;

impl About {
    /// A host as it is written; it may not be a name.
    pub(crate) fn host(text: &str) -> Self {
        Fqdn::parse(text).map_or(Self::NoHost, Self::Host)
    }

    /// A refusal about it.
    pub(crate) fn refuse(self, reason: Reason, message: impl Into<String>) -> HostRefusal {
        Refused { key: self, refusal: Refusal::new(reason, message) }
    }
}

/// The refusal that is the reason why a host is not exposed: its own before one of the whole Ingress.
pub(crate) fn of_host<'a>(refusals: &'a [HostRefusal], host: &Fqdn) -> Option<&'a Refusal> {
    let own = |refused: &&HostRefusal| matches!(&refused.key, About::Host(of) if of == host);
    let all = |refused: &&HostRefusal| refused.key == About::Ingress;
    refusals.iter().find(own).or_else(|| refusals.iter().find(all)).map(|refused| &refused.refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_shown_at_its_own_host_and_at_no_other_that_its_text_names() {
        let [a, aa, other] = ["a.ns.test", "aa.ns.test", "b.ns.test"].map(|text| Fqdn::parse(text).unwrap());
        let own = About::Host(aa.clone()).refuse(Reason::BackendNotFound, "aa.ns.test: Service app does not exist");
        let wide = About::Ingress.refuse(Reason::ProviderUnreachable, "no answer from a.ns.test");
        let warning = About::host("*.ns.test").refuse(Reason::InvalidHost, "*.ns.test is a wildcard");
        let both = [warning.clone(), wide, own.clone()];
        let reason = |refusals: &[HostRefusal], host| of_host(refusals, host).map(|refusal| refusal.reason);
        assert_eq!(reason(&both, &aa), Some(Reason::BackendNotFound), "its own first");
        assert_eq!(reason(&both, &a), Some(Reason::ProviderUnreachable));
        assert_eq!(reason(&both, &other), Some(Reason::ProviderUnreachable));
        assert_eq!(reason(&[warning, own], &a), None);
    }
}
