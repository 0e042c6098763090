//! Rights that the API server denies: on `/readyz` with what to do about it, and in the log once, until an answer shows that they are there.
//!
//! A right is a verb on a resource, never on an object: there are as many as rules in the operator's role.

use std::fmt;

use crate::{
    health::{Check, Health},
    hub::Need,
    write::WriteError,
};

/// A verb on a resource.
#[derive(Clone, Debug)]
pub(crate) struct Right {
    pub(crate) verb: &'static str,
    /// `plural.group`.
    pub(crate) resource: String,
    /// Empty for the objects themselves.
    pub(crate) subresource: &'static str,
    /// Whether the operator can do without it.
    pub(crate) need: Need,
}

impl Right {
    /// How it reads on `/readyz` when it is missing.
    pub(crate) fn missing(&self, message: String) -> Check {
        let Self { verb, resource, subresource, need } = self;
        let flag = if subresource.is_empty() { String::new() } else { format!(" --subresource={subresource}") };
        let what = self.what();
        let fix = format!(
            "add the verb {verb:?} for {what} to the ClusterRole of the operator; check with: kubectl auth can-i {verb} {resource}{flag}"
        );
        match need {
            Need::Optional => Check::degraded(format!("{message}; {fix}")),
            Need::Required => Check::failing_with_fix(message, fix),
        }
    }

    fn what(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "right to {} {}", self.verb, self.what())
    }
}

/// `plural.group`, or the bare plural in the core group.
pub(crate) fn resource_name(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

/// What is known about the rights of this replica.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    health: Health,
}

impl Rights {
    pub(crate) fn new(health: Health) -> Self {
        Self { health }
    }

    /// Takes note of the answer to a request that needs `right`.
    pub(crate) fn heard<T>(&self, right: &Right, answer: &Result<T, WriteError>) {
        match answer {
            // Whoever gets as far as the object was let through.
            Ok(_) | Err(WriteError::Gone | WriteError::Conflict | WriteError::Invalid(_)) => {
                if self.health.clear(&right.to_string()).is_some() {
                    tracing::info!(verb = right.verb, resource = right.what(), "a right that was missing is there");
                }
            }
            Err(WriteError::Forbidden(message)) => self.denied(right, message),
            Err(WriteError::Throttled(_) | WriteError::Transient(_)) => {}
        }
    }

    fn denied(&self, right: &Right, message: &str) {
        // Other things are forbidden too, and are about one object and not about the operator: what a webhook or a quota does not allow, or
        // a namespace that is being deleted.
        if !message.contains(&format!("cannot {} resource", right.verb)) {
            return;
        }
        if self.health.set(right.to_string(), right.missing(message.to_owned())).is_none() {
            tracing::warn!(verb = right.verb, resource = right.what(), message, "a right is missing");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn right(need: Need) -> Right {
        Right { verb: "patch", resource: resource_name("zones", "example.org"), subresource: "status", need }
    }

    fn denied(verb: &str) -> Result<(), WriteError> {
        let message = format!(
            r#"zones.example.org "a" is forbidden: User "u" cannot {verb} resource "zones/status" in API group "example.org""#
        );
        Err(WriteError::Forbidden(message))
    }

    #[test]
    fn a_missing_right_is_named_with_what_to_do_until_an_answer_shows_that_it_is_there() {
        for answer in
            [Ok(()), Err(WriteError::Gone), Err(WriteError::Conflict), Err(WriteError::Invalid(String::new()))]
        {
            let health = Health::new(Metrics::new());
            let rights = Rights::new(health.clone());
            rights.heard(&right(Need::Required), &denied("patch"));
            let checks = health.checks();
            let Check::Failing { message, fix: Some(fix) } = &checks["right to patch zones.example.org/status"] else {
                panic!("{checks:?}")
            };
            assert!(message.contains(r#"User "u" cannot patch"#), "{message}");
            assert!(fix.contains("kubectl auth can-i patch zones.example.org --subresource=status"), "{fix}");
            rights.heard(&right(Need::Required), &Err::<(), _>(WriteError::Transient(String::new())));
            assert!(!health.is_ready(), "no answer says nothing");
            rights.heard(&right(Need::Required), &answer);
            assert_eq!(health.checks().len(), 0, "{answer:?}");
        }
    }

    #[test]
    fn a_right_that_one_can_do_without_leaves_the_replica_ready() {
        let health = Health::new(Metrics::new());
        Rights::new(health.clone()).heard(&right(Need::Optional), &denied("patch"));
        let checks = health.checks();
        let Check::Degraded { message } = &checks["right to patch zones.example.org/status"] else {
            panic!("{checks:?}")
        };
        assert!(message.contains("kubectl auth can-i"), "{message}");
    }

    #[test]
    fn what_is_forbidden_for_one_object_is_no_missing_right() {
        let health = Health::new(Metrics::new());
        let rights = Rights::new(health.clone());
        for message in [
            r#"admission webhook "policy.example.org" denied the request: no"#,
            r#"configmaps "a" is forbidden: unable to create new content in namespace x because it is being terminated"#,
            r#"configmaps "a" is forbidden: exceeded quota: few"#,
            "Unauthorized",
        ] {
            rights.heard(&right(Need::Required), &Err::<(), _>(WriteError::Forbidden(message.to_owned())));
        }
        rights.heard(&right(Need::Required), &denied("create"));
        assert_eq!(health.checks().len(), 0, "{:?}", health.checks());
    }
}
