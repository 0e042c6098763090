//! Whose Ingress it is: by its class, the controller of that class, and the annotation `enabled`.

/// The rules of the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassRules {
    /// The class without an alias, `pangolin` as a rule.
    pub class: String,
    /// The controller that an IngressClass of ours names.
    pub controller: String,
    /// Whether `enabled: "true"` exposes an Ingress of any class.
    pub opt_in: bool,
}

/// The meaning of the class of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// Not ours.
    Foreign,
    /// Ours, and switched off by its annotation: what exists for it is deleted.
    Disabled,
    /// Ours, through the default tunnel.
    Default,
    /// Ours, through the tunnel of this alias.
    Alias(String),
    /// The class has the prefix and no alias after it.
    EmptyAlias,
}

/// Decides. `controller` is that of the IngressClass of this name, where one exists; `enabled` is the parsed annotation.
pub fn decide(rules: &ClassRules, class: Option<&str>, controller: Option<&str>, enabled: Option<bool>) -> Class {
    let opted_in = rules.opt_in && enabled == Some(true);
    let by_name = class.and_then(|class| match class.strip_prefix(rules.class.as_str()) {
        Some("") => Some(Class::Default),
        Some(rest) => match rest.strip_prefix('-') {
            Some("") => Some(Class::EmptyAlias),
            Some(alias) => Some(Class::Alias(alias.to_owned())),
            None => None,
        },
        None => None,
    });
    let ours = controller.map(|controller| controller == rules.controller);
    let found = match (by_name, ours) {
        // A class of the same name that another controller has is not ours.
        (_, Some(false)) | (None, None) => Class::Foreign,
        (Some(found), Some(true) | None) => found,
        // A class of another name that names our controller.
        (None, Some(true)) => Class::Default,
    };
    match found {
        Class::Foreign if opted_in => Class::Default,
        Class::Foreign => Class::Foreign,
        _ if enabled == Some(false) => Class::Disabled,
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_ours_by_name_or_by_controller() {
        let rules = ClassRules { class: "pangolin".into(), controller: "ours".into(), opt_in: false };
        let opt_in = ClassRules { opt_in: true, ..rules.clone() };
        let alias = |name: &str| Class::Alias(name.to_owned());
        for (rules, class, controller, enabled, expected) in [
            (&rules, Some("pangolin"), None, None, Class::Default),
            (&rules, Some("pangolin"), None, Some(true), Class::Default),
            (&rules, Some("pangolin-edge-eu"), None, None, alias("edge-eu")),
            (&rules, Some("pangolin-edge-eu"), Some("ours"), None, alias("edge-eu")),
            (&rules, Some("pangolin-"), None, None, Class::EmptyAlias),
            (&rules, Some("pangolins"), None, None, Class::Foreign),
            (&rules, Some("nginx"), None, None, Class::Foreign),
            (&rules, Some("nginx"), None, Some(true), Class::Foreign),
            (&rules, None, None, None, Class::Foreign),
            (&rules, Some("pangolin"), Some("theirs"), None, Class::Foreign),
            (&rules, Some("public"), Some("ours"), None, Class::Default),
            (&rules, Some("pangolin"), None, Some(false), Class::Disabled),
            (&rules, Some("nginx"), None, Some(false), Class::Foreign),
            (&opt_in, Some("nginx"), Some("theirs"), Some(true), Class::Default),
            (&opt_in, None, None, Some(true), Class::Default),
            (&opt_in, Some("nginx"), None, None, Class::Foreign),
        ] {
            assert_eq!(decide(rules, class, controller, enabled), expected, "{class:?} {controller:?} {enabled:?}");
        }
    }
}
