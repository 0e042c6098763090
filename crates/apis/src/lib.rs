//! Kubernetes types: ours with CEL and printer columns, and slim foreign ones.

pub mod ingress;
pub mod powerdns;
