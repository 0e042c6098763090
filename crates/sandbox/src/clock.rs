//! Where the sandbox gets its time and its identifiers from.
//!
//! Both come from [`crate::SandboxOptions`], so that a test that fixes the clock and the seed sees the same timestamps, uids and
//! generated names on every run.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// A source of wall-clock time.
#[derive(Clone)]
pub struct SandboxClock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl std::fmt::Debug for SandboxClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SandboxClock")
    }
}

impl Default for SandboxClock {
    fn default() -> Self {
        Self::system()
    }
}

impl SandboxClock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self::from_fn(Timestamp::now)
    }

    /// Any function, for example another component's clock.
    pub fn from_fn(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Starts at `start` and runs with tokio's clock, so that a paused runtime pauses the cluster too. Needs a runtime.
    pub fn tokio_from(start: Timestamp) -> Self {
        let origin = tokio::time::Instant::now();
        Self::from_fn(move || {
            start.saturating_add(SignedDuration::try_from(origin.elapsed()).unwrap_or_default()).unwrap_or(start)
        })
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

/// A time as Kubernetes writes it: whole seconds, `Z`.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// Seeded source of uids and name suffixes.
#[derive(Debug)]
pub(crate) struct Ids(StdRng);

impl Ids {
    pub(crate) fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// A version 4 UUID.
    pub(crate) fn uid(&mut self) -> String {
        let n: u128 = (u128::from(self.0.random::<u64>()) << 64) | u128::from(self.0.random::<u64>());
        let n = (n & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{n:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// Five characters of the alphabet that the server uses for `generateName`: no vowels, no look-alikes.
    pub(crate) fn suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| char::from(ALPHABET[self.0.random_range(0..ALPHABET.len())])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_ids() {
        let (mut a, mut b) = (Ids::new(7), Ids::new(7));
        assert_eq!(a.uid(), b.uid());
        assert_eq!(a.suffix(), b.suffix());
        assert_ne!(a.uid(), a.uid());
    }

    #[test]
    fn a_uid_is_a_version_4_uuid() {
        let uid = Ids::new(1).uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
        assert!(matches!(uid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
    }
}
