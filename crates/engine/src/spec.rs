//! The description of a system: everything that the binary, the CRDs, the RBAC, the documentation, the demo and the tests need.
//!
//! The binary has one list of specs. Adding a system is one line in it.

use std::{error::Error, fmt};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::{
    demo::Demo,
    operator::Operator,
    settings::{Setting, Settings},
};

/// One system.
#[derive(Clone, Copy)]
pub struct SystemSpec {
    /// Its name in `SIGNPOST_SYSTEMS`, logs, metrics and checks.
    pub name: &'static str,
    /// Its name for people: `PowerDNS`.
    pub title: &'static str,
    /// Its inputs and outputs, in one line.
    pub about: &'static str,
    /// Its settings.
    pub settings: &'static [Setting],
    /// The settings that name its server: it runs when one of them is given. A system without any runs when it is named.
    pub servers: &'static [&'static str],
    /// Further settings that show that it is meant to run, so that the missing ones are reported.
    pub hints: &'static [&'static str],
    /// The CRDs that it installs. A kind that others refer to comes before them.
    pub crds: fn() -> Vec<CustomResourceDefinition>,
    /// The permissions that it needs in the cluster.
    pub rules: &'static [Rule],
    /// The permissions of each way of running it that needs only a part of `rules`, by name. Each gets a file `deploy/rbac-SYSTEM-NAME.yaml`.
    pub variants: &'static [(&'static str, &'static [Rule])],
    /// Resources that may be in a namespace of their own, beside those that are watched.
    pub shared: &'static [&'static str],
    /// Reads its settings. Returns `None` when they are invalid; `Settings` then has the problems.
    pub configure: fn(&mut Settings) -> Option<Box<dyn Configured>>,
    /// Its part in `signpost demo`; `None` leaves it out.
    pub demo: Option<Demo>,
}

impl fmt::Debug for SystemSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemSpec").field("name", &self.name).finish_non_exhaustive()
    }
}

impl SystemSpec {
    /// Whether the settings show that it is meant to run.
    pub fn is_meant_by(&self, settings: &Settings) -> bool {
        self.servers.iter().chain(self.hints).any(|name| settings.given(name).is_some())
    }
}

/// A system with its settings read, ready to be added to an operator.
pub trait Configured: Send {
    /// Adds it. Called inside a tokio runtime.
    fn install(self: Box<Self>, operator: &mut Operator) -> Result<(), Box<dyn Error + Send + Sync>>;
}

impl<F> Configured for F
where
    F: FnOnce(&mut Operator) -> Result<(), Box<dyn Error + Send + Sync>> + Send,
{
    fn install(self: Box<Self>, operator: &mut Operator) -> Result<(), Box<dyn Error + Send + Sync>> {
        self(operator)
    }
}

/// A permission that the operator needs in the cluster, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Only in the operator's own namespace.
    pub own_namespace: bool,
    /// API group; empty is core.
    pub group: &'static str,
    /// Resources, with their subresources spelt `resource/subresource`.
    pub resources: &'static [&'static str],
    /// The only objects that it is for; empty is all.
    pub names: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Why it is needed.
    pub why: &'static str,
}
