//! Makes a failing history shorter while it still fails in the same way.

use crate::{
    bed::Bed,
    history::{Event, History, What},
    run::play,
};

/// The most histories that are played to shrink one.
const TRIES: usize = 600;

/// The kind of a violation, without names and contents: a shorter history must fail for the same reason.
fn sort(violation: &str) -> String {
    let words = violation.chars().filter(|c| c.is_ascii_lowercase() || *c == ' ');
    words.collect::<String>().split_whitespace().filter(|word| word.len() > 3).take(60).collect::<Vec<_>>().join(" ")
}

/// Leaves out events, then makes what is left plainer, while the first violation stays of its sort.
pub fn shrink<B: Bed>(history: &History<B::Action>, violation: &str) -> History<B::Action> {
    let wanted = sort(violation);
    let mut tries = 0;
    let mut fails = |candidate: &History<B::Action>| {
        tries += 1;
        tries <= TRIES && play::<B>(candidate, false).violations.iter().any(|found| similar(&sort(found), &wanted))
    };
    let mut best = history.clone();
    if best.replicas > 1 {
        let alone = History { replicas: 1, ..best.clone() };
        if fails(&alone) {
            best = alone;
        }
    }
    let mut step = best.events.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        while from < best.events.len() {
            let mut shorter = best.clone();
            let to = (from + step).min(shorter.events.len());
            shorter.events.drain(from..to);
            if fails(&shorter) {
                best = shorter;
            } else {
                from += step;
            }
        }
        if step == 1 {
            break;
        }
        step = step.div_ceil(2);
    }
    earlier::<B>(&mut best, &mut fails);
    best
}

/// Two violations of the same sort share most of their words.
fn similar(one: &str, other: &str) -> bool {
    let first = |text: &str| text.split(' ').take(8).collect::<Vec<_>>().join(" ");
    first(one) == first(other)
}

/// Moves events together, and makes spells strike every request.
fn earlier<B: Bed>(best: &mut History<B::Action>, fails: &mut impl FnMut(&History<B::Action>) -> bool) {
    for index in 0..best.events.len() {
        let before = if index == 0 { 0 } else { best.events[index - 1].at };
        let gap = best.events[index].at - before;
        for smaller in [0, 100, 1_000] {
            if smaller >= gap {
                break;
            }
            let mut candidate = best.clone();
            for event in &mut candidate.events[index..] {
                event.at -= gap - smaller;
            }
            if fails(&candidate) {
                *best = candidate;
                break;
            }
        }
        let mut candidate = best.clone();
        if let Event { what: What::Spell(spell), .. } = &mut candidate.events[index]
            && spell.share < 100
        {
            spell.share = 100;
            if fails(&candidate) {
                *best = candidate;
            }
        }
    }
}
