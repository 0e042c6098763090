//! Whether the names that other systems published are served: looked up like the names of DNS objects, with the result in the inventory. With
//! `VERIFY`, the result for a record set of `powerdns` is the condition `Served` of its object too, a part of the status with an owner of its own.
//!
//! ```text
//!  change of a system's view ─► key of its owner ─► lookups ─► Inventory::judge
//!                           └─► DNS and discovered objects with the same name: looked up soon
//! ```
//!
//! A replica that does not lead looks nothing up. It takes over the condition `Served` of a record set, where there is one; of the other names that
//! can be looked up it shows that only the leader knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use signpost_apis::portal::DnsEntry;
use signpost_apis::powerdns::{ClusterRRset, RRset};
use signpost_dns::{Fqdn, RecordType};
use signpost_engine::{Clock, Identity, ObjectId, Touch, Writer};
use signpost_inventory::{
    At, Change, Inventory, Judgement, Owner, Source, Stage, SyncReason, SyncStatus, Update, Values, View,
};

use crate::index::{Key, Keys, Objects};
use crate::plan::entries::{self, Subject, Wanted};
use crate::plan::judge::Verdict;
use crate::plan::{Checked, NamesPlan, Verdicts};
use crate::report::{SERVED, resolver_of};
use crate::{NAME, PortalSystem};

/// Conditions that change within this time are taken over together.
const GATHERED: Duration = Duration::from_millis(500);

/// Who follows the changes of other systems.
pub(crate) struct Follower {
    pub(crate) inventory: Arc<Inventory>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) queue: Keys,
    pub(crate) writer: Writer,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Touches what the changes of other systems concern, until it is dropped.
pub(crate) fn follow(follower: Follower) -> impl Future<Output = ()> {
    // From before the first change.
    let (_, mut changes) = follower.inventory.subscribe();
    async move {
        let Follower { inventory, objects, queue, .. } = &follower;
        loop {
            let (mut owners, mut names) = (BTreeSet::new(), BTreeSet::new());
            let update = tokio::select! {
                update = changes.next() => Some(update),
                () = objects.conditions_changed() => None,
            };
            let leads = follower.writer.may_write();
            match update {
                // The results are its own.
                None if leads => continue,
                Some(Update::Changes(ref batch)) => {
                    for change in &batch.changes {
                        let (Change::Added(view) | Change::Modified(view) | Change::Removed(view)) = change;
                        if is_of_system(view) {
                            owners.insert(view.owner().clone());
                            names.insert(view.name().clone());
                        }
                    }
                }
                Some(Update::Lagged(_)) | None => {
                    let snapshot = inventory.snapshot();
                    for view in snapshot.iter().filter(|view| is_of_system(view)) {
                        owners.insert(view.owner().clone());
                        // Which of them have changed is not known.
                        if update.is_some() {
                            names.insert(view.name().clone());
                        }
                    }
                }
            }
            if !leads {
                for owner in &owners {
                    follower.take_over(owner);
                }
            }
            if update.is_none() {
                tokio::time::sleep(GATHERED).await;
                continue;
            }
            for (id, names) in with_names(inventory, objects, names) {
                objects.names_changed(&id, names);
            }
            for owner in owners {
                queue.touch(Key::Names(owner), Touch::All);
            }
        }
    }
}

impl Follower {
    /// Shows what the leader reported on the names of an owner, on a replica that does not lead.
    fn take_over(&self, owner: &Owner) {
        let judgement = |view: &View| {
            // Nobody looks up what cannot be compared.
            let published = view.stage() == Stage::Published && is_of_system(view) && is_comparable(view);
            let id = published.then(|| record_of(view));
            let known = id?.and_then(|id| self.objects.get(&id));
            let served = known.and_then(|known| known.conditions.iter().find_map(reported));
            let (status, reason) = served.unwrap_or((SyncStatus::Unchecked, SyncReason::LeaderOnly));
            Some(Judgement { status, reason, observed: Values::default(), checked_at: At::NEVER })
        };
        self.inventory.judge(owner, self.clock.now(), judgement);
    }
}

/// The results that conditions `Served` report, of names that this process has not looked up: an outage after a restart keeps them.
pub(crate) fn seeds(objects: &Objects, views: &[Arc<View>], verdicts: &Verdicts) -> Verdicts {
    let never = Timestamp::UNIX_EPOCH;
    let seed = |view: &Arc<View>| {
        let id = record_of(view)?;
        let subject = wanted(view).subject().filter(|subject| !verdicts.contains_key(subject))?;
        let known = objects.get(&id)?;
        let current = |condition: &&Condition| condition.observed_generation == Some(known.identity.generation);
        let served = |condition| Some((reported(condition)?, resolver_of(condition)));
        let ((status, reason), resolver) = known.conditions.iter().filter(current).find_map(served)?;
        let verdict = Verdict { resolver: resolver.map(Arc::from), ..Verdict::new(status, reason, Values::default()) };
        Some((subject, Checked { verdict, at: never, next: never, from: never, failures: 0 }))
    };
    views.iter().filter_map(seed).collect()
}

/// The result that a condition `Served` reports.
fn reported(condition: &Condition) -> Option<(SyncStatus, SyncReason)> {
    let reason = SyncReason::parse(&condition.reason).filter(|_| condition.type_ == SERVED)?;
    let status = match reason {
        _ if condition.status == "True" => SyncStatus::Sync,
        SyncReason::NoSuchName | SyncReason::NoData | SyncReason::Mismatch => SyncStatus::NotFound,
        SyncReason::Timeout => SyncStatus::Timeout,
        _ => SyncStatus::Error,
    };
    Some((status, reason))
}

fn is_of_system(view: &View) -> bool {
    view.owner().system != NAME && view.provenance().source == Source::System
}

/// The objects of this system that have one of these names.
fn with_names(
    inventory: &Inventory,
    objects: &Objects,
    names: BTreeSet<Fqdn>,
) -> BTreeMap<Arc<ObjectId>, BTreeSet<Fqdn>> {
    let snapshot = inventory.snapshot();
    let mut found: BTreeMap<Arc<ObjectId>, BTreeSet<Fqdn>> = BTreeMap::new();
    for name in names {
        for view in snapshot.get(&name).filter(|view| view.owner().system == NAME) {
            if let Some(id) = objects.of_owner(view.owner()) {
                found.entry(id).or_default().insert(name.clone());
            }
        }
    }
    found
}

/// What is expected of a name that a system published. Where PowerDNS has an ALIAS, the addresses of its host are answered.
pub(crate) fn wanted(view: &View) -> Wanted {
    let rtype = view.rtype().filter(|rtype| *rtype != RecordType::Alias);
    entries::read(&DnsEntry {
        fqdn: view.name().undotted().to_owned(),
        record_type: rtype.map(|rtype| rtype.as_str().to_owned()),
        targets: view.targets().iter().map(str::to_owned).collect(),
        ..DnsEntry::default()
    })
}

/// Whether an answer can be compared with what was published. PowerDNS computes the answer of a LUA record, and values of types without a parser
/// here have no form in common with the answer.
pub(crate) fn is_comparable(view: &View) -> bool {
    match view.rtype() {
        Some(RecordType::Loc) => false,
        Some(RecordType::Other(mnemonic)) => mnemonic.as_str().starts_with("TYPE"),
        Some(_) | None => true,
    }
}

/// The record set of `powerdns` that a name comes from.
fn record_of(view: &View) -> Option<ObjectId> {
    let origin = &view.provenance().origin;
    match &*origin.kind {
        "RRset" => Some(ObjectId::new::<RRset>(Some(&origin.namespace), &origin.name)),
        "ClusterRRset" => Some(ObjectId::new::<ClusterRRset>(None, &origin.name)),
        _ => None,
    }
}

/// The objects of `powerdns` whose status gets the result, with the keys of their verdicts: none where the record set was refused.
pub(crate) fn records(objects: &Objects, views: &[Arc<View>]) -> Vec<(Identity, Option<Subject>)> {
    let record = |view: &Arc<View>| {
        let id = record_of(view)?;
        let subject = match view.stage() {
            Stage::Published if is_comparable(view) => Some(wanted(view).subject()?),
            Stage::Published | Stage::Refused => None,
            // The server does not have it yet: the last result is kept until then.
            Stage::Wanted | Stage::Known => return None,
        };
        Some((objects.get(&id)?.identity, subject))
    };
    views.iter().filter_map(record).collect()
}

/// Writes the verdicts on an owner's names into the inventory. A name without a verdict is unchecked on the replica that leads.
pub(crate) fn judge(system: &PortalSystem, plan: &NamesPlan) {
    let judgement = |view: &View| {
        // It may have been refused while it was looked up.
        let published = Some(view).filter(|view| view.stage() == Stage::Published)?;
        match wanted(published).subject().and_then(|subject| plan.verdicts.get(&subject)) {
            Some(Checked { verdict, at, .. }) => Some(Judgement {
                status: verdict.status,
                reason: verdict.reason,
                observed: verdict.observed.clone(),
                checked_at: At::from(*at),
            }),
            None if view.reason() == SyncReason::LeaderOnly => Some(Judgement {
                status: SyncStatus::Unchecked,
                reason: SyncReason::Unchecked,
                observed: Values::default(),
                checked_at: At::NEVER,
            }),
            None => None,
        }
    };
    let owner: &Owner = &plan.owner;
    system.inventory.judge(owner, system.clock.now(), judgement);
}
