//! What is reported of objects of which there can be only one: which one is used, and why the others are not.

use std::time::Duration;

use jiff::Timestamp;
use signpost_engine::Identity;

use crate::index::facts::Id;

/// The place that one object has: in the cluster, or in a namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// The object that is used, or is the next one to be, and when it was created.
    pub(crate) first: Option<(Id, Timestamp)>,
    /// One that cannot be read and may be the one to use.
    pub(crate) unreadable: Option<String>,
    /// Whether the used one was deleted, so that nothing is used yet.
    pub(crate) vacant: Option<Vacant>,
}

/// The used object was deleted a moment ago, and may be created again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vacant {
    /// How long the others wait for that.
    pub(crate) after: Duration,
    /// What is left of that time.
    pub(crate) left: Duration,
}

impl Place {
    /// Why the used object is not known, where it is not.
    pub(crate) fn unknown(&self, kind: &str) -> Option<String> {
        if let Some(unreadable) = &self.unreadable {
            return Some(format!("{kind} {unreadable} cannot be read, so none is used"));
        }
        match (&self.first, self.vacant) {
            (None, _) => Some(format!("there is no {kind}")),
            (Some((next, _)), Some(Vacant { after, .. })) => Some(format!(
                "the {kind} that was used was deleted, and {kind} {} is used {after:?} after that unless another one is created",
                next.name
            )),
            (Some(_), None) => None,
        }
    }

    /// Why this object is not used, where it is not. The scope is empty, or ` for` something.
    pub(crate) fn surplus(&self, kind: &str, scope: &str, object: &Identity) -> Option<String> {
        if let Some(unreadable) = &self.unreadable {
            return Some(format!(
                "{kind} {unreadable} cannot be read, so none is used{scope}. Apply {unreadable} again in a valid form, or delete it"
            ));
        }
        let (first, created) = self.first.as_ref()?;
        match self.vacant {
            Some(Vacant { after, .. }) if *first == object.id => Some(format!(
                "the {kind} that was used{scope} was deleted. This one is used {after:?} after that, unless another one is created; until then, what is published is kept"
            )),
            Some(_) => Some(format!(
                "{kind} {} is the next one to be used{scope}; there can be only one. Delete one of the two",
                first.name
            )),
            None if *first == object.id => None,
            None => {
                let older = if (*created, first) < (object.created, &object.id) { "is older and " } else { "" };
                Some(format!(
                    "{kind} {} {older}is used{scope}; there can be only one. Delete one of the two",
                    first.name
                ))
            }
        }
    }
}
