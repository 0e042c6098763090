//! Lists that are complete or an error: nothing half-read may look like "it does not exist".
//!
//! Up to 1.15 lists of sites and resources take `limit` and `offset`, later `pageSize` and `page`. No version names itself, and each accepts or
//! ignores the other's parameters in its own way. So the pagination that is returned decides which kind the server has.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use signpost_provider_http::Method;

use crate::error::PangolinError;
use crate::http::{Call, Http, Permission};

/// Rows per page: one page of a thousand is by far the cheapest way to read them all.
const PAGE: usize = 1000;
/// Most pages of one list.
const MAX_PAGES: usize = 100;
/// Walks per list, for one whose rows change meanwhile.
const WALKS: usize = 4;

/// One list of the API.
#[derive(Clone, Debug)]
pub(crate) struct List {
    /// The key of its rows.
    pub(crate) name: &'static str,
    /// The key of a row's id.
    pub(crate) id: &'static str,
    pub(crate) path: Vec<String>,
    pub(crate) permission: Permission,
}

/// Which paging a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paging {
    Pages,
    Limits,
}

/// How a walk over a list ended.
enum Walk {
    Complete(Vec<Value>),
    /// The server has the other kind of paging.
    Other,
    /// Rows appeared or vanished meanwhile.
    Moved {
        seen: usize,
        total: u64,
    },
}

impl Http {
    /// Every row of a list that has `limit` and `offset` in all versions. Its total cannot be trusted; its last page is a short one.
    pub(crate) async fn slices(&self, list: &List) -> Result<Vec<Value>, PangolinError> {
        match self.walk(list, Paging::Limits).await? {
            Walk::Complete(rows) => Ok(rows),
            Walk::Moved { .. } => Err(incomplete(list, "it changed while it was read")),
            Walk::Other => Err(incomplete(list, "its paging is not known")),
        }
    }

    /// Every row of a list of sites or resources. `limits` remembers which paging the server has.
    pub(crate) async fn pages(&self, list: &List, limits: &AtomicBool) -> Result<Vec<Value>, PangolinError> {
        let mut why = String::new();
        for _ in 0..WALKS {
            let paging = if limits.load(Ordering::Acquire) { Paging::Limits } else { Paging::Pages };
            match self.walk(list, paging).await {
                Ok(Walk::Complete(rows)) => return Ok(rows),
                Ok(Walk::Moved { seen, total }) => why = format!("{seen} of {total} were read"),
                // The strict versions name the parameters of the other kind.
                Ok(Walk::Other) | Err(PangolinError::Unsupported { .. }) => {
                    limits.store(paging == Paging::Pages, Ordering::Release);
                    "its paging changes".clone_into(&mut why);
                }
                Err(error) => return Err(error),
            }
        }
        Err(incomplete(list, why))
    }

    async fn walk(&self, list: &List, paging: Paging) -> Result<Walk, PangolinError> {
        let mut seen = BTreeSet::new();
        let mut rows = Vec::new();
        let mut first = None;
        for page in 1..=MAX_PAGES {
            let offset = rows.len();
            let call = Call::new(Method::GET, &list.path, list.permission);
            let call = match paging {
                Paging::Pages => call.query("pageSize", PAGE).query("page", page),
                Paging::Limits => call.query("limit", PAGE).query("offset", offset),
            };
            let mut data = self.send(&call).await?;
            let (size, at) = match paging {
                Paging::Pages => (&data["pagination"]["pageSize"], (&data["pagination"]["page"], page)),
                Paging::Limits => (&data["pagination"]["limit"], (&data["pagination"]["offset"], offset)),
            };
            if size.is_null() && !data["pagination"].is_null() {
                return Ok(Walk::Other);
            }
            // A value that the server does not like is replaced without a word.
            if !(is(size, PAGE) && is(at.0, at.1)) {
                return Err(incomplete(list, "another page was returned than asked for"));
            }
            let total = number(&data["pagination"]["total"]);
            // With offsets, a row that vanishes shifts the next page over one that is not read. The total of some versions counts more than
            // the list has, so only its change is looked at.
            if let (Some(total), true) = (total, *first.get_or_insert(total) != total) {
                return Ok(Walk::Moved { seen: rows.len(), total });
            }
            let Value::Array(found) = data[list.name].take() else {
                return Err(PangolinError::Protocol { what: format!("a list without {}", list.name) });
            };
            let (full, before) = (found.len() >= PAGE, rows.len());
            for row in found {
                if row[list.id].is_null() {
                    return Err(PangolinError::Protocol { what: format!("a row without {}", list.id) });
                }
                if seen.insert(row[list.id].to_string()) {
                    rows.push(row);
                }
            }
            // A total that is reached saves the request for a page without rows.
            let reached = paging == Paging::Pages && total == Some(rows.len() as u64);
            if !full || reached {
                return Ok(match total {
                    Some(total) if paging == Paging::Pages && total != rows.len() as u64 => {
                        Walk::Moved { seen: rows.len(), total }
                    }
                    _ => Walk::Complete(rows),
                });
            }
            if rows.len() == before {
                return Err(incomplete(list, "a page is repeated"));
            }
        }
        Err(incomplete(list, format!("it has more than {MAX_PAGES} pages")))
    }
}

fn is(value: &Value, expected: usize) -> bool {
    number(value) == Some(expected as u64)
}

/// A number. Old versions return those of the request as they came, as text.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn incomplete(list: &List, what: impl Into<String>) -> PangolinError {
    PangolinError::Incomplete { list: list.name, what: what.into() }
}
