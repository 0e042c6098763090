//! Where the aliases of a Pi-hole lead, ours and foreign ones: a loop among them is found before it is written. Pure.

use std::collections::BTreeMap;

use signpost_dns::Fqdn;
use signpost_provider_pihole::Listing;

use super::Ownership;

/// Aliases and their targets: those that are there and stay, and those that are planned so far.
#[derive(Debug, Default)]
pub(crate) struct Aliases(BTreeMap<Fqdn, Fqdn>);

impl Aliases {
    /// Those of a listing, without those of ours that are deleted.
    pub(crate) fn of(listing: &Listing, ownership: &Ownership, is_deleted: impl Fn(&Fqdn) -> bool) -> Self {
        let mut aliases = BTreeMap::new();
        for line in &listing.cnames {
            if let Some((alias, target)) = ownership.own_alias(line) {
                if !is_deleted(&alias) {
                    aliases.insert(alias, target);
                }
                continue;
            }
            let parts = line.alias_parts();
            if let Some(target) = parts.target.and_then(|target| Fqdn::parse(target).ok()) {
                let names = parts.aliases.iter().filter_map(|name| Fqdn::parse(name).ok());
                aliases.extend(names.map(|alias| (alias, target.clone())));
            }
        }
        Self(aliases)
    }

    /// Adds one, in the place of what the name was an alias of.
    pub(crate) fn add(&mut self, alias: &Fqdn, target: &Fqdn) {
        self.0.insert(alias.clone(), target.clone());
    }

    /// Whether they lead from one name to another.
    pub(crate) fn lead(&self, from: &Fqdn, to: &Fqdn) -> bool {
        // The existing aliases may be a loop already.
        std::iter::successors(Some(from), |name| self.0.get(*name)).take(self.0.len() + 1).any(|name| name == to)
    }
}
