//! Records that are a few numbers and a run of octets: TLSA, SSHFP, DS. Octets are printed as lower-case hexadecimal
//! digits in one run; on input, case and blanks are free.

use std::fmt;

use data_encoding::HEXLOWER;

use super::error::RdataError;
use super::scan::Scanner;

/// A certificate association (RFC 6698).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tlsa {
    /// Which certificate of the chain is meant.
    pub usage: u8,
    /// The whole certificate or its public key.
    pub selector: u8,
    /// As it is, or a digest.
    pub matching: u8,
    /// The certificate, key or digest.
    pub data: Box<[u8]>,
}

impl Tlsa {
    pub(super) fn scan(scan: &mut Scanner<'_>) -> Result<Self, RdataError> {
        Ok(Self {
            usage: scan.u8("usage")?,
            selector: scan.u8("selector")?,
            matching: scan.u8("matching type")?,
            data: scan.hex_to_end("data")?,
        })
    }
}

impl fmt::Display for Tlsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { usage, selector, matching, data } = self;
        write!(f, "{usage} {selector} {matching} {}", HEXLOWER.encode_display(data))
    }
}

/// An SSH key fingerprint (RFC 4255).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sshfp {
    /// The key's algorithm.
    pub algorithm: u8,
    /// The digest's algorithm.
    pub digest_type: u8,
    /// The digest of the key.
    pub fingerprint: Box<[u8]>,
}

impl Sshfp {
    pub(super) fn scan(scan: &mut Scanner<'_>) -> Result<Self, RdataError> {
        Ok(Self {
            algorithm: scan.u8("algorithm")?,
            digest_type: scan.u8("fingerprint type")?,
            fingerprint: scan.hex_to_end("fingerprint")?,
        })
    }
}

impl fmt::Display for Sshfp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { algorithm, digest_type, fingerprint } = self;
        write!(f, "{algorithm} {digest_type} {}", HEXLOWER.encode_display(fingerprint))
    }
}

/// A delegation signer (RFC 4034).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ds {
    /// The tag of the key signed for.
    pub key_tag: u16,
    /// The key's algorithm.
    pub algorithm: u8,
    /// The digest's algorithm.
    pub digest_type: u8,
    /// The digest of the key.
    pub digest: Box<[u8]>,
}

impl Ds {
    pub(super) fn scan(scan: &mut Scanner<'_>) -> Result<Self, RdataError> {
        Ok(Self {
            key_tag: scan.u16("key tag")?,
            algorithm: scan.u8("algorithm")?,
            digest_type: scan.u8("digest type")?,
            digest: scan.hex_to_end("digest")?,
        })
    }
}

impl fmt::Display for Ds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key_tag, algorithm, digest_type, digest } = self;
        write!(f, "{key_tag} {algorithm} {digest_type} {}", HEXLOWER.encode_display(digest))
    }
}
