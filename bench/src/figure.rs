//! A measured figure with its goal: printed as one line, collected for the JSON file.

use serde::Serialize;

/// What a figure must be to count as reached.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Goal {
    /// At least this much.
    AtLeast(f64),
    /// At most this much.
    AtMost(f64),
    /// Told, not judged.
    Told,
}

/// One figure of one benchmark.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    /// Dotted name, such as `converge.waiting.1000.speedup`.
    pub(crate) name: String,
    /// What was measured.
    pub(crate) value: f64,
    /// Its unit: `x` for a ratio, `s`, `ms`, `MB`, or a count.
    pub(crate) unit: &'static str,
    /// What it is held to.
    pub(crate) goal: Goal,
    /// Whether the goal was reached.
    pub(crate) ok: bool,
}

impl Figure {
    /// A figure, judged against its goal.
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &'static str, goal: Goal) -> Self {
        let ok = match goal {
            Goal::AtLeast(limit) => value >= limit,
            Goal::AtMost(limit) => value <= limit,
            Goal::Told => true,
        };
        Self { name: name.into(), value, unit, goal, ok }
    }

    /// `NAME VALUE UNIT (goal GOAL) ok|short`.
    pub(crate) fn line(&self) -> String {
        let goal = match self.goal {
            Goal::AtLeast(limit) => format!(">= {limit}"),
            Goal::AtMost(limit) => format!("<= {limit}"),
            Goal::Told => "none".to_owned(),
        };
        format!("{} {:.3} {} (goal {goal}) {}", self.name, self.value, self.unit, if self.ok { "ok" } else { "short" })
    }
}

/// The figures of a run, printed as they are measured.
#[derive(Debug, Default)]
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    /// Prints a figure and keeps it.
    #[allow(clippy::print_stdout)] // this is the program's output
    pub(crate) fn push(&mut self, figure: Figure) {
        println!("{}", figure.line());
        self.0.push(figure);
    }

    /// Everything measured so far.
    pub(crate) fn all(&self) -> &[Figure] {
        &self.0
    }
}

impl Extend<Figure> for Figures {
    fn extend<T: IntoIterator<Item = Figure>>(&mut self, figures: T) {
        figures.into_iter().for_each(|figure| self.push(figure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_misses_its_goal_is_short() {
        assert_eq!(Figure::new("a.b", 19.5, "x", Goal::AtLeast(20.0)).line(), "a.b 19.500 x (goal >= 20) short");
        assert_eq!(Figure::new("a.b", 3.0, "x", Goal::AtMost(3.0)).line(), "a.b 3.000 x (goal <= 3) ok");
    }
}
