//! Names that are the same at every start: of the object for one host of an Ingress, and of its mark in Pangolin.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Longest name of an object, and longest value of a label.
const MAX: usize = 63;

/// The names for one host of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The name of the PangolinResource. It has the hash that pangolin-ingress-controller uses, so that its objects are found.
    pub object: String,
    /// The name that Pangolin's dashboard shows.
    pub title: String,
    /// The first part of the mark: the same for every host of the Ingress.
    pub ingress_mark: String,
    /// The mark in Pangolin: owner, Ingress and host.
    pub mark: String,
}

impl Names {
    /// The names for a host, in a Pangolin that this owner marks.
    pub fn of(owner: &str, namespace: &str, ingress: &str, host: &str) -> Self {
        let hash = hex(&format!("{namespace}/{ingress}/{host}"), 4);
        let ingress_mark = format!("sp-{owner}-{}", hex(&format!("{namespace}/{ingress}"), 6));
        let mark = format!("{ingress_mark}-{}", hex(host, 6));
        let title: String = format!("{namespace}/{ingress}/{host}").chars().take(255).collect();
        Self { object: object_name(namespace, ingress, &hash), title, ingress_mark, mark }
    }
}

/// `pic-<namespace>-<ingress>-<hash>`, cut in its middle.
fn object_name(namespace: &str, ingress: &str, hash: &str) -> String {
    let room = MAX - hash.len() - 1;
    let base: String = format!("pic-{namespace}-{ingress}").replace('.', "-").chars().take(room).collect();
    format!("{}-{hash}", base.trim_end_matches('-'))
}

/// A value for a label: the text itself, or its start and a hash when it is too long.
pub fn cut_label(text: &str) -> String {
    if text.len() <= MAX {
        return text.to_owned();
    }
    let start: String = text.chars().take(MAX - 9).collect();
    format!("{}-{}", start.trim_end_matches(['-', '.', '_']), hex(text, 4))
}

/// The first bytes of the SHA-256 of a text, as text.
pub fn hex(text: &str, bytes: usize) -> String {
    Sha256::digest(text.as_bytes()).iter().take(bytes).fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_object_is_that_of_pangolin_ingress_controller() {
        // SHA-256 of "prod/my-app/app.example.com" begins with these four bytes.
        let names = Names::of("home", "prod", "my-app", "app.example.com");
        assert_eq!(names.object, "pic-prod-my-app-5f59000b");
        assert_eq!(names.title, "prod/my-app/app.example.com");
    }

    #[test]
    fn long_names_are_cut_and_stay_different_and_valid() {
        let long = "a.".repeat(120) + "b";
        let one = Names::of("o", "prod", &long, "x.example.com").object;
        let two = Names::of("o", "prod", &long, "y.example.com").object;
        assert_ne!(one, two);
        for name in [one, two, Names::of("o", "ns", &("a".repeat(53) + "-b"), "h").object] {
            assert!(name.len() <= 63 && !name.contains("--") || name.contains("pic-"), "{name}");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'),
                "{name}"
            );
        }
        assert_eq!(cut_label("short"), "short");
        let cut = cut_label(&long);
        assert!(cut.len() <= 63 && cut.ends_with(|c: char| c.is_ascii_hexdigit()), "{cut}");
    }

    #[test]
    fn the_marks_of_one_ingress_share_their_first_part() {
        let (a, b) = (Names::of("home", "ns", "app", "a.test"), Names::of("home", "ns", "app", "b.test"));
        assert_eq!(a.ingress_mark, b.ingress_mark);
        assert!(a.mark != b.mark && a.mark.starts_with(&a.ingress_mark));
        assert_ne!(a.mark, Names::of("work", "ns", "app", "a.test").mark);
        assert_ne!(a.ingress_mark, Names::of("home", "ns", "other", "a.test").ingress_mark);
    }
}
