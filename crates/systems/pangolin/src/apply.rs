//! Does what was planned: the only step that writes. It can be cut off anywhere; the next pass starts from what is there.

mod api;

use std::sync::Arc;

use signpost_apis::pangolin::PangolinResource;
use signpost_dns::Fqdn;
use signpost_engine::{Child, ChildApplied, ChildDeleted, ChildError, Identity, Proof, RetryClass, WriteError};
use signpost_planning::Reason;
use signpost_provider_pangolin::{ErrorClass, PangolinError, ResourceId, Stored};

use crate::PangolinSystem;
use crate::index::{Claimant, IngressId, Key};
use crate::plan::api::{Doomed, Ensure, ingress_mark};
use crate::plan::crd::{CrdPlan, DoomedChild};
use crate::plan::refusals::{About, HostRefusal};
use crate::plan::{Abandoned, Delivery, Memory, Note, Plan, unreachable};
use crate::settings::Policy;

/// How many passes per second may create or change resources of Pangolin, where no rate was set: each call costs the server a password hash. A
/// pass that finds everything in the list calls nothing and does not wait. A pass that only deletes or makes access stricter does not wait
/// either: until it is done, something is public that nobody wants to be.
const USUAL_RATE: u32 = 10;

/// The result of a plan.
#[allow(clippy::struct_excessive_bools)] // Each answers a question of the report.
#[derive(Debug)]
pub struct ApplyResult {
    pub(crate) key: Key,
    pub(crate) policy: Arc<Policy>,
    pub(crate) memory: Memory,
    pub(crate) identity: Option<Identity>,
    pub(crate) tunnel: String,
    pub(crate) refusals: Vec<HostRefusal>,
    /// Whether the refusals are complete.
    pub(crate) judged: bool,
    pub(crate) notes: Vec<Note>,
    pub(crate) again: Option<RetryClass>,
    /// The changes, for events and logs.
    pub(crate) changes: Vec<Change>,
    /// The errors, for the log.
    pub(crate) errors: Vec<String>,
    /// Hosts that are exposed; `None` leaves the status of the Ingress alone.
    pub(crate) hosts: Option<Vec<String>>,
    /// The digest of what was made sure of (direct mode).
    pub(crate) digest: Option<String>,
    /// The digest that is noted on the Ingress (direct mode).
    pub(crate) noted: Option<String>,
    /// Whether all of what Pangolin has was read or written (direct mode).
    pub(crate) read: bool,
    /// How many resources there are for the Ingress.
    pub(crate) managed: usize,
    /// Whether the Ingress exists.
    pub(crate) present: bool,
    /// Whether the Ingress is ours.
    pub(crate) ours: bool,
    /// Whether large deletions wait.
    pub(crate) paused: bool,
    /// The class to note on the Ingress, and the one that is noted (direct mode).
    pub(crate) classes: Option<(Option<String>, Option<Box<str>>)>,
    /// Whether a write was sent whose effect is not known (direct mode).
    pub(crate) unsure: bool,
    /// What the Ingress asked for when this was planned.
    pub(crate) asked: Option<Arc<Claimant>>,
}

/// One thing that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) what: What,
    pub(crate) host: String,
    /// The PangolinResource, or the resource of Pangolin.
    pub(crate) object: String,
}

/// How it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Created,
    Updated,
    Deleted,
}

impl What {
    /// The reason of its event.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Updated => "Updated",
            Self::Deleted => "Deleted",
        }
    }
}

impl ApplyResult {
    fn fail(&mut self, error: String, class: RetryClass) {
        self.errors.push(error);
        self.again = Some(match (self.again, class) {
            // The soonest one.
            (Some(RetryClass::Now), _) | (_, RetryClass::Now) => RetryClass::Now,
            (Some(RetryClass::Transient), _) | (_, RetryClass::Transient) => RetryClass::Transient,
            (_, class) => class,
        });
    }

    fn changed(&mut self, what: What, host: &str, object: impl Into<String>) {
        self.changes.push(Change { what, host: host.to_owned(), object: object.into() });
    }

    /// Notes an error of Pangolin: about the object, or about the server.
    fn refused_by_pangolin(&mut self, host: &str, error: &PangolinError) {
        let class = match error.class() {
            // A page of a proxy, or a key, may be corrected at any moment; the link spares the server.
            ErrorClass::Settings if matches!(error, PangolinError::Forbidden { .. }) => crate::plan::SOON,
            ErrorClass::Transient | ErrorClass::Settings => RetryClass::Transient,
            ErrorClass::Throttled(after) => RetryClass::Throttled { after },
            ErrorClass::Object => RetryClass::Slow,
        };
        let mut refusal = unreachable(error);
        if matches!(error, PangolinError::HostTaken { .. }) {
            refusal.reason = Reason::ForeignResource;
        }
        if !host.is_empty() {
            refusal.message = format!("{host}: {}", refusal.message);
        }
        // A conflict of two writers, or a dropped connection, is over at the next try.
        if !matches!(error, PangolinError::NotFound { .. } | PangolinError::Unreachable { dropped: true, .. }) {
            let key = if host.is_empty() { About::Ingress } else { About::host(host) };
            self.refusals.push(HostRefusal { key, refusal });
        }
        self.fail(format!("{host}: {error}"), class);
    }

    /// The last refusal is about two hosts of ours, not about a foreign resource.
    fn overlapping(&mut self, host: &str, other: &Fqdn, owner: &IngressId) {
        if let Some(refused) = self.refusals.last_mut() {
            refused.refusal.reason = Reason::HostConflict;
            refused.refusal.message = format!(
                "{host} overlaps with {} of the Ingress {}, and Pangolin allows only one of the two. Delete one of the two, or change the host.",
                other.undotted(),
                owner.path()
            );
        }
    }

    /// A host that is not exposed.
    fn drop_host(&mut self, host: &str) {
        self.hosts.iter_mut().for_each(|hosts| hosts.retain(|known| known != host));
    }

    /// Resources that were not tried: those of them that answer nothing are not exposed.
    fn forget_unmade(&mut self, rest: &[Ensure]) {
        for ensure in rest.iter().filter(|ensure| !ensure.served) {
            self.drop_host(ensure.settings.host.undotted());
        }
    }

    /// Hosts whose resources are deleted only after all others of the Ingress are made.
    fn stay_public(&mut self, delete: &[Doomed]) {
        for Doomed { host, .. } in delete.iter().filter(|doomed| doomed.served && !doomed.twice) {
            let message = format!(
                "{host} stays public until every host of the Ingress is made, since it may be replaced by one of them; see why they fail, or delete it in the dashboard"
            );
            self.refusals.push(About::host(host).refuse(Reason::StillExposed, message));
        }
    }

    /// The current state of Pangolin.
    fn know(&mut self, id: ResourceId, stored: Stored) {
        self.memory.known.insert(id, stored);
    }
}

impl PangolinSystem {
    pub(crate) async fn carry_out(&self, plan: Plan) -> ApplyResult {
        let Plan {
            key,
            policy,
            memory,
            identity,
            tunnel,
            refusals,
            notes,
            again,
            delivery,
            hosts,
            present,
            managed,
            judged,
            blocked,
            classes,
            abandoned,
            asked,
        } = plan;
        if let Some(abandoned) = &abandoned {
            self.abandon(&key, abandoned, Vec::new());
        }
        let before = memory.managed;
        let mut applied = ApplyResult {
            key,
            policy,
            memory,
            identity,
            tunnel,
            refusals,
            judged,
            notes,
            again,
            changes: Vec::new(),
            errors: Vec::new(),
            hosts,
            digest: None,
            noted: None,
            read: false,
            managed: before,
            present,
            ours: managed,
            paused: false,
            classes,
            unsure: false,
            asked,
        };
        match delivery {
            Delivery::Nothing => {}
            Delivery::Crd(plan) => self.apply_children(plan, &mut applied).await,
            Delivery::Api(plan) => {
                if self.policy.rate.is_none() && plan.ensure.iter().any(|ensure| !ensure.stricter) {
                    self.pace(USUAL_RATE).await;
                }
                let failed = self.apply_resources(plan, blocked, &mut applied).await;
                if let Some(abandoned) = abandoned.filter(|_| !failed.is_empty()) {
                    self.abandon(&applied.key, &abandoned, failed);
                }
            }
            Delivery::Down(error) => {
                let class = match error.class() {
                    ErrorClass::Throttled(after) => RetryClass::Throttled { after },
                    ErrorClass::Object => crate::plan::SOON,
                    ErrorClass::Transient | ErrorClass::Settings => RetryClass::Transient,
                };
                applied.fail(error.to_string(), class);
            }
        }
        applied.memory.managed = applied.managed;
        applied
    }

    /// Lets nobody wait for an Ingress to take over a host that it cannot expose.
    fn abandon(&self, key: &Key, abandoned: &Abandoned, failed: Vec<Fqdn>) {
        let Key::Ingress(id) = key else { return };
        let Abandoned { hosts, marks, owner } = abandoned;
        let hosts = hosts.iter().cloned().chain(failed).collect();
        self.index.set_refused(id, hosts, |other| other != id && marks.contains(&ingress_mark(owner, other)));
    }

    async fn apply_children(&self, plan: CrdPlan, applied: &mut ApplyResult) {
        let CrdPlan { apply, delete, owner, managed, login } = plan;
        let Key::Ingress(id) = applied.key.clone() else { return };
        let namespace = id.namespace.as_deref();
        applied.managed = managed;
        let mut complete = true;
        for (name, host, content) in apply {
            let Some(owner) = &owner else { continue };
            if self.index.is_owned_by_another(&id, &host) {
                // An older Ingress has named the host since this was planned.
                (complete, applied.again) = (false, Some(RetryClass::Transient));
                continue;
            }
            let child = Child::new::<PangolinResource>(namespace, &name, Proof::Owner(Box::new(owner.clone())));
            let done = self.writer.apply_child(&child, &content).await;
            let (ingress, tunnel, spec) = (&id.name, &applied.tunnel, &content["spec"]);
            tracing::debug!(namespace, ingress, host, tunnel, "pangolinResource" = name, ?done, %spec, "PangolinResource compared");
            match done {
                Ok(ChildApplied::Made) => {
                    applied.managed += 1;
                    if login {
                        let note = format!(
                            "{host} asks visitors to log in: pangolin-operator creates it with single sign-on, and the PangolinResource of this cluster has no field to switch it off; switch it off in the dashboard, or use PIC_MODE=api"
                        );
                        applied.notes.push(Note::warning(Reason::Unsupported, note));
                    }
                    applied.changed(What::Created, &host, name);
                }
                Ok(ChildApplied::Changed) => {
                    if let Some((_, _, Some(resource))) = applied.memory.children.get(&name) {
                        let note = format!(
                            "PangolinResource {name} was changed, but pangolin-operator leaves resource {resource} of Pangolin as it is: {host} keeps its old target and access; correct it in the dashboard"
                        );
                        applied.notes.push(Note::warning(Reason::StillExposed, note));
                    }
                    applied.changed(What::Updated, &host, name);
                }
                Ok(ChildApplied::Unchanged) => {}
                Err(error) => {
                    // A permanent rejection does not delay the deletion of unwanted objects.
                    complete &= matches!(error, ChildError::NotOurs { .. } | ChildError::Write(WriteError::Invalid(_)));
                    self.child_failed(&host, &error, applied).await;
                }
            }
        }
        if !complete {
            // Their replacement is not there yet.
            return;
        }
        for DoomedChild { name, uid, host, handed_over, leftover } in delete {
            // The Ingresses may have changed since this was planned.
            if self.index.is_wanted_again(&id, &host, applied.asked.as_deref())
                || (handed_over && !self.index.is_exposed_by_another(&id, &host))
            {
                applied.again = Some(RetryClass::Now);
                continue;
            }
            let mut owner = applied.identity.as_ref().map(Identity::owner_reference).unwrap_or_default();
            owner.uid = uid;
            let child = Child::new::<PangolinResource>(namespace, &name, Proof::Owner(Box::new(owner)));
            match self.writer.delete_child(&child).await {
                Ok(deleted) => {
                    if let Some(note) = leftover {
                        applied.notes.push(note);
                        applied.memory.left.insert(name.clone());
                    }
                    if deleted == ChildDeleted::Asked {
                        applied.managed = applied.managed.saturating_sub(1);
                        applied.changed(What::Deleted, &host, name);
                    }
                }
                Err(ChildError::NotOurs { .. }) => {}
                Err(error) => applied.fail(error.to_string(), (&error).into()),
            }
        }
    }

    async fn child_failed(&self, host: &str, error: &ChildError, applied: &mut ApplyResult) {
        match error {
            ChildError::NotOurs { .. } => {
                applied.refusals.push(About::host(host).refuse(Reason::ForeignResource, format!("{host}: {error}")));
            }
            ChildError::Write(WriteError::Invalid(why)) => {
                let message = format!("{host}: the API server rejects the PangolinResource: {why}");
                applied.refusals.push(About::host(host).refuse(Reason::Unsupported, message));
                self.schema.forget().await;
            }
            // A field that is not declared is answered with a server error.
            ChildError::Write(WriteError::Transient(why)) if why.contains("schema") => self.schema.forget().await,
            ChildError::Leaving { .. } | ChildError::Write(_) => {}
        }
        applied.fail(format!("{host}: {error}"), error.into());
    }
}
