//! The shared parts of the test binaries. Each shape of the CRD has a binary of its own, since a cluster has one shape.
#![allow(dead_code, unreachable_pub)] // Each binary uses a part of it.

pub(crate) mod bed;
pub(crate) mod crds;
pub(crate) mod logs;
pub(crate) mod operator;
pub(crate) mod pangolins;
