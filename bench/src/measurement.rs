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
pub(crate) struct Measurements(Vec<Measurement>);

impl Measurements {
    /// Prints a measurement and keeps it.
    #[allow(clippy::print_stdout)] // this is the program's output
    pub(crate) fn push(&mut self, measurement: Measurement) {
        println!("{}", measurement.line());
        self.0.push(measurement);
    }

    /// Everything measured so far.
    pub(crate) fn all(&self) -> &[Measurement] {
        &self.0
    }
}

impl Extend<Measurement> for Measurements {
    fn extend<T: IntoIterator<Item = Measurement>>(&mut self, measurements: T) {
        measurements.into_iter().for_each(|measurement| self.push(measurement));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_that_misses_its_goal_is_short() {
        assert_eq!(Measurement::new("a.b", 19.5, "x", Goal::AtLeast(20.0)).line(), "a.b 19.500 x (goal >= 20) short");
        assert_eq!(Measurement::new("a.b", 3.0, "x", Goal::AtMost(3.0)).line(), "a.b 3.000 x (goal <= 3) ok");
    }
}
