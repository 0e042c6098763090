//! ReconcileManualComponents: the component that the annotations of a DNS object, or of an object that is read for its names, ask for.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use signpost_apis::portal::ComponentState;

/// The display name; asks for a component.
pub const COMPONENT: &str = "sreportal.io/component";
/// Its group.
pub const GROUP: &str = "sreportal.io/component-group";
/// Its purpose.
pub const DESCRIPTION: &str = "sreportal.io/component-description";
/// Where to find it.
pub const LINK: &str = "sreportal.io/component-link";
/// Its state when it is created.
pub const STATUS: &str = "sreportal.io/component-status";
/// The label of components that a DNS object asked for.
pub const MANAGED_BY: &str = "sreportal.io/managed-by";
/// The value of that label.
pub const DNS_CONTROLLER: &str = "dns-controller";
/// Its value for components that an object with discovered names asked for.
pub const SOURCE_CONTROLLER: &str = "source-controller";
/// The label with the name of the portal.
pub const PORTAL: &str = "sreportal.io/portal";

/// How bad a state is; one that nobody has declared is not.
pub(crate) fn rank(state: ComponentState) -> u8 {
    match state {
        ComponentState::Unknown => 0,
        ComponentState::Operational => 1,
        ComponentState::Degraded => 2,
        ComponentState::PartialOutage => 3,
        ComponentState::MajorOutage => 4,
    }
}

/// A component that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The name of the object.
    pub name: String,
    /// The portal that shows it.
    pub portal: String,
    /// Its name for people.
    pub display_name: String,
    /// Its group.
    pub group: String,
    /// Its purpose.
    pub description: Option<String>,
    /// Where to find it.
    pub link: Option<String>,
    /// Its state when it is created.
    pub state: ComponentState,
}

/// The component that annotations ask for. Its group is that of the names when no annotation names one. A link or a state that cannot be used is
/// left out.
pub fn wish(annotations: &BTreeMap<String, String>, portal: &str, groups: &[super::entries::Group]) -> Option<Wish> {
    let given = |key: &str| annotations.get(key).map(|text| text.trim()).filter(|text| !text.is_empty());
    let display_name: String = given(COMPONENT)?.chars().take(1024).collect();
    let fallback = groups.first().map_or("default", |group| &*group.name);
    let link = given(LINK).filter(|link| link.starts_with("http://") || link.starts_with("https://"));
    Some(Wish {
        name: object_name(portal, &display_name),
        portal: portal.to_owned(),
        group: given(GROUP).unwrap_or(fallback).chars().take(253).collect(),
        description: given(DESCRIPTION).map(|text| text.chars().take(4096).collect()),
        link: link.filter(|link| link.len() <= 2048).map(str::to_owned),
        state: given(STATUS).and_then(ComponentState::parse).unwrap_or(ComponentState::Operational),
        display_name,
    })
}

/// `PORTAL-TITLE-HASH`, at most 63 characters, as SRE Portal names them.
fn object_name(portal: &str, title: &str) -> String {
    let digest = Sha256::digest(format!("{portal}/{title}").as_bytes());
    let hash: String = HEXLOWER.encode(&digest).chars().take(7).collect();
    let portal = slug(portal, 14);
    let title = slug(title, 63 - portal.len() - hash.len() - 2);
    [portal, title, hash].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// Lower-case letters, digits and single hyphens.
fn slug(text: &str, most: usize) -> String {
    let mut slug = String::new();
    for character in text.to_lowercase().chars() {
        if character.is_ascii_alphanumeric() {
            slug.push(character);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.truncate(most);
    slug.trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wished(pairs: &[(&str, &str)]) -> Option<Wish> {
        let annotations = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        wish(&annotations, "main", &[])
    }

    #[test]
    fn a_component_is_asked_for_by_its_display_name() {
        assert_eq!(wished(&[(GROUP, "apps")]), None);
        let plain = wished(&[(COMPONENT, "Web Shop")]).unwrap();
        assert_eq!((plain.group.as_str(), plain.state), ("default", ComponentState::Operational));
        assert!(plain.name.starts_with("main-web-shop-"), "{}", plain.name);
        let all = [(COMPONENT, "Shop"), (GROUP, "apps"), (LINK, "ftp://x"), (STATUS, "degraded"), (DESCRIPTION, "d")];
        let all = wished(&all).unwrap();
        assert_eq!((all.group.as_str(), all.link, all.state), ("apps", None, ComponentState::Degraded));
    }

    #[test]
    fn the_name_of_a_component_is_always_a_valid_label() {
        for title in ["x".repeat(300), "--- ".to_owned(), "Über Größe".to_owned()] {
            let name = object_name("a-very-long-portal-name", &title);
            assert!(name.len() <= 63 && !name.starts_with('-') && !name.ends_with('-'), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'), "{name}");
        }
    }
}
