//! Messages of `sreportal.v1` as JSON, as far as they are read. A field that is missing has its default value, as in proto3.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// The first elements of a list, and how many more there are. An element takes far more memory than `{}` does in an answer, so a list is cut while
/// it is read.
#[derive(Debug)]
pub(crate) struct First<T, const MOST: usize> {
    pub(crate) items: Vec<T>,
    pub(crate) more: usize,
}

impl<T, const MOST: usize> Default for First<T, MOST> {
    fn default() -> Self {
        Self { items: Vec::new(), more: 0 }
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for First<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Elements(PhantomData))
    }
}

struct Elements<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Elements<T, MOST> {
    type Value = First<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut first = First::default();
        while first.items.len() < MOST {
            match list.next_element()? {
                Some(item) => first.items.push(item),
                None => return Ok(first),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            first.more += 1;
        }
        Ok(first)
    }
}

/// Most portals of an answer, names of a page, and groups and values of a name that are read.
const PORTALS: usize = 1_000;
const NAMES: usize = 20_000;
const GROUPS: usize = 16;
const VALUES: usize = 32;

/// `PortalService.ListPortals`.
pub(crate) struct ListPortals;

impl ListPortals {
    pub(crate) const METHOD: &str = "sreportal.v1.PortalService/ListPortals";
}

/// A question without a filter.
#[derive(Debug, Serialize)]
pub(crate) struct NoFilter {}

/// The portals of a cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Portals {
    pub(crate) portals: First<Portal, PORTALS>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Portal {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) main: bool,
    pub(crate) is_remote: bool,
    pub(crate) features: Option<Features>,
}

/// Parts that are switched off are not sent: false is the default value.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(clippy::struct_excessive_bools)] // each is a field of the message
pub(crate) struct Features {
    pub(crate) dns: bool,
    pub(crate) releases: bool,
    pub(crate) network_policy: bool,
    pub(crate) alerts: bool,
    pub(crate) status_page: bool,
    pub(crate) image_inventory: bool,
}

/// `DNSService.ListFQDNs`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListFqdns {
    pub(crate) portal: String,
    pub(crate) page_size: i32,
    pub(crate) page_token: String,
}

impl ListFqdns {
    pub(crate) const METHOD: &str = "sreportal.v1.DNSService/ListFQDNs";
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Page {
    pub(crate) fqdns: First<Fqdn, NAMES>,
    pub(crate) next_page_token: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Fqdn {
    pub(crate) name: String,
    pub(crate) source: String,
    pub(crate) groups: First<String, GROUPS>,
    pub(crate) description: String,
    pub(crate) record_type: String,
    pub(crate) targets: First<String, VALUES>,
    pub(crate) last_seen: Option<String>,
    pub(crate) origin_ref: Option<Origin>,
    pub(crate) sync_status: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Origin {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// An error of Connect.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Problem {
    pub(crate) code: String,
    pub(crate) message: String,
}
