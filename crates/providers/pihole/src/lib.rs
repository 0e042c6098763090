//! A client for the Pi-hole local DNS records, in both dialects.
