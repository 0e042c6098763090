//! Reads one Pi-hole and what Ingresses want of it. A Pi-hole that cannot be read is a value like any other.

pub(crate) mod probe;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use signpost_engine::{Job, Touched};
use signpost_planning::Reason;
use signpost_provider_pihole::{ErrorClass, Listing, OwnerId, PiholeError};
use tokio::time::Instant;

use crate::PiholeSystem;
use crate::apply::{CLUSTER_ID, LedgerError};
use crate::index::{IngressId, Snapshot};
use crate::plan::{Ledger, Memory, Ownership, Uncertain, address_of};
use crate::settings::Policy;
use probe::Instance;

/// The input of a plan.
#[derive(Debug)]
pub struct Observed {
    /// Of which Pi-hole.
    pub(crate) instance: Arc<Instance>,
    /// The rules.
    pub(crate) policy: Arc<Policy>,
    /// The requests of Ingresses.
    pub(crate) snapshot: Snapshot,
    /// The touched Ingresses.
    pub(crate) touched: Touched<IngressId>,
    /// The lines in the Pi-hole.
    pub(crate) sight: Sight,
    /// Its memory.
    pub(crate) memory: Memory,
}

/// The state of the Pi-hole, as far as it could be read.
#[derive(Debug)]
pub(crate) enum Sight {
    /// Nothing touched can matter to it: it was not asked.
    Unneeded,
    /// It could not be read.
    Failed(Failure),
    /// All its lines, and how ours are recognised.
    Seen {
        /// The lists.
        listing: Listing,
        /// How our lines are recognised.
        ownership: Ownership,
    },
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The operation.
    pub(crate) operation: &'static str,
    /// The cause.
    pub(crate) cause: Cause,
}

/// The cause of a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cause {
    /// With the Pi-hole.
    #[error(transparent)]
    Pihole(#[from] PiholeError),
    /// With the ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Written lines did not stay: another writer is active at the same time.
    #[error("{missing} changes did not stay after {rounds} attempts; something else writes this Pi-hole's records")]
    Unsettled {
        /// How many.
        missing: usize,
        /// How often it was tried.
        rounds: u32,
    },
}

impl Cause {
    /// How to go on.
    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Pihole(error) => error.class(),
            Self::Ledger(_) | Self::Unsettled { .. } => ErrorClass::Transient,
        }
    }

    /// Whether a Pi-hole that answers a probe shows that this is over.
    pub(crate) fn is_over_when_it_answers(&self) -> bool {
        matches!(
            self,
            Self::Pihole(
                PiholeError::Unreachable { .. }
                    | PiholeError::Timeout
                    | PiholeError::Server { .. }
                    | PiholeError::Rejected { .. }
                    | PiholeError::NotAPihole { .. }
                    | PiholeError::WrongDialect { .. }
                    | PiholeError::Redirected { .. }
                    | PiholeError::Tls { .. }
            )
        )
    }

    /// The reason, from the closed list.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Pihole(error) => reason_of(error),
            Self::Ledger(_) => Reason::Ledger,
            Self::Unsettled { .. } => Reason::Unsettled,
        }
    }
}

/// The reason of an error of a Pi-hole. A test holds the names of all errors to the closed list.
pub(crate) fn reason_of(error: &PiholeError) -> Reason {
    error.reason().parse().unwrap_or(Reason::ProviderRejected)
}

impl PiholeSystem {
    pub(crate) async fn read_all(&self, job: &Job<String, IngressId>, mut memory: Memory) -> Option<Observed> {
        let instance = Arc::clone(self.instances.get(&job.key)?);
        self.gather(&job.touched).await;
        let snapshot = self.index.snapshot(&instance.name);
        match &job.touched {
            Touched::All => {
                tracing::debug!(ingress = "*", instance = %instance.name, "reconcile started");
                // Another replica may have led, and written it, since it was read.
                memory.ledger = None;
                memory.ledger_written = false;
            }
            Touched::Some(ids) => {
                for id in ids {
                    tracing::debug!(ingress = %id.path(), instance = %instance.name, "reconcile started");
                }
            }
        }
        let sight = if matters(&job.touched, &snapshot, self.policy.finalizer) {
            self.read(&instance, &mut memory).await
        } else {
            Sight::Unneeded
        };
        let (policy, touched) = (Arc::clone(&self.policy), job.touched.clone());
        Some(Observed { instance, policy, snapshot, touched, sight, memory })
    }

    /// Waits while a burst of changes arrives, so that many become one write, but within limits. A single change does not wait. A change of an alias
    /// does, since each write of aliases restarts the resolver.
    async fn gather(&self, touched: &Touched<IngressId>) {
        let begun = Instant::now();
        let limit = self.policy.gather_at_most.saturating_sub(self.policy.gather);
        loop {
            let [last, before] = self.index.changed().map(|at| at.elapsed());
            let burst = before < self.policy.gather || self.index.touches_aliases(touched);
            if !burst || last >= self.policy.gather || begun.elapsed() >= limit {
                return;
            }
            tokio::time::sleep(self.policy.gather.saturating_sub(last)).await;
        }
    }

    /// The owner id in the markers: the configured one, or an id made once for this cluster.
    async fn owner(&self) -> Result<OwnerId, LedgerError> {
        if !self.policy.cluster_id {
            return Ok(self.policy.owner.clone());
        }
        let find = || async {
            let id = self.ledgers.cluster_id().await?;
            let scope = self.policy.owner.as_str().split_once('.').map(|(_, scope)| format!(".{scope}"));
            OwnerId::parse(&format!("{id}{}", scope.unwrap_or_default()))
                .map_err(|error| LedgerError::Failed { name: CLUSTER_ID.to_owned(), what: error.to_string() })
        };
        self.owner.get_or_try_init(find).await.cloned()
    }

    async fn read(&self, instance: &Instance, memory: &mut Memory) -> Sight {
        let failed = |operation, cause: Cause| Sight::Failed(Failure { operation, cause });
        let listing = match instance.pihole.list().await {
            Ok(listing) => listing,
            Err(error) => return failed("list", error.into()),
        };
        let owner = match self.owner().await {
            Ok(owner) => owner,
            Err(error) => return failed("read cluster id", error.into()),
        };
        let ledger = match &memory.ledger {
            Some(known) => Ok(known.ledger.clone()),
            None => self.ledgers.load(&instance.name).await.map(|loaded| memory.ledger.insert(loaded).ledger.clone()),
        };
        if let Ok(ledger) = &ledger {
            memory.uncertain.get_or_insert_with(|| absent(ledger, &listing, self.clock.now()));
        }
        let ownership = if listing.capabilities.marker {
            // Only an upgraded Pi-hole has lines in a ledger. If the ledger cannot be read, only their markers are delayed.
            Ownership::Marker { owner, unmarked: ledger.unwrap_or_default() }
        } else {
            match ledger {
                Ok(ledger) => Ownership::Ledger(ledger),
                Err(error) => return failed("read ledger", error.into()),
            }
        };
        Sight::Seen { listing, ownership }
    }
}

/// The lines of the ledger that the Pi-hole does not have. The previous process may have sent them, and the result is unknown.
fn absent(ledger: &Ledger, listing: &Listing, now: Timestamp) -> Uncertain {
    let present: BTreeSet<_> = listing.hosts.iter().filter_map(address_of).collect();
    let mut uncertain = Uncertain::default();
    for (host, ip) in ledger.records().filter(|(host, ip)| !present.contains(&(*ip, (*host).clone()))) {
        uncertain.add(host, ip, now);
    }
    uncertain
}

/// Whether the Pi-hole has to be asked at all.
fn matters(touched: &Touched<IngressId>, snapshot: &Snapshot, use_finalizer: bool) -> bool {
    let Touched::Some(ids) = touched else { return true };
    let concerns = |id: &IngressId| {
        snapshot.claimant(id).is_some_and(|claimant| {
            let finalizer = claimant.has_finalizer() || claimant.wants_finalizer(use_finalizer);
            !claimant.hosts.is_empty() || claimant.view.is_some() || finalizer
        })
    };
    !snapshot.released.is_empty() || ids.iter().any(concerns)
}
