//! A measurement with its goal: printed as one line, collected for the JSON file.

use std::collections::BTreeSet;

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

    /// The median of what was measured under a name.
    fn median(&self, name: &str) -> Option<f64> {
        let mut values: Vec<f64> = self.all.iter().filter(|one| one.name == name).map(|one| one.value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
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

/// The part by which a measurement may be worse than that of the older operator.
const TOLERATED: f64 = 0.05;

/// Prints what two operators reached in one run: the median of each measurement, and the ratio of the second to the first.
#[allow(clippy::print_stdout)] // this is the program's output
pub(crate) fn side_by_side(before: &Measurements, now: &Measurements) {
    println!("{:<48} {:>10} {:>10} {:>8}", "measurement", "before", "now", "ratio");
    let rows = rows(before, now);
    for row in &rows {
        println!("{row}");
    }
    let worse = rows.iter().filter(|row| row.ends_with(WORSE)).count();
    println!("{worse} of {} are more than {:.0} % worse than before", rows.len(), TOLERATED * 100.0);
}

/// The mark of a measurement that is worse by more than what is tolerated.
const WORSE: &str = " worse";

fn rows(before: &Measurements, now: &Measurements) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let row = |measurement: &Measurement| {
        let (before, now) = (before.median(&measurement.name)?, now.median(&measurement.name)?);
        let ratio = if before == 0.0 { "-".to_owned() } else { format!("{:.2}", now / before) };
        let worse = match measurement.goal {
            Goal::AtLeast(_) => now * (1.0 + TOLERATED) < before,
            Goal::AtMost(_) | Goal::None => now > before * (1.0 + TOLERATED),
        };
        let (name, unit, mark) = (&measurement.name, measurement.unit, if worse { WORSE } else { "" });
        Some(format!("{name:<48} {before:>10.3} {now:>10.3} {ratio:>8} {unit}{mark}"))
    };
    now.all().iter().filter(|measurement| seen.insert(&measurement.name)).filter_map(row).collect()
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
        assert_eq!(words(&before, &now), ["a.zero 0.000 1.000 - s worse", "a.b 2.000 3.000 1.50 s worse"]);
    }

    fn words(before: &Measurements, now: &Measurements) -> Vec<String> {
        rows(before, now).iter().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn the_medians_of_several_rounds_are_compared_by_their_goal() {
        let (mut before, mut now) = (Measurements::labelled("before: "), Measurements::default());
        let of =
            |name: &str, goal: Goal, values: [f64; 3]| values.map(|value| Measurement::new(name, value, "x", goal));
        for (name, goal, values) in [
            ("up.same", Goal::AtLeast(20.0), [22.0, 50.0, 22.1]),
            ("up.less", Goal::AtLeast(20.0), [20.0, 20.1, 30.0]),
            ("down.same", Goal::AtMost(3.0), [1.0, 2.06, 9.0]),
            ("down.more", Goal::None, [2.2, 2.2, 1.0]),
        ] {
            let earlier = if name.starts_with("up") { [23.0; 3] } else { [2.0; 3] };
            before.extend(of(name, goal, earlier));
            now.extend(of(name, goal, values));
        }
        let expected = [
            "up.same 23.000 22.100 0.96 x",
            "up.less 23.000 20.100 0.87 x worse",
            "down.same 2.000 2.060 1.03 x",
            "down.more 2.000 2.200 1.10 x worse",
        ];
        assert_eq!(words(&before, &now), expected);
    }
}
