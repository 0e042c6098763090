//! How long to wait after failures in a row. Jitter is added by the caller that has a source of randomness.

use std::time::Duration;

/// `first`, doubled this many times, and at most `longest`.
pub fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_never_overflow() {
        let (first, longest) = (Duration::from_secs(2), Duration::from_mins(1));
        let pauses = [0, 1, 4, 5, 31, 32, u32::MAX].map(|times| doubled(first, times, longest).as_secs());
        assert_eq!(pauses, [2, 4, 32, 60, 60, 60, 60]);
        assert_eq!(doubled(Duration::MAX, u32::MAX, Duration::MAX), Duration::MAX);
        assert_eq!(doubled(longest, 0, first), first);
    }
}
