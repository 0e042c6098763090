//! Refusals: why a requested change is not made.
//!
//! The list of reasons is closed and its names are stable: they are condition reasons, event reasons, log fields and a
//! metric label at once, and the troubleshooting page has a section for each.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// A closed list of stable names, as an enum. The documentation of a name is its meaning.
#[macro_export]
macro_rules! closed_list {
    (#[doc = $about:literal] $list:ident: $(#[doc = $doc:literal] $name:ident,)*) => {
        #[doc = $about]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $list {
            $(#[doc = $doc] $name,)*
        }

        impl $list {
            /// All of them.
            pub const ALL: &'static [$list] = &[$($list::$name,)*];

            /// The stable name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The meaning, in one sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $doc.trim_ascii(),)*
                }
            }
        }
    };
}

closed_list! {
    /// Why a change is refused or delayed.
    Reason:
    /// The name is not a DNS name.
    InvalidName,
    /// The record type is not valid.
    InvalidType,
    /// The TTL is out of range.
    InvalidTtl,
    /// A record's content does not fit its type.
    InvalidRecord,
    /// There is text outside double quotes.
    UnquotedText,
    /// There is no record in the list.
    NoRecords,
    /// A type that allows one record has several.
    TooManyRecords,
    /// A reference or another field of the object cannot be used.
    InvalidSpec,
    /// The stored object does not have the shape of its kind.
    Unreadable,
    /// The name is not inside the zone.
    OutsideZone,
    /// There is no such zone object.
    ZoneMissing,
    /// The zone object is not published itself.
    ZoneNotReady,
    /// Another object owns the name and type.
    ClaimedByAnother,
    /// The provider has a record there that is not ours.
    ForeignRecord,
    /// A CNAME and another record cannot share a name.
    CnameConflict,
    /// The type is not allowed at this place of the zone.
    WrongPlace,
    /// The provider or the configuration does not support this.
    Unsupported,
    /// A pass would delete too much and is paused until it is confirmed.
    DeletionHeld,
    /// The provider does not answer.
    ProviderUnreachable,
    /// The provider rejects our credentials.
    ProviderUnauthorized,
    /// The provider asks us to slow down.
    ProviderThrottled,
    /// The provider rejected the change.
    ProviderRejected,
    /// An annotation cannot be used.
    InvalidAnnotation,
    /// A host cannot be used.
    InvalidHost,
    /// There is no host to register.
    NoHosts,
    /// The host is owned by an older object and has another target there.
    HostTaken,
    /// The host is owned by the operator of another cluster.
    OtherOwner,
    /// The host shares a line with other names.
    SharedLine,
    /// The alias would lead back to itself.
    AliasLoop,
    /// The provider rejects the line.
    LineRefused,
    /// A large deletion is paused until a second pass plans the same.
    DeletionsHeld,
    /// A foreign line that was there before a write is missing after it.
    ForeignLineMissing,
    /// The name is served, but it has the zone's name in it twice.
    NameRepeatsZone,
    /// The record set is served, but the provider does not store its comment.
    CommentNotKept,
    /// An older object of the kind is used instead of this one.
    SingletonViolation,
    /// A field of the object has a value that cannot be used.
    ValidationFailed,
    /// There is no valid ClusterIdentity, or the oldest one cannot be read.
    ClusterIdentityNotAvailable,
    /// There is no valid DNSConfiguration, or the oldest one cannot be read.
    DNSConfigurationNotAvailable,
    /// The namespace has no DNSPolicy, or the oldest one cannot be read.
    DNSPolicyNotFound,
    /// There is no such Gateway.
    GatewayNotFound,
    /// An older object owns the host.
    HostConflict,
    /// A foreign object has the name that is needed.
    NameTaken,
    /// No external-dns controller is selected.
    NoControllers,
    /// A kind that is needed is not installed in the cluster.
    KindNotInstalled,
    /// The API server rejects a DNSEndpoint.
    DNSEndpointGenerationFailed,
    /// The API server rejects an Istio Gateway.
    IstioGatewayGenerationFailed,
    /// An adopted region has no external-dns controller.
    AdoptedRegionNotFound,
    /// The object works, but does not have the name that others expect.
    UnusualName,
    /// The name is published, but external-dns cannot store its ownership record.
    TxtNameTooLong,
    /// A name in the object is not the value of a label, so labels have another value.
    LabelDiffers,
    /// Some addresses of a load balancer are not published.
    AddressesLeftOut,
    /// The tunnel of an Ingress does not exist.
    TunnelNotFound,
    /// Several tunnels have the name, in different namespaces.
    TunnelAmbiguous,
    /// The tunnel is in another namespace, which pangolin-operator does not support.
    TunnelNotInNamespace,
    /// The namespace of the Ingress may not use the tunnel.
    TunnelNotAllowed,
    /// The tunnel exists and is not ready.
    TunnelNotReady,
    /// An annotation is not known and has no effect.
    UnknownAnnotation,
    /// The class of the Ingress cannot be used.
    InvalidClass,
    /// The Ingress has no rule with a host.
    NoRules,
    /// Not all hosts of the Ingress are exposed: only the first, or only the first thousand.
    MultipleHosts,
    /// A path cannot be routed and is left out.
    PathNotSupported,
    /// The Service of a backend does not exist.
    BackendNotFound,
    /// The Service of a backend does not have the port.
    BackendPortNotFound,
    /// A backend is not a Service, or is one that has no address of the kind that is asked for.
    BackendNotSupported,
    /// The organisation has no verified domain for the host.
    DomainNotFound,
    /// pangolin-operator cannot expose a domain itself.
    ApexNotSupported,
    /// pangolin-operator reports that it failed.
    ResourceFailed,
    /// pangolin-operator reports success, and the resource has no target.
    ResourceWithoutTargets,
    /// pangolin-operator exposes another host than the wanted one.
    ResourceWrongHost,
    /// A resource that is not ours has the host or the name.
    ForeignResource,
    /// Pangolin still has a resource that nothing wants any more.
    StillExposed,
    /// The portal of a DNS object, a component or an annotation does not exist.
    PortalNotFound,
    /// The certificates for a portal of another cluster cannot be used.
    TLSConfigFailed,
    /// A portal of another cluster cannot be reached.
    RemoteConnectionFailed,
    /// A portal of another cluster answered with an error, or with something else than names.
    RemoteFetchFailed,
    /// The Pi-hole refused the password or the token.
    Unauthorized,
    /// The app password may only read.
    AppSudoOff,
    /// The password is that of the Pi-hole's command line, which may never write.
    CliPassword,
    /// An environment variable of the Pi-hole sets the list.
    EnvLocked,
    /// The configuration of the Pi-hole is read-only.
    ReadOnly,
    /// The web password needs a second factor.
    TwoFactor,
    /// All API sessions of the Pi-hole are taken.
    SeatsFull,
    /// The Pi-hole asks for fewer logins or requests.
    RateLimited,
    /// A foreign line is invalid, and the Pi-hole refuses every addition because of it.
    BadForeignLine,
    /// The Pi-hole is too old to keep comments.
    CommentsRefused,
    /// A list is too large for one request.
    TooLarge,
    /// The server does not speak the API that is configured.
    WrongDialect,
    /// Another server answers at the URL of the Pi-hole.
    NotAPihole,
    /// The server sends clients to another address.
    Redirected,
    /// The answer of the Pi-hole does not have the expected content.
    Protocol,
    /// The Pi-hole cannot be reached.
    Unreachable,
    /// The Pi-hole does not answer in time.
    Timeout,
    /// The certificate of the Pi-hole does not verify.
    Tls,
    /// The Pi-hole refused a request, without a known reason.
    Rejected,
    /// The Pi-hole answered with an error of its own.
    ServerError,
    /// A file with certificates or with a token cannot be used.
    Setup,
    /// The ConfigMap that lists what was created cannot be read or written.
    Ledger,
    /// Another program undoes what is written to the Pi-hole.
    Unsettled,
    /// The component of a DNS object cannot be written.
    ComponentFailed,
    /// No resolver works, so the last results are kept.
    ResolverUnavailable,
    /// Some of the resolvers do not work.
    PartlyAnswered,
}

/// A text that is not the name of a reason.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a refusal reason")]
pub struct UnknownReason(String);

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|reason| reason.as_str() == text);
        found.copied().ok_or_else(|| UnknownReason(text.chars().take(80).collect()))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A reason and a message that a user can act on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Refusal {
    /// One of the closed list.
    pub reason: Reason,
    /// The details, for people.
    pub message: String,
}

impl Refusal {
    /// A refusal for that reason.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// A refused item, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Refused<K> {
    /// The refused item.
    pub key: K,
    /// Why.
    pub refusal: Refusal,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_parsed_from_its_pascal_case_name() {
        for reason in Reason::ALL {
            let name = reason.to_string();
            assert_eq!(name.parse(), Ok(*reason));
            assert!(
                name.starts_with(|c: char| c.is_ascii_uppercase()) && name.bytes().all(|b| b.is_ascii_alphabetic())
            );
            assert_eq!(serde_json::from_str::<Reason>(&serde_json::to_string(reason).unwrap()).unwrap(), *reason);
        }
    }

    /// Users build alerts on these names: adding one is fine, changing or dropping one is not.
    #[test]
    fn the_names_of_reasons_are_stable() {
        let names: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        let stable = "
            InvalidName InvalidType InvalidTtl InvalidRecord UnquotedText NoRecords TooManyRecords InvalidSpec Unreadable
            OutsideZone ZoneMissing ZoneNotReady ClaimedByAnother ForeignRecord CnameConflict WrongPlace Unsupported
            DeletionHeld ProviderUnreachable ProviderUnauthorized ProviderThrottled ProviderRejected InvalidAnnotation
            InvalidHost NoHosts HostTaken OtherOwner SharedLine AliasLoop LineRefused DeletionsHeld ForeignLineMissing
            NameRepeatsZone CommentNotKept SingletonViolation ValidationFailed ClusterIdentityNotAvailable
            DNSConfigurationNotAvailable DNSPolicyNotFound GatewayNotFound HostConflict NameTaken NoControllers
            KindNotInstalled DNSEndpointGenerationFailed IstioGatewayGenerationFailed AdoptedRegionNotFound UnusualName
            TxtNameTooLong LabelDiffers AddressesLeftOut TunnelNotFound TunnelAmbiguous TunnelNotInNamespace
            TunnelNotAllowed TunnelNotReady UnknownAnnotation InvalidClass NoRules MultipleHosts PathNotSupported
            BackendNotFound BackendPortNotFound BackendNotSupported DomainNotFound ApexNotSupported ResourceFailed
            ResourceWithoutTargets ResourceWrongHost ForeignResource StillExposed PortalNotFound TLSConfigFailed
            RemoteConnectionFailed RemoteFetchFailed Unauthorized AppSudoOff CliPassword EnvLocked ReadOnly TwoFactor
            SeatsFull RateLimited BadForeignLine CommentsRefused TooLarge WrongDialect NotAPihole Redirected Protocol
            Unreachable Timeout Tls Rejected ServerError Setup Ledger Unsettled ComponentFailed ResolverUnavailable
            PartlyAnswered
        ";
        assert_eq!(names, stable.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn every_reason_has_its_own_meaning() {
        let meanings: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.meaning()).collect();
        assert_eq!(meanings.len(), Reason::ALL.len());
        assert!(meanings.iter().all(|meaning| meaning.ends_with('.') && !meaning.starts_with(' ')), "{meanings:?}");
    }

    #[test]
    fn an_unknown_name_is_not_a_reason() {
        assert!("Whatever".parse::<Reason>().is_err());
        assert_eq!("x".parse::<Reason>().unwrap_err().to_string(), "\"x\" is not a refusal reason");
    }

    #[test]
    fn a_refusal_reads_as_reason_and_message() {
        assert_eq!(Refusal::new(Reason::ZoneMissing, "wait").to_string(), "ZoneMissing: wait");
    }
}
