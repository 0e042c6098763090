//! The part of the proxy's rule language that the server generates: matchers with a quoted argument, `&&`, `||` and parentheses.

use super::matches_anywhere;

/// A parsed rule.
#[derive(Debug)]
pub(super) enum Expression<'a> {
    Any(Vec<Expression<'a>>),
    All(Vec<Expression<'a>>),
    Matcher { name: &'a str, argument: &'a str },
}

impl<'a> Expression<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (expression, rest) = any(text)?;
        rest.trim_start().is_empty().then_some(expression)
    }

    pub(super) fn matches(&self, host: &str, path: &str) -> bool {
        match self {
            Self::Any(parts) => parts.iter().any(|part| part.matches(host, path)),
            Self::All(parts) => parts.iter().all(|part| part.matches(host, path)),
            Self::Matcher { name, argument } => match *name {
                "Host" => argument.eq_ignore_ascii_case(host),
                "HostRegexp" => matches_anywhere(argument, &host.to_ascii_lowercase()),
                "Path" => *argument == path,
                "PathPrefix" => path.starts_with(argument),
                "PathRegexp" => matches_anywhere(argument, path),
                _ => false,
            },
        }
    }
}

fn any(text: &str) -> Option<(Expression<'_>, &str)> {
    series(text, "||", all, Expression::Any)
}

fn all(text: &str) -> Option<(Expression<'_>, &str)> {
    series(text, "&&", factor, Expression::All)
}

/// One or more parts with an operator between them.
fn series<'a>(
    text: &'a str,
    operator: &str,
    part: fn(&'a str) -> Option<(Expression<'a>, &'a str)>,
    join: fn(Vec<Expression<'a>>) -> Expression<'a>,
) -> Option<(Expression<'a>, &'a str)> {
    let (first, mut rest) = part(text)?;
    let mut parts = vec![first];
    while let Some(after) = rest.trim_start().strip_prefix(operator) {
        let (next, left) = part(after)?;
        parts.push(next);
        rest = left;
    }
    Some((join(parts), rest))
}

fn factor(text: &str) -> Option<(Expression<'_>, &str)> {
    let text = text.trim_start();
    if let Some(inner) = text.strip_prefix('(') {
        let (expression, rest) = any(inner)?;
        return Some((expression, rest.trim_start().strip_prefix(')')?));
    }
    let (name, rest) = text.split_once("(`")?;
    let (argument, rest) = rest.split_once('`')?;
    let known = name.bytes().all(|byte| byte.is_ascii_alphabetic()) && !name.is_empty();
    known.then_some((Expression::Matcher { name, argument }, rest.strip_prefix(')')?))
}
