//! The plan for all hosts: the owner of each, hosts without a claim, and changes that have to wait.

use std::collections::BTreeMap;

use signpost_dns::Fqdn;
use signpost_planning::{Claim, Claims, DeletionGuard, GuardDecision, GuardMemory, Permission, Reason};
use signpost_provider_pihole::Line;

use super::PlanInput;
use super::aliases::Aliases;
use super::change::{Change, Planned, Slot, is_unusable};
use super::claimed::Claimed;
use super::lines::{Sighting, Sorted, sort};
use crate::index::{Claimant, IngressId, Snapshot, Target};

/// The owner of each host.
pub(crate) fn claims_of(snapshot: &Snapshot) -> Claims<&Fqdn, usize> {
    let mut claims = Claims::new();
    for (place, claimant) in snapshot.claimants.iter().enumerate() {
        for host in &claimant.hosts {
            claims.insert(host, Claim::new(place, claimant.identity.created, claimant.identity.uid.clone()));
        }
    }
    claims
}

/// Makes the plan.
pub(crate) fn make(input: &PlanInput<'_>, guard: &mut GuardMemory) -> Planned {
    let claims = claims_of(input.snapshot);
    let sorted = sort(input, |host| claims.holder_of(&host).is_some());
    let mut planned = Planned::default();
    let mut deletions = Vec::new();
    // Changes that would take a foreign record along.
    let mut shared = Vec::new();
    // An alias that is deleted in the same write leads nowhere: nobody claims it, or the address that replaces it is there.
    let mut aliases = Aliases::of(input.listing, input.ownership, |alias| {
        let holder = claims.holder_of(&alias).and_then(|claim| input.snapshot.claimants.get(claim.holder));
        let replaced = || [Slot::A, Slot::Aaaa].iter().any(|slot| sorted.own.contains_key(&(alias.clone(), *slot)));
        holder.is_none_or(|holder| matches!(holder.target, Target::Addresses { .. }) && replaced())
    });
    for (host, claim) in claims.owned() {
        let Some(oldest) = input.snapshot.claimants.get(claim.holder) else { continue };
        let waiting: Vec<&Claimant> = claims
            .waiting(host)
            .filter_map(|claim| input.snapshot.claimants.get(claim.holder))
            .map(AsRef::as_ref)
            .collect();
        let holder = sorted.holder_of(host, oldest, &waiting);
        if holder.id() != oldest.id() {
            planned.yielded.insert((*host).clone(), holder.id().clone());
        }
        tell_losers(host, oldest, holder, &waiting, &mut planned);
        Claimed { input, sorted: &sorted, host, holder }.plan(&mut planned, &mut deletions, &mut aliases);
    }
    unclaimed(input, &claims, &sorted, &mut planned, &mut deletions);
    for changes in [&mut planned.changes, &mut deletions] {
        changes.retain(|change| {
            let spared = sorted.shares_its_name(change) && !input.listing.capabilities.exact_delete;
            if spared {
                shared.push((change.ingress.clone(), change.host.clone()));
            }
            !spared
        });
    }
    for (ingress, host) in shared {
        let message =
            format!("{} also has a record that is not ours; deleting by name would take both", host.undotted());
        planned.refuse(ingress.as_ref(), Some(&host), Reason::SharedLine, message);
    }
    sweep(input, &sorted, deletions, guard, &mut planned);
    if !input.may_restart {
        let before = planned.changes.len();
        planned.changes.retain(|change| change.slot != Slot::Cname);
        planned.deferred = planned.changes.len() < before;
    }
    planned.refusals.sort();
    planned.refusals.dedup();
    planned
}

/// Reports to the other claims of a host who has it, where they want something else.
fn tell_losers(host: &Fqdn, oldest: &Claimant, holder: &Claimant, waiting: &[&Claimant], planned: &mut Planned) {
    for loser in waiting.iter().filter(|loser| loser.id() != holder.id() && loser.target != holder.target) {
        let (name, path) = (host.undotted(), holder.id().path());
        let message = if is_unusable(&oldest.target) && holder.id() == oldest.id() {
            format!(
                "{name} is kept as it is for Ingress {path}, which is older and whose target cannot be used. Correct it or delete it"
            )
        } else {
            format!("{name} belongs to Ingress {path}, which is older and points it elsewhere")
        };
        planned.refuse(Some(loser.id()), Some(host), Reason::HostTaken, message);
    }
}

/// Our lines that nobody claims: those that are deleted at once, and those that the guard decides about.
fn unclaimed(
    input: &PlanInput<'_>,
    claims: &Claims<&Fqdn, usize>,
    sorted: &Sorted<'_>,
    planned: &mut Planned,
    deletions: &mut Vec<Change>,
) {
    let unclaimed: Vec<(&(Fqdn, Slot), &Vec<Sighting<'_>>)> =
        sorted.own.iter().filter(|((host, _), _)| claims.holder_of(&host).is_none()).collect();
    let viewed = if unclaimed.is_empty() { BTreeMap::new() } else { viewers(input.snapshot) };
    for ((host, slot), own) in unclaimed {
        let last = input.snapshot.released.get(host).or_else(|| viewed.get(host));
        // Nobody we know ever claimed it: it may only be deleted when everybody could be asked.
        if last.is_none() && (!input.policy.sweep || input.snapshot.blind) {
            continue;
        }
        let change = delete(host, *slot, last.cloned(), own);
        if input.snapshot.seen.contains(host) {
            planned.changes.push(change);
        } else {
            deletions.push(change);
        }
    }
}

/// The Ingresses that show a host in their view.
fn viewers(snapshot: &Snapshot) -> BTreeMap<Fqdn, IngressId> {
    let shown = |claimant: &std::sync::Arc<Claimant>| {
        let key = claimant.id().clone();
        claimant.viewed().map(move |host| (host, key.clone())).collect::<Vec<_>>()
    };
    snapshot.claimants.iter().flat_map(shown).collect()
}

/// Lets deletions through that nobody was seen to ask for, or pauses them all when there are too many at once.
fn sweep(
    input: &PlanInput<'_>,
    sorted: &Sorted<'_>,
    deletions: Vec<Change>,
    guard: &mut GuardMemory,
    planned: &mut Planned,
) {
    let lines: Vec<&Line> = deletions.iter().flat_map(|change| &change.remove).collect();
    let (limits, wait) = (DeletionGuard::LIST, input.policy.brake);
    match guard.check(limits, sorted.lines, lines, Permission::Guarded, wait, input.now) {
        GuardDecision::Allowed => planned.changes.extend(deletions),
        GuardDecision::Paused { deletions, served, .. } => {
            planned.paused = true;
            let message = format!(
                "{deletions} of {served} records would be deleted at once; waiting for a second pass that wants the same"
            );
            planned.refuse(None, None, Reason::DeletionsHeld, message);
        }
    }
}

pub(super) fn delete(host: &Fqdn, slot: Slot, ingress: Option<IngressId>, own: &[Sighting<'_>]) -> Change {
    Change {
        host: host.clone(),
        slot,
        ingress,
        old: own.first().and_then(|seen| seen.value.clone()),
        new: None,
        add: None,
        remove: own.iter().map(|seen| seen.line.clone()).collect(),
    }
}
