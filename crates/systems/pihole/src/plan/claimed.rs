//! One claimed host: what it should have, what is in the way, and what is done about it.

use signpost_dns::Fqdn;
use signpost_planning::Reason;
use signpost_provider_pihole::{Line, MARKER};

use super::aliases::Aliases;
use super::change::{Change, Planned, Slot, Value, wanted};
use super::hosts::delete;
use super::lines::{Sighting, Sorted};
use super::{Ownership, PlanInput};
use crate::index::{Claimant, Target, Wanted};
use crate::settings::ConflictPolicy;

/// One claimed host.
pub(super) struct Claimed<'a, 'w> {
    pub(super) input: &'a PlanInput<'w>,
    pub(super) sorted: &'a Sorted<'w>,
    pub(super) host: &'a Fqdn,
    pub(super) holder: &'a Claimant,
}

impl Claimed<'_, '_> {
    fn own(&self, slot: Slot) -> &[Sighting<'_>] {
        self.sorted.own.get(&(self.host.clone(), slot)).map(Vec::as_slice).unwrap_or_default()
    }

    fn foreign(&self, slot: Slot) -> &[Sighting<'_>] {
        self.sorted.foreign.get(&(self.host.clone(), slot)).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn plan(&self, planned: &mut Planned, deletions: &mut Vec<Change>, aliases: &mut Aliases) {
        for slot in Slot::ALL {
            match wanted(&self.holder.target, slot) {
                Wanted::Keep => {}
                Wanted::Nothing => {
                    // A record that replaces another type is written first: the old one is kept until the new one is there.
                    if self.own(slot).is_empty() {
                        continue;
                    }
                    if self.replacement_is_there(slot) {
                        deletions.push(delete(self.host, slot, Some(self.holder.id().clone()), self.own(slot)));
                    } else {
                        planned.unfinished = true;
                    }
                }
                Wanted::Value(value) => self.settle(slot, value, planned, aliases),
            }
        }
    }

    fn replacement_is_there(&self, slot: Slot) -> bool {
        match (&self.holder.target, slot) {
            (Target::Alias(_), Slot::A | Slot::Aaaa) => !self.own(Slot::Cname).is_empty(),
            (Target::Addresses { .. }, Slot::Cname) => {
                !self.own(Slot::A).is_empty() || !self.own(Slot::Aaaa).is_empty()
            }
            _ => true,
        }
    }

    /// Whether this Pi-hole can hold a record of this type.
    fn supports(&self, slot: Slot) -> bool {
        match slot {
            Slot::A => true,
            Slot::Aaaa => self.input.listing.capabilities.ipv6,
            Slot::Cname => self.input.listing.capabilities.aliases,
        }
    }

    fn settle(&self, slot: Slot, value: Value, planned: &mut Planned, aliases: &mut Aliases) {
        let capabilities = self.input.listing.capabilities;
        let refuse = |planned: &mut Planned, reason, message| {
            planned.refuse(Some(self.holder.id()), Some(self.host), reason, message);
        };
        if !self.supports(slot) {
            let message = format!("this Pi-hole can hold no record of this type: {value} for {}", self.host.undotted());
            return refuse(planned, Reason::Unsupported, message);
        }
        let owner = match self.input.ownership {
            Ownership::Marker { owner, .. } => Some(owner),
            Ownership::Ledger(_) => None,
        };
        let own = self.own(slot);
        let (right, stale): (Vec<&Sighting<'_>>, Vec<&Sighting<'_>>) = own
            .iter()
            .partition(|seen| seen.value.as_ref() == Some(&value) && (owner.is_none() || seen.line.is_marked()));
        let in_the_way = self.in_the_way(slot, own.is_empty());
        if !right.is_empty() && stale.is_empty() && in_the_way.is_empty() {
            return;
        }
        let mut remove: Vec<Line> = stale.iter().map(|seen| seen.line.clone()).collect();
        let mut old = stale.first().and_then(|seen| seen.value.clone());
        if let Some((_, first)) = in_the_way.first() {
            if !own.is_empty() && !capabilities.exact_delete {
                let host = self.host.undotted();
                let (reason, message) = if stale.is_empty() {
                    (
                        Reason::ForeignRecord,
                        format!("{host} also has a record that is not ours; clients may get either"),
                    )
                } else {
                    let message = format!("{host} also has a record that is not ours; changing ours would delete both");
                    (Reason::SharedLine, message)
                };
                return refuse(planned, reason, message);
            }
            match self.conflict(slot, &value, &in_the_way, own.is_empty()) {
                None => {
                    old = old.or_else(|| first.value.clone());
                    remove.extend(in_the_way.iter().map(|(_, seen)| seen.line.clone()));
                }
                Some((reason, message)) => {
                    refuse(planned, reason, message);
                    // Ours is there already, and is kept beside the other.
                    if own.is_empty() || stale.is_empty() {
                        return;
                    }
                }
            }
        }
        let line = match &value {
            Value::Address(ip) => Line::address(*ip, self.host, owner),
            Value::Name(name) => {
                if aliases.lead(name, self.host) {
                    // A resolver that finds one does not start.
                    let (host, name) = (self.host.undotted(), name.undotted());
                    let message = format!("{host} cannot be an alias of {name}, which leads back to {host}");
                    return refuse(planned, Reason::AliasLoop, message);
                }
                aliases.add(self.host, name);
                Line::alias(self.host, name, owner)
            }
        };
        // Where lines carry no marker, a line of the same content becomes ours by the ledger alone.
        let adopted = remove.contains(&line) && (capabilities.exact_delete || remove.len() == 1);
        remove.retain(|old| !adopted || *old != line);
        planned.changes.push(Change {
            host: self.host.clone(),
            slot,
            ingress: Some(self.holder.id().clone()),
            old,
            new: Some(value),
            add: (right.is_empty() && !adopted).then_some(line),
            remove,
        });
    }

    /// The foreign lines that are in the way of ours of one type. A name with a foreign A has a foreign owner: it gets no AAAA of ours either.
    fn in_the_way(&self, slot: Slot, free: bool) -> Vec<(Slot, &Sighting<'_>)> {
        let overwritten = |seen: &Sighting<'_>| {
            self.input.policy.conflict == ConflictPolicy::Overwrite
                && seen.alone
                && !seen.line.is_marked()
                && matches!(wanted(&self.holder.target, Slot::A), Wanted::Value(_))
        };
        let theirs = |other: Slot, seen: &Sighting<'_>| {
            let name_is_theirs = slot == Slot::Aaaa && other == Slot::A && free && self.own(Slot::A).is_empty();
            conflicts(slot, other) || (name_is_theirs && !overwritten(seen))
        };
        Slot::ALL
            .iter()
            .flat_map(|other| self.foreign(*other).iter().map(|seen| (*other, seen)))
            .filter(|(other, seen)| theirs(*other, seen))
            .collect()
    }

    /// Why foreign records for this host stay, if they do.
    fn conflict(
        &self,
        slot: Slot,
        value: &Value,
        lines: &[(Slot, &Sighting<'_>)],
        free: bool,
    ) -> Option<(Reason, String)> {
        let host = self.host.undotted();
        if let Some((_, seen)) = lines.iter().find(|(_, seen)| seen.line.is_marked()) {
            let owner = seen.line.comment().unwrap_or_default().trim_start_matches(MARKER);
            let owner: String = owner.chars().take(96).collect();
            return Some((
                Reason::OtherOwner,
                format!("{host} was registered by another cluster, with the owner id {owner:?}"),
            ));
        }
        match self.input.policy.conflict {
            ConflictPolicy::Skip if free => {
                let same = lines.iter().any(|(_, seen)| seen.value.as_ref() == Some(value));
                let same = if same { ", with the same address" } else { "" };
                Some((
                    Reason::ForeignRecord,
                    format!("{host} already has a record that is not ours{same}; it is left alone"),
                ))
            }
            ConflictPolicy::Skip => Some((
                Reason::ForeignRecord,
                format!(
                    "{host} also has a record that is not ours, beside the one registered for this Ingress. Clients may get either: delete one of the two on the Pi-hole, or set CONFLICT_POLICY=overwrite"
                ),
            )),
            ConflictPolicy::Overwrite if lines.iter().any(|(other, seen)| !seen.alone || *other != slot) => Some((
                Reason::SharedLine,
                format!("{host} is in a line with other names, or of another type, which is left alone"),
            )),
            ConflictPolicy::Overwrite => None,
        }
    }
}

/// Whether a foreign record of one type is in the way of ours of another.
fn conflicts(ours: Slot, theirs: Slot) -> bool {
    ours == theirs || ours == Slot::Cname || theirs == Slot::Cname
}
