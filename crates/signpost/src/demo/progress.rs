//! Follows the examples until each has its expected result, and prints each result when it is there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::Client;
use signpost_engine::demo::{Answer, State};

use super::examples::{Example, Expected};
use super::print_line;
use super::stage::Shown;

/// The results of the examples.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Every answer, by question and type.
    pub(super) served: BTreeMap<(String, String), Answer>,
    /// Objects that were refused as expected, with the reason.
    pub(super) refused: Vec<(String, String)>,
    /// Objects without the expected result, with the last known state.
    pub(super) missing: Vec<(String, String)>,
}

impl Outcome {
    /// Adds the results of further examples.
    pub(super) fn add(&mut self, other: Self) {
        let Self { served, refused, missing } = other;
        self.served.extend(served);
        self.refused.extend(refused);
        self.missing.extend(missing);
    }
}

/// The message when another state was expected.
fn unexpected(state: State) -> String {
    match state {
        State::Served(_) => "it is served".to_owned(),
        State::Refused { reason, message } => format!("{reason}: {message}"),
        State::NotYet(why) | State::Untouched(why) => why,
    }
}

/// The examples that were changed although they must not be, with the change.
pub(super) async fn changed(client: &Client, shows: &[Shown], examples: &[Example]) -> Vec<(String, String)> {
    let mut changed = Vec::new();
    for example in examples {
        match check(client, shows, example).await {
            State::Untouched(_) => {}
            // It may be found in the middle of a change.
            other => changed.push((example.title(), format!("{}, which was not expected", unexpected(other)))),
        }
    }
    changed
}

/// Checks the open examples repeatedly until none is left or the deadline has passed.
pub(super) async fn follow(client: &Client, shows: &[Shown], examples: &[Example], deadline: Instant) -> Outcome {
    let mut outcome = Outcome::default();
    let mut open: Vec<(&Example, String)> =
        examples.iter().map(|example| (example, "nothing was reported".to_owned())).collect();
    while !open.is_empty() && Instant::now() < deadline {
        let mut still = Vec::new();
        for (example, _) in open {
            match (check(client, shows, example).await, example.expected()) {
                (State::Served(answers), Expected::Served) => {
                    for answer in answers {
                        let Answer { question, qtype, data } = &answer;
                        let data = data.join(", ");
                        print_line(&format!("  served   {question:<28} {qtype:<6} {data:<32} {}", example.title()));
                        outcome.served.insert((question.clone(), qtype.clone()), answer);
                    }
                }
                (State::Refused { reason, message }, Expected::Refused(wanted)) if reason == wanted => {
                    print_line(&format!("  refused  {}: {reason}: {message}", example.title()));
                    outcome.refused.push((example.title(), reason));
                }
                (other @ State::Served(_), _) => {
                    still.push((example, format!("{}, which was not expected", unexpected(other))));
                }
                (other, _) => still.push((example, unexpected(other))),
            }
        }
        open = still;
        if !open.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    outcome.missing = open.into_iter().map(|(example, why)| (example.title(), why)).collect();
    outcome
}

/// The state of an example with every system that reads its kind. An object that no system reads is only applied.
async fn check(client: &Client, shows: &[Shown], example: &Example) -> State {
    let read = example.api(client).get(example.name()).await.map_err(|error| error.to_string());
    let object = match read.and_then(|object| serde_json::to_value(object).map_err(|error| error.to_string())) {
        Ok(object) => object,
        Err(error) => return State::NotYet(format!("it cannot be read: {error}")),
    };
    let mut all: Option<State> = None;
    for (_, show) in shows {
        if let Some(state) = show.check(&object).await {
            all = Some(match all {
                Some(others) => others.and(state),
                None => state,
            });
        }
    }
    all.unwrap_or_else(|| State::Served(Vec::new()))
}
