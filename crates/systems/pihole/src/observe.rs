//! Looks at one Pi-hole and at what Ingresses want of it. A Pi-hole that cannot be read is a value like any other.

use std::sync::Arc;

use signpost_engine::{Job, Touched};
use signpost_provider_pihole::{ErrorClass, Listing, OwnerId, PiholeError};
use tokio::time::Instant;

use crate::PiholeSystem;
use crate::index::{IngressKey, Snapshot};
use crate::instance::Instance;
use crate::ledger::{CLUSTER_ID, LedgerError};
use crate::ownership::Ownership;

/// What was seen.
#[derive(Debug)]
pub struct Observed {
    /// Of which Pi-hole.
    pub instance: Arc<Instance>,
    /// What Ingresses want.
    pub snapshot: Snapshot,
    /// What was touched.
    pub touched: Touched<IngressKey>,
    /// What the Pi-hole holds.
    pub sight: Sight,
}

/// What could be seen of the Pi-hole.
#[derive(Debug)]
pub enum Sight {
    /// Nothing touched can matter to it: it was not asked.
    Unneeded,
    /// It could not be read.
    Failed(Failure),
    /// Everything it holds, and what of it is ours.
    Seen {
        /// The lists.
        listing: Listing,
        /// How ours are told from others.
        ownership: Ownership,
    },
}

/// Something that did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was being done.
    pub operation: &'static str,
    /// What went wrong.
    pub cause: Cause,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// With the Pi-hole.
    #[error(transparent)]
    Pihole(#[from] PiholeError),
    /// With the ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// What was written did not stay: somebody else writes at the same time.
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
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Pihole(error) => error.class(),
            Self::Ledger(_) | Self::Unsettled { .. } => ErrorClass::Transient,
        }
    }

    /// Whether a Pi-hole that answers a probe shows that this is over.
    pub fn is_over_when_it_answers(&self) -> bool {
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

    /// The reason, from a closed list.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Pihole(error) => error.reason(),
            Self::Ledger(_) => "Ledger",
            Self::Unsettled { .. } => "Unsettled",
        }
    }
}

impl PiholeSystem {
    pub(crate) async fn look(&self, job: &Job<String, IngressKey>) -> Option<Observed> {
        let instance = Arc::clone(self.instances.get(&job.key)?);
        self.gather(&job.touched).await;
        let snapshot = self.index.snapshot(&instance.name);
        match &job.touched {
            Touched::All => tracing::debug!(ingress = "*", instance = %instance.name, "reconcile started"),
            Touched::Some(keys) => {
                for key in keys {
                    tracing::debug!(ingress = %key, instance = %instance.name, "reconcile started");
                }
            }
        }
        if job.touched == Touched::All {
            // Somebody else may have led, and written it, since it was read.
            instance.memory().ledger = None;
        }
        let sight = if self.matters(&job.touched, &snapshot) { self.read(&instance).await } else { Sight::Unneeded };
        Some(Observed { instance, snapshot, touched: job.touched.clone(), sight })
    }

    /// Waits while a burst of changes arrives, so that many become one write, but within limits. A single change does not wait. One of aliases
    /// does, since each write of those restarts the resolver.
    async fn gather(&self, touched: &Touched<IngressKey>) {
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

    /// Whether the Pi-hole has to be asked at all.
    fn matters(&self, touched: &Touched<IngressKey>, snapshot: &Snapshot) -> bool {
        let Touched::Some(keys) = touched else { return true };
        !snapshot.released.is_empty()
            || keys
                .iter()
                .filter_map(|key| self.index.claimant(key))
                .any(|claimant| !claimant.hosts.is_empty() || claimant.view.is_some() || claimant.finalizers.is_some())
    }

    /// Who writes the markers: the owner that was given, or an id made once for this cluster.
    async fn owner(&self) -> Result<OwnerId, LedgerError> {
        if !self.policy.cluster_id {
            return Ok(self.policy.owner.clone());
        }
        let find = || async {
            let id = self.ledgers.cluster_id().await?;
            let default = self.policy.owner.as_str();
            let scope = default.split_once('.').map(|(_, scope)| format!(".{scope}")).unwrap_or_default();
            OwnerId::parse(&format!("{id}{scope}"))
                .map_err(|error| LedgerError::Failed { name: CLUSTER_ID.to_owned(), what: error.to_string() })
        };
        self.owner.get_or_try_init(find).await.cloned()
    }

    async fn read(&self, instance: &Instance) -> Sight {
        let failed = |operation, cause: Cause| Sight::Failed(Failure { operation, cause });
        let listing = match instance.pihole.list().await {
            Ok(listing) => listing,
            Err(error) => return failed("list", error.into()),
        };
        let owner = match self.owner().await {
            Ok(owner) => owner,
            Err(error) => return failed("read cluster id", error.into()),
        };
        let ledger = self.ledger_of(instance).await;
        let ownership = if listing.capabilities.marker {
            // Only a Pi-hole that was upgraded has lines in a ledger. One that cannot be read costs no more than their markers.
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
