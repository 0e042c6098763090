//! Time to live, limited to what RFC 2181 allows: 0 to 2147483647 seconds.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A number that is not a TTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("TTL {0} is out of range; use 0 to 2147483647 seconds")]
pub struct TtlError(pub i64);

/// Seconds an answer may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "i64")]
pub struct Ttl(u32);

impl Ttl {
    /// The largest TTL.
    pub const MAX: Ttl = Ttl(2_147_483_647);

    /// The TTL of that many seconds.
    pub fn new(seconds: u32) -> Result<Self, TtlError> {
        if seconds <= Self::MAX.0 { Ok(Self(seconds)) } else { Err(TtlError(i64::from(seconds))) }
    }

    /// The TTL in seconds.
    pub fn seconds(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for Ttl {
    type Error = TtlError;

    fn try_from(seconds: u32) -> Result<Self, Self::Error> {
        Self::new(seconds)
    }
}

impl TryFrom<i64> for Ttl {
    type Error = TtlError;

    fn try_from(seconds: i64) -> Result<Self, Self::Error> {
        u32::try_from(seconds).map_err(|_| TtlError(seconds)).and_then(Self::new)
    }
}

impl From<Ttl> for u32 {
    fn from(ttl: Ttl) -> Self {
        ttl.0
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_holds_the_range_of_rfc_2181_and_nothing_more() {
        assert_eq!(Ttl::new(0).unwrap().seconds(), 0);
        assert_eq!(Ttl::try_from(2_147_483_647_i64).unwrap(), Ttl::MAX);
        assert_eq!(Ttl::new(2_147_483_648), Err(TtlError(2_147_483_648)));
        assert_eq!(Ttl::try_from(-1_i64), Err(TtlError(-1)));
        assert_eq!(Ttl::try_from(i64::MAX), Err(TtlError(i64::MAX)));
    }

    #[test]
    fn a_ttl_is_a_number_in_json() {
        assert_eq!(serde_json::to_string(&Ttl::new(300).unwrap()).unwrap(), "300");
        assert!(serde_json::from_str::<Ttl>("-1").is_err());
        assert_eq!(serde_json::from_str::<Ttl>("60").unwrap(), Ttl::new(60).unwrap());
    }
}
