//! Which views a reader wants.

use std::collections::BTreeSet;
use std::sync::Arc;

use memchr::memmem::Finder;
use signpost_dns::{Fqdn, RecordType};

use crate::view::{Source, Stage, SyncStatus, View};

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
    /// What the resolvers answered.
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
        let Self {
            search,
            name,
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
        let provenance = &view.provenance;
        let origin = &provenance.origin;
        let text = |wanted: &Option<Box<str>>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        let listed = |wanted: &Option<Box<str>>, all: &[Arc<str>]| {
            wanted.as_deref().is_none_or(|w| all.iter().any(|a| **a == *w))
        };
        status.is_none_or(|status| status == view.status)
            && stage.is_none_or(|stage| stage == view.stage)
            && rtype.is_none_or(|rtype| view.rtype == Some(rtype))
            && source.is_none_or(|source| source == provenance.source)
            && text(system, view.owner.system)
            && text(namespace, &origin.namespace)
            && text(origin_kind, &origin.kind)
            && text(origin_name, &origin.name)
            && listed(group, &provenance.groups)
            && listed(portal, &provenance.portals)
            && name.as_ref().is_none_or(|name| *name == view.name)
            && readable.as_ref().is_none_or(|readable| readable.contains(&origin.namespace))
            && label.as_ref().is_none_or(|(key, value)| provenance.labels.get(&**key).is_some_and(|v| **v == **value))
            && search.as_ref().is_none_or(|search| search.finds(&view.name))
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

    fn finds(&self, name: &Fqdn) -> bool {
        if let Some(text) = &self.unicode {
            let name = name.unicode();
            return name.contains(&**text) || text.strip_suffix('.').is_some_and(|end| name.ends_with(end));
        }
        let name = name.undotted().as_bytes();
        self.finder.find(name).is_some()
            || self.finder.needle().strip_suffix(b".").is_some_and(|end| name.ends_with(end))
    }
}
