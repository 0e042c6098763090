//! Who writes: leader election on a Lease, in client-go's protocol.

use std::time::Duration;

/// What this replica may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Watch and serve reads.
    Follower,
    /// Write as well.
    Leader,
}

/// Where the lease is and how it is kept.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// Name of the Lease.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// How long others wait after the last renewal they saw.
    pub duration: Duration,
    /// How long the holder tries to renew before it stops.
    pub renew_deadline: Duration,
    /// Time between tries.
    pub retry: Duration,
}

impl LeaseOptions {
    /// The usual times: 15, 10 and 2 seconds.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}
