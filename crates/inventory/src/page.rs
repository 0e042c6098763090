//! Pages by key: a page starts after a place in the order, so changes between two pages make no view appear twice or be skipped.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use data_encoding::BASE64URL_NOPAD;
use signpost_dns::RecordType;
use thiserror::Error;

use crate::filter::Filter;
use crate::sorted::Sorted;
use crate::view::View;

/// Most views in one page.
pub const MAX_PAGE: usize = 1_000;
/// A longer token is not one of ours.
const MAX_TOKEN: usize = 4 * 1024;

/// Views in order.
#[derive(Clone, Debug)]
pub struct Page {
    /// The views.
    pub views: Vec<Arc<View>>,
    /// Where the next page starts; `None` when this is the last one.
    pub next: Option<Cursor>,
    /// How many views the filter keeps on all pages.
    pub total: usize,
}

/// The token is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the page token is not valid; use the token of the last page, or none to start again")]
pub struct BadCursor;

/// A place in the order. As text it is a token for readers to give back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    name: Box<str>,
    rtype: Option<RecordType>,
    system: Box<str>,
    key: Box<str>,
    ordinal: u32,
}

impl Cursor {
    /// After this view.
    pub fn after(view: &View) -> Self {
        Self {
            name: view.name().undotted().into(),
            rtype: view.rtype(),
            system: view.owner().system.into(),
            key: view.owner().key().into(),
            ordinal: view.ordinal.into(),
        }
    }

    /// Whether the view is at or before the cursor.
    fn covers(&self, view: &View) -> bool {
        let place =
            (view.name().undotted(), view.rtype(), view.owner().system, view.owner().key(), view.ordinal.into());
        place <= (&*self.name, self.rtype, &*self.system, &*self.key, self.ordinal)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, rtype, system, key, ordinal } = self;
        let rtype = rtype.as_ref().map_or("", RecordType::as_str);
        let plain = format!("1\n{name}\n{rtype}\n{system}\n{key}\n{ordinal}");
        f.write_str(&BASE64URL_NOPAD.encode(plain.as_bytes()))
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(token: &str) -> Result<Self, BadCursor> {
        if token.len() > MAX_TOKEN {
            return Err(BadCursor);
        }
        let plain = BASE64URL_NOPAD.decode(token.as_bytes()).map_err(|_| BadCursor)?;
        let plain = String::from_utf8(plain).map_err(|_| BadCursor)?;
        let fields: Vec<&str> = plain.split('\n').collect();
        let ["1", name, rtype, system, key, ordinal] = fields[..] else { return Err(BadCursor) };
        let rtype = if rtype.is_empty() { None } else { Some(rtype.parse().map_err(|_| BadCursor)?) };
        let ordinal = ordinal.parse().map_err(|_| BadCursor)?;
        Ok(Self { name: name.into(), rtype, system: system.into(), key: key.into(), ordinal })
    }
}

/// The views after a cursor that the filter keeps.
pub(crate) fn page(views: &Sorted, filter: &Filter, after: Option<&Cursor>, limit: usize) -> Page {
    let limit = limit.clamp(1, MAX_PAGE);
    let (mut page, mut counted, mut more): (Vec<Arc<View>>, usize, bool) = (Vec::new(), 0, false);
    let covered = |view: &View| after.is_some_and(|cursor| cursor.covers(view));
    let first = views.chunks().partition_point(|chunk| chunk.last().is_some_and(|view| covered(view)));
    // Without a filter nothing has to be counted.
    let keeps_all = filter.keeps_all();
    for (number, chunk) in views.chunks().iter().enumerate().skip(if keeps_all { first } else { 0 }) {
        if more && keeps_all {
            break;
        }
        let kept = filter.rows(chunk);
        counted += kept.count();
        if more || number < first {
            continue;
        }
        let from = if number == first { chunk.row_after(covered) } else { 0 };
        for view in kept.iter().filter(|row| *row >= from).filter_map(|row| chunk.view(row)) {
            if page.len() == limit {
                more = true;
                break;
            }
            page.push(view.clone());
        }
    }
    let total = if keeps_all { views.len() } else { counted };
    let next = page.last().filter(|_| more).map(|view| Cursor::after(view));
    Page { total, views: page, next }
}
