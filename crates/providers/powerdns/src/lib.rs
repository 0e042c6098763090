//! A client for the PowerDNS HTTP API v1.
