//! A measurement with its goal: printed as one line, collected for the JSON file.

use serde::Serialize;

/// The goal of a measurement.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Goal {
    /// At least this much.
    AtLeast(f64),
    /// At most this much.
    AtMost(f64),
    /// Only reported.
    None,
}

/// One measurement of one benchmark.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measurement {
    /// Dotted name, such as `converge.waiting.1000.speedup`.
    pub(crate) name: String,
    /// The value.
    pub(crate) value: f64,
    /// Its unit: `x` for a ratio, `s`, `ms`, `MB`, or a count.
    pub(crate) unit: &'static str,
    /// The goal.
    pub(crate) goal: Goal,
    /// Whether the goal was reached.
    pub(crate) ok: bool,
}

impl Measurement {
    /// A measurement, compared with its goal.
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &'static str, goal: Goal) -> Self {
        let ok = match goal {
            Goal::AtLeast(limit) => value >= limit,
            Goal::AtMost(limit) => value <= limit,
            Goal::None => true,
        };
        Self { name: name.into(), value, unit, goal, ok }
    }

    /// `NAME VALUE UNIT (goal GOAL) ok|short`.
    pub(crate) fn line(&self) -> String {
        let goal = match self.goal {
            Goal::AtLeast(limit) => format!(">= {limit}"),
            Goal::AtMost(limit) => format!("<= {limit}"),
            Goal::None => "none".to_owned(),
        };
        format!("{} {:.3} {} (goal {goal}) {}", self.name, self.value, self.unit, if self.ok { "ok" } else { "short" })
    }
}

/// The measurements of a run, printed as they are measured.
#[derive(Debug, Default)]
pub(crate) struct Measurements {
    label: &'static str,
    all: Vec<Measurement>,
}

impl Measurements {
    /// An empty list; each line starts with `label`.
    pub(crate) fn labelled(label: &'static str) -> Self {
        Self { label, all: Vec::new() }
    }

    /// Prints a measurement and keeps it.
    #[allow(clippy::print_stdout)] // this is the program's output
    pub(crate) fn push(&mut self, measurement: Measurement) {
        println!("{}{}", self.label, measurement.line());
        self.all.push(measurement);
    }

    /// Everything measured so far.
    pub(crate) fn all(&self) -> &[Measurement] {
        &self.all
    }
}

impl Extend<Measurement> for Measurements {
    fn extend<T: IntoIterator<Item = Measurement>>(&mut self, measurements: T) {
        measurements.into_iter().for_each(|measurement| self.push(measurement));
    }
}

/// Prints what two operators reached in one run, with the ratio of the second to the first.
#[allow(clippy::print_stdout)] // this is the program's output
pub(crate) fn side_by_side(before: &Measurements, now: &Measurements) {
    println!("{:<48} {:>10} {:>10} {:>8}", "measurement", "before", "now", "ratio");
    for row in rows(before, now) {
        println!("{row}");
    }
}

fn rows(before: &Measurements, now: &Measurements) -> Vec<String> {
    let row = |now: &Measurement| {
        let before = before.all().iter().find(|measurement| measurement.name == now.name)?;
        let ratio = if before.value == 0.0 { "-".to_owned() } else { format!("{:.2}", now.value / before.value) };
        Some(format!("{:<48} {:>10.3} {:>10.3} {ratio:>8} {}", now.name, before.value, now.value, now.unit))
    };
    now.all().iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_that_misses_its_goal_is_short() {
        assert_eq!(Measurement::new("a.b", 19.5, "x", Goal::AtLeast(20.0)).line(), "a.b 19.500 x (goal >= 20) short");
        assert_eq!(Measurement::new("a.b", 3.0, "x", Goal::AtMost(3.0)).line(), "a.b 3.000 x (goal <= 3) ok");
    }

    #[test]
    fn two_operators_are_compared_by_name() {
        let (mut before, mut now) = (Measurements::labelled("before: "), Measurements::default());
        before.extend(
            [("a.b", 2.0), ("a.zero", 0.0), ("a.old", 1.0)].map(|(n, v)| Measurement::new(n, v, "s", Goal::None)),
        );
        now.extend(
            [("a.zero", 1.0), ("a.b", 3.0), ("a.new", 1.0)].map(|(n, v)| Measurement::new(n, v, "s", Goal::None)),
        );
        let rows: Vec<Vec<String>> =
            rows(&before, &now).iter().map(|row| row.split_whitespace().map(str::to_owned).collect()).collect();
        assert_eq!(rows, [["a.zero", "0.000", "1.000", "-", "s"], ["a.b", "2.000", "3.000", "1.50", "s"]]);
    }
}
