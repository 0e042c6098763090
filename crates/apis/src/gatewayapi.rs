//! `gateway.networking.k8s.io` Gateway, HTTPRoute, GRPCRoute and TLSRoute with only the fields that names are read from.
//!
//! In: an object as the API server sends it. Out: hostnames, parents, listeners and addresses. Every field is optional, so that no valid
//! object is unreadable.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta};
use kube::core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

use crate::{labelled_meta, null_is_default};

/// The API group.
pub const GROUP: &str = "gateway.networking.k8s.io";

/// A Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gateway {
    /// Identity, labels, annotations and dates.
    #[serde(default, deserialize_with = "labelled_meta")]
    pub metadata: ObjectMeta,
    /// The listeners.
    #[serde(default, deserialize_with = "null_is_default")]
    pub spec: GatewaySpec,
    /// The addresses.
    #[serde(default, deserialize_with = "null_is_default")]
    pub status: GatewayStatus,
}

/// The specification of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewaySpec {
    /// One entry per port, protocol and hostname.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
}

/// A listener of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Its name, which a route may refer to.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// The hostname that it accepts, perhaps a wildcard; absent means every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Its port.
    #[serde(default)]
    pub port: i32,
    /// `HTTP`, `HTTPS`, `TLS` and so on.
    #[serde(default, deserialize_with = "null_is_default")]
    pub protocol: String,
    /// Which routes it accepts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_routes: Option<AllowedRoutes>,
}

/// Which routes a listener accepts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllowedRoutes {
    /// From which namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<RouteNamespaces>,
    /// Of which kinds; none means every kind that fits the protocol.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<RouteKind>,
}

/// From which namespaces a listener accepts routes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RouteNamespaces {
    /// `Same`, `All` or `Selector`; absent means `Same`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The labels of the namespaces, for `Selector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

/// A kind of route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteKind {
    /// Its group; absent means that of the Gateway API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its kind.
    #[serde(default, deserialize_with = "null_is_default")]
    pub kind: String,
}

/// The status of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// Where it is reached.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<GatewayAddress>,
}

/// An address of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayAddress {
    /// An address or a host name.
    #[serde(default, deserialize_with = "null_is_default")]
    pub value: String,
}

/// The specification of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteSpec {
    /// Its hostnames; none means those of the listeners.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<String>,
    /// The Gateways that it wants to be attached to.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub parent_refs: Vec<ParentRef>,
}

/// A parent of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    /// Its group; absent means that of the Gateway API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its kind; absent means Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its namespace; absent means that of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// The listener; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<String>,
    /// The port; absent means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// The status of a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RouteStatus {
    /// What each Gateway reports.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<RouteParent>,
}

/// What a Gateway reports about a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteParent {
    /// Which parent.
    #[serde(default, deserialize_with = "null_is_default")]
    pub parent_ref: ParentRef,
    /// Whether it accepts the route.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

macro_rules! resource {
    ($type:ident, $kind:literal, $version:literal, $plural:literal) => {
        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                GROUP.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

macro_rules! route {
    ($(#[doc = $doc:literal])* $type:ident, $kind:literal, $version:literal, $plural:literal) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct $type {
            /// Identity, labels, annotations and dates.
            #[serde(default, deserialize_with = "labelled_meta")]
            pub metadata: ObjectMeta,
            /// Hostnames and parents.
            #[serde(default, deserialize_with = "null_is_default")]
            pub spec: RouteSpec,
            /// What its parents report.
            #[serde(default, deserialize_with = "null_is_default")]
            pub status: RouteStatus,
        }

        resource!($type, $kind, $version, $plural);
    };
}

resource!(Gateway, "Gateway", "v1", "gateways");
route!(
    /// An HTTPRoute.
    HttpRoute, "HTTPRoute", "v1", "httproutes"
);
route!(
    /// A GRPCRoute.
    GrpcRoute, "GRPCRoute", "v1", "grpcroutes"
);
route!(
    /// A TLSRoute.
    TlsRoute, "TLSRoute", "v1", "tlsroutes"
);
route!(
    /// A TLSRoute of the version that installations before Gateway API 1.5 have.
    TlsRouteAlpha, "TLSRoute", "v1alpha2", "tlsroutes"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_and_its_gateway_are_read() {
        let route: HttpRoute = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "web", "namespace": "demo", "managedFields": [] },
            "spec": { "hostnames": ["a.example.org"], "rules": [{}],
                "parentRefs": [{ "name": "gw", "namespace": "infra", "sectionName": "https" }] },
            "status": { "parents": [{ "parentRef": { "name": "gw" }, "controllerName": "x", "conditions": [] }] },
        }))
        .unwrap();
        assert_eq!(route.spec.parent_refs[0].section_name.as_deref(), Some("https"));
        assert_eq!((route.spec.hostnames.len(), route.status.parents.len()), (1, 1));
        let gateway: Gateway = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "gw" },
            "spec": { "gatewayClassName": "x", "listeners": [{ "name": "https", "hostname": "*.example.org", "port": 443,
                "protocol": "HTTPS", "allowedRoutes": { "namespaces": { "from": "All" } } }] },
            "status": { "addresses": [{ "type": "IPAddress", "value": "192.0.2.1" }] },
        }))
        .unwrap();
        assert_eq!(gateway.spec.listeners[0].hostname.as_deref(), Some("*.example.org"));
        assert_eq!(gateway.status.addresses[0].value, "192.0.2.1");
    }

    #[test]
    fn nulls_and_absent_parts_are_empty_not_errors() {
        for text in [
            r#"{"metadata":{"name":"x"}}"#,
            r#"{"metadata":{"name":"x"},"spec":null,"status":null}"#,
            r#"{"metadata":{"name":"x"},"spec":{"hostnames":null,"parentRefs":null,"listeners":[{}]},"status":{"parents":null,"addresses":null}}"#,
        ] {
            assert!(serde_json::from_str::<HttpRoute>(text).unwrap().spec.hostnames.is_empty(), "{text}");
            assert!(serde_json::from_str::<Gateway>(text).unwrap().status.addresses.is_empty(), "{text}");
        }
    }
}
