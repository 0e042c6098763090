//! Zone, ClusterZone, RRset and ClusterRRset to a PowerDNS server.
