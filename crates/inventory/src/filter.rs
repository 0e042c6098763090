//! Which views a reader wants.

use std::collections::BTreeSet;
use std::sync::Arc;

use memchr::memmem::Finder;
use signpost_dns::{Fqdn, RecordType};

use crate::chunk::{Chunk, Rows};
use crate::result::{Source, Stage, SyncStatus};
use crate::view::{Shared, View};

/// Keeps the views for which everything that is set holds.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Part of the name.
    pub search: Option<Search>,
    /// The name.
    pub name: Option<Fqdn>,
    /// The type.
    pub rtype: Option<RecordType>,
    /// How the name became known.
    pub source: Option<Source>,
    /// How far it has come.
    pub stage: Option<Stage>,
    /// The answer of the resolvers.
    pub status: Option<SyncStatus>,
    /// The system that projects it.
    pub system: Option<Box<str>>,
    /// One of its groups.
    pub group: Option<Box<str>>,
    /// One of its portals.
    pub portal: Option<Box<str>>,
    /// The kind of the object that it comes from.
    pub origin_kind: Option<Box<str>>,
    /// The name of that object.
    pub origin_name: Option<Box<str>>,
    /// The namespace of that object.
    pub namespace: Option<Box<str>>,
    /// A label and its value.
    pub label: Option<(Box<str>, Box<str>)>,
    /// The namespaces that the reader may read; all when not set.
    pub readable: Option<Arc<BTreeSet<Box<str>>>>,
}

impl Filter {
    /// Whether the view is kept.
    pub fn keeps(&self, view: &View) -> bool {
        self.keeps_shared(&view.shared)
            && self.status.is_none_or(|status| status == view.status())
            && self.stage.is_none_or(|stage| stage == view.stage())
            && self.rtype.is_none_or(|rtype| view.rtype() == Some(rtype))
            && self.name.as_ref().is_none_or(|name| name == view.name())
            && self.search.as_ref().is_none_or(|search| search.finds(view.name()))
    }

    /// The views of a chunk that are kept.
    pub(crate) fn rows(&self, chunk: &Chunk) -> Rows {
        let mut rows = if self.is_open() {
            Rows::first(chunk.len())
        } else {
            chunk.rows(|shared| self.keeps_shared(shared), self.status, self.stage, self.rtype)
        };
        if let Some(search) = self.search.as_ref().filter(|_| !rows.is_empty()) {
            rows = rows.and(search.rows(chunk));
        }
        if let Some(name) = &self.name {
            let first = chunk.row_after(|view| view.name() < name);
            let last = chunk.row_after(|view| view.name() <= name);
            let mut named = Rows::default();
            (first..last).for_each(|row| named.insert(row));
            rows = rows.and(named);
        }
        rows
    }

    /// Whether it keeps every view.
    pub(crate) fn keeps_all(&self) -> bool {
        self.search.is_none() && self.name.is_none() && self.is_open()
    }

    /// Whether it keeps everything but for the name.
    fn is_open(&self) -> bool {
        let Self {
            search: _,
            name: _,
            rtype,
            source,
            stage,
            status,
            system,
            group,
            portal,
            origin_kind,
            origin_name,
            namespace,
            label,
            readable,
        } = self;
        let texts = [system, group, portal, origin_kind, origin_name, namespace];
        (rtype.is_none() && source.is_none() && stage.is_none() && status.is_none())
            && texts.iter().all(|text| text.is_none())
            && label.is_none()
            && readable.is_none()
    }

    /// Whether a part that many views share is kept.
    fn keeps_shared(&self, shared: &Shared) -> bool {
        let provenance = &shared.provenance;
        let origin = &provenance.origin;
        let text = |wanted: &Option<Box<str>>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        let listed = |wanted: &Option<Box<str>>, all: &[Arc<str>]| {
            wanted.as_deref().is_none_or(|w| all.iter().any(|a| **a == *w))
        };
        let labelled =
            |(key, value): &(Box<str>, Box<str>)| provenance.labels.get(&**key).is_some_and(|v| **v == **value);
        self.source.is_none_or(|source| source == provenance.source)
            && text(&self.system, shared.owner.system)
            && text(&self.namespace, &origin.namespace)
            && text(&self.origin_kind, &origin.kind)
            && text(&self.origin_name, &origin.name)
            && listed(&self.group, &provenance.groups)
            && listed(&self.portal, &provenance.portals)
            && self.readable.as_ref().is_none_or(|readable| readable.contains(&origin.namespace))
            && self.label.as_ref().is_none_or(labelled)
    }
}

/// Part of a name, in any case, in Unicode or as A-labels.
#[derive(Clone, Debug)]
pub struct Search {
    finder: Finder<'static>,
    unicode: Option<Box<str>>,
}

impl Search {
    /// Searches for a text. A dot at its end means the end of the name.
    pub fn new(text: &str) -> Self {
        let lower = text.trim().to_lowercase();
        Self {
            finder: Finder::new(lower.as_bytes()).into_owned(),
            unicode: (!lower.is_ascii()).then(|| lower.into_boxed_str()),
        }
    }

    /// Whether a name has the text in it.
    fn finds(&self, name: &Fqdn) -> bool {
        if let Some(text) = &self.unicode {
            let name = name.unicode();
            return name.contains(&**text) || text.strip_suffix('.').is_some_and(|end| name.ends_with(end));
        }
        let name = name.undotted().as_bytes();
        self.finder.find(name).is_some()
            || self.finder.needle().strip_suffix(b".").is_some_and(|end| name.ends_with(end))
    }

    /// The views of a chunk whose name has the text in it.
    fn rows(&self, chunk: &Chunk) -> Rows {
        let needle = self.finder.needle();
        if needle.is_empty() {
            return Rows::first(chunk.len());
        }
        // No name has a line break, which separates names in a chunk.
        if needle.contains(&b'\n') {
            return Rows::default();
        }
        if self.unicode.is_none() {
            return chunk.search(&self.finder);
        }
        // Only a name with an A-label can be spelled otherwise.
        let mut rows = Rows::default();
        let encoded = chunk.search(&Finder::new("xn--"));
        let found = |row: &usize| chunk.view(*row).is_some_and(|view| self.finds(view.name()));
        encoded.iter().filter(found).for_each(|row| rows.insert(row));
        rows
    }
}
