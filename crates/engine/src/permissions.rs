//! Missing permissions: reported on `/readyz` with a fix, and logged once, until an answer shows that they are granted.
//!
//! A permission is a verb on a resource, not on an object, so their number is that of the rules in the operator's role.

use std::fmt;

use crate::{
    health::{Check, Health},
    hub::Need,
    write::WriteError,
};

/// A verb on a resource.
#[derive(Clone, Debug)]
pub(crate) struct Permission {
    pub(crate) verb: &'static str,
    /// `plural.group`.
    pub(crate) resource: String,
    /// Empty for the objects themselves.
    pub(crate) subresource: &'static str,
    /// Whether the operator can do without it.
    pub(crate) need: Need,
}

impl Permission {
    /// The check on `/readyz` when it is missing.
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

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "permission to {} {}", self.verb, self.what())
    }
}

/// The permissions of this replica.
#[derive(Clone, Debug)]
pub(crate) struct Permissions {
    health: Health,
}

impl Permissions {
    pub(crate) fn new(health: Health) -> Self {
        Self { health }
    }

    /// Notes the answer to a request that needs `permission`.
    pub(crate) fn answered<T>(&self, permission: &Permission, answer: &Result<T, WriteError>) {
        match answer {
            // The request got as far as the object, so it was permitted.
            Ok(_) | Err(WriteError::Gone | WriteError::Conflict | WriteError::Invalid(_)) => {
                if self.health.clear(&permission.to_string()).is_some() {
                    tracing::info!(
                        verb = permission.verb,
                        resource = permission.what(),
                        "a permission that was missing is granted"
                    );
                }
            }
            Err(WriteError::Forbidden(message)) => self.denied(permission, message),
            Err(WriteError::Throttled(_) | WriteError::Transient(_)) => {}
        }
    }

    fn denied(&self, permission: &Permission, message: &str) {
        // Webhooks, quotas and namespaces that are being deleted also answer "forbidden". Those concern one object, not the operator's
        // role.
        if !message.contains(&format!("cannot {} resource", permission.verb)) {
            return;
        }
        if self.health.set(permission.to_string(), permission.missing(message.to_owned())).is_none() {
            tracing::warn!(
                verb = permission.verb,
                resource = permission.what(),
                why = message,
                "a permission is missing"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn permission(need: Need) -> Permission {
        Permission { verb: "patch", resource: "zones.example.org".to_owned(), subresource: "status", need }
    }

    fn denied(verb: &str) -> Result<(), WriteError> {
        let message = format!(
            r#"zones.example.org "a" is forbidden: User "u" cannot {verb} resource "zones/status" in API group "example.org""#
        );
        Err(WriteError::Forbidden(message))
    }

    #[test]
    fn a_missing_permission_is_reported_with_a_fix_until_granted() {
        for answer in
            [Ok(()), Err(WriteError::Gone), Err(WriteError::Conflict), Err(WriteError::Invalid(String::new()))]
        {
            let health = Health::new(Metrics::new());
            let permissions = Permissions::new(health.clone());
            permissions.answered(&permission(Need::Required), &denied("patch"));
            let checks = health.checks();
            let Check::Failing { message, fix: Some(fix) } = &checks["permission to patch zones.example.org/status"]
            else {
                panic!("{checks:?}")
            };
            assert!(message.contains(r#"User "u" cannot patch"#), "{message}");
            assert!(fix.contains("kubectl auth can-i patch zones.example.org --subresource=status"), "{fix}");
            permissions.answered(&permission(Need::Required), &Err::<(), _>(WriteError::Transient(String::new())));
            assert!(!health.is_ready(), "no answer proves nothing");
            permissions.answered(&permission(Need::Required), &answer);
            assert_eq!(health.checks().len(), 0, "{answer:?}");
        }
    }

    #[test]
    fn an_optional_permission_leaves_the_replica_ready() {
        let health = Health::new(Metrics::new());
        Permissions::new(health.clone()).answered(&permission(Need::Optional), &denied("patch"));
        let checks = health.checks();
        let Check::Degraded { message } = &checks["permission to patch zones.example.org/status"] else {
            panic!("{checks:?}")
        };
        assert!(message.contains("kubectl auth can-i"), "{message}");
    }

    #[test]
    fn a_request_forbidden_for_one_object_is_not_a_missing_permission() {
        let health = Health::new(Metrics::new());
        let permissions = Permissions::new(health.clone());
        for message in [
            r#"admission webhook "policy.example.org" denied the request: no"#,
            r#"configmaps "a" is forbidden: unable to create new content in namespace x because it is being terminated"#,
            r#"configmaps "a" is forbidden: exceeded quota: few"#,
            "Unauthorized",
        ] {
            permissions.answered(&permission(Need::Required), &Err::<(), _>(WriteError::Forbidden(message.to_owned())));
        }
        permissions.answered(&permission(Need::Required), &denied("create"));
        assert_eq!(health.checks().len(), 0, "{:?}", health.checks());
    }
}
