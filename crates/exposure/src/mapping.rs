//! The mapping of class aliases to tunnels (`alias=tunnel`), and which namespaces may use which tunnel (`tunnel=namespace`): one entry per
//! line or comma. A line that cannot be read is fatal, with its number.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

/// Aliases and the tunnels that they stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelMapping(BTreeMap<String, String>);

/// A line that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {text:?} {why}")]
pub struct MappingError {
    /// Which line, from 1.
    pub line: usize,
    /// The entry.
    pub text: String,
    /// The error in it.
    pub why: String,
}

impl TunnelMapping {
    /// Reads a mapping. Empty lines and comments after `#` do not count. Returns every error.
    pub fn parse(text: &str) -> Result<Self, Vec<MappingError>> {
        let mut mapping: BTreeMap<String, String> = BTreeMap::new();
        let errors = each_entry(text, |entry| {
            let (alias, tunnel) = read(entry)?;
            match mapping.get(&alias) {
                Some(other) if *other != tunnel => {
                    return Err(format!("maps {alias:?} again; it is mapped already to {other:?}"));
                }
                Some(_) | None => mapping.insert(alias, tunnel),
            };
            Ok(())
        });
        if errors.is_empty() { Ok(Self(mapping)) } else { Err(errors) }
    }

    /// The tunnel of an alias; the alias itself when it is not mapped.
    pub fn tunnel<'a>(&'a self, alias: &'a str) -> &'a str {
        self.0.get(alias).map_or(alias, String::as_str)
    }

    /// The tunnels, in the order of their aliases.
    pub fn tunnels(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(String::as_str)
    }

    /// The aliases, in order.
    pub fn aliases(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Reads every entry of a text; returns those that cannot be used.
fn each_entry(text: &str, mut read: impl FnMut(&str) -> Result<(), String>) -> Vec<MappingError> {
    let mut errors = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.split('#').next().unwrap_or_default();
        for entry in content.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            if let Err(why) = read(entry) {
                errors.push(MappingError { line, text: entry.chars().take(120).collect(), why });
            }
        }
    }
    errors
}

/// Which namespaces may use which tunnel. Without an entry, all may use all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TunnelAllowance(BTreeSet<(String, String)>);

impl TunnelAllowance {
    /// Reads entries `tunnel=namespace`; `*` stands for all. Returns every error.
    pub fn parse(text: &str) -> Result<Self, Vec<MappingError>> {
        let mut allowed = BTreeSet::new();
        let errors = each_entry(text, |entry| {
            let (tunnel, namespace) =
                entry.split_once('=').ok_or_else(|| "has no '='; write tunnel=namespace".to_owned())?;
            let (tunnel, namespace) = (tunnel.trim(), namespace.trim());
            let name = tunnel.split_once('/').map_or(tunnel, |(place, name)| if is_label(place) { name } else { "" });
            if tunnel != "*" && !name.split('.').all(is_label) {
                return Err(format!("has {tunnel:?}, which is not a tunnel: write name, namespace/name or *"));
            }
            if namespace != "*" && !is_label(namespace) {
                return Err(format!("has {namespace:?}, which is not a namespace; write its name or *"));
            }
            allowed.insert((tunnel.to_owned(), namespace.to_owned()));
            Ok(())
        });
        if errors.is_empty() { Ok(Self(allowed)) } else { Err(errors) }
    }

    /// Whether an Ingress of a namespace may use a tunnel, as it names it.
    pub fn permits(&self, tunnel: &str, namespace: &str) -> bool {
        let has = |tunnel: &str, namespace: &str| self.0.contains(&(tunnel.to_owned(), namespace.to_owned()));
        self.0.is_empty() || [tunnel, "*"].into_iter().any(|tunnel| has(tunnel, namespace) || has(tunnel, "*"))
    }
}

fn read(entry: &str) -> Result<(String, String), String> {
    let (alias, tunnel) = entry.split_once('=').ok_or_else(|| "has no '='; write alias=tunnel".to_owned())?;
    let (alias, tunnel) = (alias.trim(), tunnel.trim());
    if alias.is_empty() || tunnel.is_empty() {
        return Err("has an empty side; write alias=tunnel".to_owned());
    }
    // A tunnel may be written with its namespace.
    let name = match tunnel.split_once('/') {
        Some((namespace, name)) if is_label(namespace) => name,
        Some(_) => return Err(format!("has {tunnel:?}, which is not namespace/name")),
        None => tunnel,
    };
    if !alias.split('.').all(is_label) || !name.split('.').all(is_label) {
        return Err("holds characters that no Kubernetes name has; use lower-case letters, digits and '-'".to_owned());
    }
    Ok((alias.to_owned(), tunnel.to_owned()))
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_stand_for_tunnels_and_an_unmapped_one_for_itself() {
        let text = "edge-eu=edge-eu-tunnel\n\n  # the other side\nedge-us = infra/us # with its namespace\na=b,c=d\n";
        let mapping = TunnelMapping::parse(text).unwrap();
        assert_eq!(mapping.tunnel("edge-eu"), "edge-eu-tunnel");
        assert_eq!(mapping.tunnel("edge-us"), "infra/us");
        assert_eq!((mapping.tunnel("c"), mapping.tunnel("staging")), ("d", "staging"));
        assert_eq!(mapping.aliases().collect::<Vec<_>>(), ["a", "c", "edge-eu", "edge-us"]);
        assert_eq!(mapping.tunnels().collect::<Vec<_>>(), ["b", "d", "edge-eu-tunnel", "infra/us"]);
    }

    #[test]
    fn every_line_that_cannot_be_read_is_reported_with_its_number() {
        let text = "good=tunnel\nnothing\n=x\ny=\ngood=other\ngood=tunnel\nBad=x\na=b/c/d\nz=Infra/c\n";
        let errors = TunnelMapping::parse(text).unwrap_err();
        assert_eq!(errors.iter().map(|error| error.line).collect::<Vec<_>>(), [2, 3, 4, 5, 7, 8, 9]);
        assert_eq!(errors[0].to_string(), "line 2: \"nothing\" has no '='; write alias=tunnel");
        assert!(errors[3].to_string().contains("mapped already to \"tunnel\""), "{}", errors[3]);
    }

    #[test]
    fn an_allowance_lets_through_what_it_lists_and_nothing_else() {
        let allowed = TunnelAllowance::parse("edge=shop, infra/edge=blog\n*=admin # all tunnels\ndefault=*\n").unwrap();
        for (tunnel, namespace, expected) in [
            ("edge", "shop", true),
            ("edge", "blog", false),
            ("infra/edge", "blog", true),
            ("infra/edge", "shop", false),
            ("other", "admin", true),
            ("default", "anybody", true),
            ("other", "shop", false),
        ] {
            assert_eq!(allowed.permits(tunnel, namespace), expected, "{tunnel} {namespace}");
        }
        assert!(TunnelAllowance::default().permits("any", "shop"), "off without an entry");
        let errors = TunnelAllowance::parse("a=b\nnothing\n=x\na=B c\nx/y/z=a\n").unwrap_err();
        assert_eq!(errors.iter().map(|error| error.line).collect::<Vec<_>>(), [2, 3, 4, 5], "{errors:?}");
    }

    #[test]
    fn nothing_is_an_empty_mapping() {
        assert_eq!(TunnelMapping::parse(" \n# only a comment\n"), Ok(TunnelMapping::default()));
    }
}
