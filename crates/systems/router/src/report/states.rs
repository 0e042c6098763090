//! The closed list of reasons that a condition or an event of this system can have: its normal states, and the reasons of refusals.

use signpost_planning::{Reason, closed_list};

closed_list! {
    /// A state of an object that is not a refusal.
    State:
    /// A ClusterIdentity is valid and used.
    ValidationSucceeded,
    /// A DNSConfiguration is valid and used.
    ConfigurationValid,
    /// No region is adopted.
    NoAdoptedRegions,
    /// Every adopted region has a controller.
    AllAdoptedRegionsValid,
    /// A policy applies to this cluster.
    PolicyActive,
    /// A policy does not apply to this cluster.
    PolicyInactive,
    /// A route is published.
    ReconciliationSucceeded,
    /// The policy of a route does not apply to this cluster.
    DNSPolicyInactive,
    /// The gateway of a route has another name, which is not published yet: the route points at a former one.
    TargetNotPublished,
    /// A Gateway has its Istio Gateway.
    GatewayCreated,
    /// No route uses a Gateway.
    NoServiceRoutes,
    /// The name of a gateway is published.
    DNSEndpointsCreated,
    /// The load balancer of a gateway has no address, or does not exist.
    LoadBalancerIPPending,
    /// Addresses become a host name, or the reverse.
    RecordTypeChanging,
    /// DNSEndpoints were deleted by a decision: the reason of an event.
    Withdrawn,
}

/// The reason of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    State(State),
    Refused(Reason),
}

impl Why {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::State(state) => state.as_str(),
            Self::Refused(reason) => reason.as_str(),
        }
    }
}

impl From<State> for Why {
    fn from(state: State) -> Self {
        Self::State(state)
    }
}

impl From<Reason> for Why {
    fn from(reason: Reason) -> Self {
        Self::Refused(reason)
    }
}
