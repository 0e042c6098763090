//! The settings reader. In: flags, environment and files. Out: checked values, or *all* problems.
//!
//! A system lists its [`Setting`]s; the binary makes a flag and an environment variable of each. Values are text until the system reads
//! them here, so that all problems are reported at once. An empty value, as a template may leave it, counts as not given.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

/// One setting: an environment variable, a flag of the same name, and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The environment variable: `PDNS_API_URL`. The flag is `--pdns-api-url`.
    pub name: &'static str,
    /// The placeholder of the value in `--help`: `URL`.
    pub value: &'static str,
    /// The default value; empty when there is no default.
    pub default: &'static str,
    /// Its meaning, as one sentence without a full stop.
    pub help: &'static str,
    /// The form of its value.
    pub form: Form,
    /// Other systems that a switch needs: without them, it would have no effect.
    pub needs: &'static [&'static str],
}

/// The form of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text.
    Text,
    /// Text that is not shown.
    Secret,
    /// `true` or `false`; the bare flag means `true`.
    Switch,
}

impl Setting {
    /// A setting without a default.
    pub const fn new(name: &'static str, value: &'static str, help: &'static str) -> Self {
        Self { name, value, default: "", help, form: Form::Text, needs: &[] }
    }

    /// The default value.
    #[must_use]
    pub const fn or(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    /// Its value is not shown.
    #[must_use]
    pub const fn secret(mut self) -> Self {
        self.form = Form::Secret;
        self
    }

    /// It is `true` or `false`, with this default.
    pub const fn switch(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self { name, value: "BOOL", default, help, form: Form::Switch, needs: &[] }
    }

    /// It has no effect without these systems.
    #[must_use]
    pub const fn needs(mut self, systems: &'static [&'static str]) -> Self {
        self.needs = systems;
        self
    }

    /// The flag without its dashes: `pdns-api-url`.
    pub fn flag(&self) -> String {
        self.name.to_ascii_lowercase().replace('_', "-")
    }
}

/// A problem with a setting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The environment variable, or the place in a file; empty when it is about several.
    pub setting: String,
    /// The problem, and what to write instead.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.setting.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.setting, self.message)
        }
    }
}

/// The values that were given, and the problems found in them so far.
#[derive(Clone, Default)]
pub struct Settings {
    values: BTreeMap<String, String>,
    problems: Vec<Problem>,
}

impl fmt::Debug for Settings {
    /// Names only: a value may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("given", &self.values.keys()).field("problems", &self.problems).finish()
    }
}

impl Settings {
    /// These values, by the name of their environment variable.
    pub fn new<N: Into<String>, V: Into<String>>(values: impl IntoIterator<Item = (N, V)>) -> Self {
        let values = values.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { values, problems: Vec::new() }
    }

    /// Sets a value.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.values.insert(name.into(), value.into());
    }

    /// The value of a setting; `None` when it is not given or empty.
    pub fn given(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|text| text.trim()).filter(|text| !text.is_empty())
    }

    /// Adds a problem.
    pub fn problem(&mut self, setting: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem { setting: setting.into(), message: message.into() });
    }

    /// The problems so far.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The value if it is given, else a problem with `what` as the explanation.
    pub fn required(&mut self, name: &str, what: &str) -> Option<String> {
        let value = self.given(name).map(str::to_owned);
        if value.is_none() {
            self.problem(name, format!("is required: {what}"));
        }
        value
    }

    /// A value parsed by `read`; `None` when it is not given or invalid, which is then a problem.
    pub fn parse<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let read = read(self.given(name)?);
        self.check(name, read)
    }

    /// The value of a result, or its error as a problem.
    pub fn check<T>(&mut self, setting: impl Into<String>, value: Result<T, String>) -> Option<T> {
        value.map_err(|message| self.problem(setting, message)).ok()
    }

    /// A switch: `true`, `on`, `yes` and `1`, or `false`, `off`, `no` and `0`, in any case.
    pub fn switch(&mut self, name: &str, default: bool) -> bool {
        self.parse(name, boolean).unwrap_or(default)
    }

    /// Whether a switch is given and on.
    pub fn is_on(&self, name: &str) -> bool {
        self.given(name).is_some_and(|text| boolean(text) == Ok(true))
    }

    /// A time: `500ms`, `90s`, `5m`, `1h`, `1h30m`, or a number of seconds.
    pub fn duration(&mut self, name: &str) -> Option<Duration> {
        self.parse(name, parse_duration)
    }

    /// One of several words.
    pub fn choice<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Option<T> {
        self.parse(name, |text| {
            let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            found.ok_or_else(|| format!("{text:?} is not one of {}", words.join(", ")))
        })
    }

    /// A path, as it was given.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.given(name).map(PathBuf::from)
    }
}

/// Reads a time. Bare numbers are seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time; write 90s, 5m, 1h or 500ms");
    let mut rest = text.trim();
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let letters = after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (unit, after) = after.split_at(letters);
        let part = match unit {
            "ms" => Some(Duration::from_millis(number)),
            // A number without a unit must be the whole text.
            "" if digits == text.trim().len() => Some(Duration::from_secs(number)),
            "s" => Some(Duration::from_secs(number)),
            "m" => number.checked_mul(60).map(Duration::from_secs),
            "h" => number.checked_mul(3600).map(Duration::from_secs),
            _ => return Err(wrong()),
        };
        total = part
            .and_then(|part| total.checked_add(part))
            .filter(|total| *total <= LONGEST)
            .ok_or_else(|| format!("{text:?} is longer than a year; write a shorter time"))?;
        rest = after;
    }
    Ok(total)
}

/// The longest time that a setting accepts.
const LONGEST: Duration = Duration::from_hours(366 * 24);

fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_one_notation_and_bare_numbers_are_seconds() {
        for (text, seconds) in
            [("10", 10.0), ("90s", 90.0), ("5m", 300.0), ("1h30m", 5400.0), ("500ms", 0.5), ("0", 0.0)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "5 m", "m", "-1", "1d", "1h30", "1.5h", "99999999999999999999", "99999999999999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_problem_is_kept_and_empty_values_are_not_given() {
        let mut settings = Settings::new([("A", " "), ("B", "maybe"), ("C", "soon"), ("D", "x"), ("E", " 5 ")]);
        assert_eq!(settings.required("A", "the address of the server"), None);
        assert!(settings.switch("B", true), "the default");
        assert_eq!(settings.duration("C"), None);
        assert_eq!(settings.choice("D", &[("skip", 1), ("overwrite", 2)]), None);
        assert_eq!(settings.parse("E", |text| text.parse::<u8>().map_err(|error| error.to_string())), Some(5));
        assert_eq!(settings.duration("F"), None);
        let problems: Vec<String> = settings.problems().iter().map(ToString::to_string).collect();
        assert_eq!(
            problems,
            [
                "A: is required: the address of the server",
                "B: \"maybe\" is neither true nor false",
                "C: \"soon\" is not a time; write 90s, 5m, 1h or 500ms",
                "D: \"x\" is not one of skip, overwrite",
            ]
        );
    }

    #[test]
    fn printing_settings_shows_no_value() {
        let settings = Settings::new([("KEY", "hunter2")]);
        assert!(!format!("{settings:?}").contains("hunter2"));
        assert_eq!(Setting::new("PDNS_API_URL", "URL", "").flag(), "pdns-api-url");
    }
}
