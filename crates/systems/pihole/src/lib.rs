//! Ingress to Pi-hole local DNS records.
