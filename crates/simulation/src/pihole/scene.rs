//! Scenes that chance draws too rarely, because the order of several events matters. Some seeds end with one of them.

use super::{
    PiholeBed,
    action::{Action, IngressObject},
};
use crate::{
    dice::Dice,
    history::{Event, What},
    ingresses::{IngressAction, IngressBed},
};

/// One pair of seeds of so many ends with each of the scenes. Of each pair, one may play the operator's own HTTP client.
const ONE_OF: u64 = 20;

/// Milliseconds after which no fault of the history explains any more that a host is not served.
const CALM: u64 = 13 * 60_000;

/// The scene at the end of the history of a seed, if there is one. Times are counted from the start of the scene.
pub fn draw(seed: u64, dice: &mut Dice, http: bool) -> Vec<Event<Action>> {
    match (seed / 2) % ONE_OF {
        7 => foreign_line(dice),
        13 if http => locked_aliases(dice),
        _ => Vec::new(),
    }
}

fn user(at: u64, action: Action) -> Event<Action> {
    Event { at, what: What::User(action) }
}

fn put(ingress: IngressObject) -> Action {
    Action::Objects(IngressAction::Ingress(ingress))
}

/// A user adds a line for a host that is served already, and that one Ingress alone asks for.
fn foreign_line(dice: &mut Dice) -> Vec<Event<Action>> {
    let line = dice.pick(&["10.9.0.1 beside.lan", "10.9.0.2\tbeside.lan  # mine", "10.9.0.3 nas.lan beside.lan"]);
    let add = Action::HandAdd { pihole: 0, line: line.to_owned() };
    vec![user(0, put(PiholeBed::plain("beside".to_owned()))), user(dice.between(20_000, 200_000), add)]
}

/// The list of aliases is locked while an alias waits for it, and a host with an address is asked for then.
fn locked_aliases(dice: &mut Dice) -> Vec<Event<Action>> {
    let alias =
        IngressObject { target_cname: Some("target0.lan".to_owned()), ..PiholeBed::plain("waiting".to_owned()) };
    vec![
        user(CALM, Action::LockAliases { pihole: 0, on: true }),
        user(CALM + 1_000, put(alias)),
        user(CALM + dice.between(10_000, 60_000), put(PiholeBed::plain("beside".to_owned()))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_events_of_a_scene_are_in_order() {
        let scenes: Vec<_> = (0..80_u64).map(|seed| draw(seed, &mut Dice::new(seed), seed.is_multiple_of(2))).collect();
        assert_eq!(scenes.iter().filter(|scene| !scene.is_empty()).count(), 6);
        assert!(scenes.iter().all(|scene| scene.is_sorted_by_key(|event| event.at)));
    }
}
