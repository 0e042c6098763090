//! What differs between the versions of the server. Every method is one row of the table of versions that were run.

/// The versions that it plays. 1.9 and 1.10 were not run: they are 1.11 without what its release notes add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 1.9
    V1_9,
    /// 1.10
    V1_10,
    /// 1.11.0
    V1_11,
    /// 1.13.0
    V1_13,
    /// 1.15.0
    V1_15,
    /// 1.16.0
    V1_16,
    /// 1.18.2
    V1_18,
    /// 1.19.0
    V1_19,
    /// 1.20.0
    V1_20,
    /// 1.21.1
    V1_21,
    /// 1.22.0
    V1_22,
}

impl Version {
    /// All of them, oldest first.
    pub const ALL: [Self; 11] = [
        Self::V1_9,
        Self::V1_10,
        Self::V1_11,
        Self::V1_13,
        Self::V1_15,
        Self::V1_16,
        Self::V1_18,
        Self::V1_19,
        Self::V1_20,
        Self::V1_21,
        Self::V1_22,
    ];
    /// Those whose behaviour was observed, oldest first.
    pub fn observed() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|version| *version >= Self::V1_11)
    }

    /// Lists of sites and resources take `pageSize` and `page`, not `limit` and `offset`.
    pub fn pages(self) -> bool {
        self >= Self::V1_16
    }

    /// An unknown name in the query of a list is a 400, not ignored.
    pub fn strict_lists(self) -> bool {
        self >= Self::V1_20
    }

    /// `query` filters resources; before, it returns all of them.
    pub fn query_works(self) -> bool {
        self >= Self::V1_16
    }

    /// The total of a list of domains counts those of the organisation only.
    pub fn domains_total_is_right(self) -> bool {
        self >= Self::V1_18
    }

    /// A resource is created with `mode`; the older pair `http` and `protocol` is accepted by all.
    pub fn resource_mode(self) -> bool {
        self >= Self::V1_19
    }

    /// `sso` is null in the answer to a create, and 0 or 1 in a list.
    pub fn sso_moved(self) -> bool {
        self >= Self::V1_20
    }

    /// A second HTTP resource with the same host is accepted.
    pub fn duplicate_hosts(self) -> bool {
        self >= Self::V1_22
    }

    /// An update to a host that is in use is refused; older versions do not look.
    pub fn checks_update(self) -> bool {
        self >= Self::V1_19
    }

    /// The host of the dashboard cannot be used.
    pub fn guards_dashboard(self) -> bool {
        self >= Self::V1_18
    }

    /// A wildcard host is a licence matter (403), not a syntax error (400).
    pub fn knows_wildcards(self) -> bool {
        self >= Self::V1_18
    }

    /// A target without a priority is refused.
    pub fn wants_priority(self) -> bool {
        self == Self::V1_11
    }

    /// A target may have a path and a match type.
    pub fn target_paths(self) -> bool {
        self >= Self::V1_10
    }

    /// A target may have a priority, a rewrite and a health check.
    pub fn target_checks(self) -> bool {
        self >= Self::V1_11
    }

    /// There are blueprints.
    pub fn blueprints(self) -> bool {
        self >= Self::V1_10
    }

    /// A target may have a `mode`.
    pub fn target_mode(self) -> bool {
        self >= Self::V1_20
    }

    /// `hcEnabled` needs `hcHostname`.
    pub fn wants_hc_hostname(self) -> bool {
        self >= Self::V1_20
    }

    /// A health check starts as `unhealthy`, and stays so when an update leaves `hcEnabled` out.
    pub fn health_freezes(self) -> bool {
        self >= Self::V1_18
    }

    /// Each `/resource…` path has the alias `/public-resource…`.
    pub fn aliases(self) -> bool {
        self >= Self::V1_21
    }

    /// A blueprint may use the key `public-resources`; before, it is ignored.
    pub fn public_resources(self) -> bool {
        self >= Self::V1_13
    }
}
