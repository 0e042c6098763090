//! The Signpost binary as a library, so that the generated reference and the tests use the same command line as the user.
//!
//! [`systems`] lists the systems, [`cli`] reads flags, [`config`] turns them into types, [`run`] wires the operator, [`demo`] runs
//! everything embedded.

pub mod cli;
pub mod config;
pub mod crds;
pub mod demo;
pub mod manifest;
pub mod rbac;
pub mod run;
pub mod systems;
