//! A Kubernetes API and an authoritative name server in one process.
