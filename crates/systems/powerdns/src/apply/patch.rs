//! Sending atoms: one PATCH for as many as fit, and when the server refuses one, exactly that one is left out.
//!
//! ```text
//!  atoms ─► chunks (5,000 sets, 1.9 MB, never splitting a name) ─► PATCH ─ ok ─► done
//!                                             422 names one ─► drop it, send the rest again
//!                                             422 names none, or 413 ─► send the halves
//!                          500, and the server still reads ─► send the halves, so often and no more
//! ```

use std::collections::{HashMap, VecDeque};

use signpost_dns::{Fqdn, ZoneName};
use signpost_engine::WriteError;
use signpost_provider_powerdns::{Action, Change, MAX_PATCH_BYTES, MAX_PATCH_SETS, ServerError, ZoneInfo, ZoneServer};

use crate::plan::Atom;

/// So many refused atoms are dropped one at a time before a chunk is halved instead.
const NAMED_DROPS: usize = 16;
/// So often in one round something is set apart after a plain 500; a database that is down is not asked for long.
const MAX_SPLITS: usize = 32;
/// Calls made for one round at most; the rest waits for the next.
const MAX_CALLS: usize = 400;

/// The outcome of an atom.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AtomOutcome {
    /// It is on the server.
    Done {
        /// The serial after it, where the server reported it.
        serial: Option<u32>,
    },
    /// The server will not take it, in its words.
    Refused(String),
    /// The server keeps no comments, so it is to be written without its own.
    Uncommented,
    /// The call failed.
    Failed(ServerError),
    /// The zone object could not be written, and what the ledger does not list is not sent.
    NotListed(WriteError),
    /// Not tried in this round.
    Deferred,
}

/// The outcomes of all atoms.
#[derive(Debug)]
pub(crate) struct Sent {
    /// In the order of the atoms.
    pub(crate) outcomes: Vec<AtomOutcome>,
    /// PATCHes made.
    pub(crate) calls: usize,
    /// Whether a foreign writer changed the zone since it was `known`, as far as its serial shows.
    pub(crate) strayed: bool,
    /// The words with which the server refuses every change of the zone, as it seems. Changes that were not
    /// tried for that reason are refused with the rest.
    pub(crate) closed: Option<String>,
}

/// Sends every atom to a zone of which this much is `known`, and that is perhaps `closed`: it refused every change before,
/// in these words.
pub(crate) async fn send(
    server: &dyn ZoneServer,
    zone: &ZoneName,
    atoms: &[Atom],
    known: Option<&ZoneInfo>,
    closed: Option<&str>,
) -> Sent {
    let mut round = Round {
        closed,
        atoms,
        outcomes: vec![AtomOutcome::Deferred; atoms.len()],
        waiting: chunks(atoms).into(),
        refusals: Refusals::default(),
    };
    let mut serial = known.map(|known| known.serial);
    let counting = known.map_or("", |known| known.soa_edit_api.as_str());
    let mut strayed = false;
    let (mut calls, mut splits) = (0, 0);
    while let Some(chunk) = round.waiting.pop_front() {
        if calls == MAX_CALLS {
            break;
        }
        calls += 1;
        let changes = changes(atoms, &chunk.members);
        match server.patch(zone, &changes).await {
            Ok(patched) => {
                strayed |= serial.zip(patched.serial).is_some_and(|(before, now)| skips(counting, before, now));
                serial = patched.serial;
                round.refusals.any_done = true;
                round.end(&chunk.members, &AtomOutcome::Done { serial: patched.serial });
            }
            Err(ServerError::Refused { words }) => round.refused(chunk, words),
            // One record that the database trips over fails alone, as long as the zone can be read at all.
            Err(error @ ServerError::Failed { status: 500, .. })
                if splits < MAX_SPLITS
                    && (chunk.members.len() > 1 || !round.waiting.is_empty())
                    && (splits > 0 || server.zone(zone).await.is_ok()) =>
            {
                splits += 1;
                match *chunk.members {
                    [only] => round.outcomes[only] = AtomOutcome::Failed(error),
                    _ => round.halve(chunk),
                }
            }
            // One zone's failure is every chunk's: a hung server is not asked again in the same round.
            Err(error) => {
                round.end(&chunk.members, &AtomOutcome::Failed(error.clone()));
                round.end_all(&AtomOutcome::Failed(error));
            }
        }
    }
    Sent { outcomes: round.outcomes, calls, strayed, closed: round.refusals.closed }
}

/// The atoms that are still to be sent, and the outcomes of the rest.
struct Round<'a> {
    atoms: &'a [Atom],
    /// The words in which every change of the zone was refused before.
    closed: Option<&'a str>,
    outcomes: Vec<AtomOutcome>,
    waiting: VecDeque<Chunk>,
    refusals: Refusals,
}

/// Refusals of single atoms in the same words that name none of them: after a few, it is the zone that is refused.
#[derive(Default)]
struct Refusals {
    words: String,
    count: usize,
    /// Whether the server has taken something, so that the zone as a whole is not refused.
    any_done: bool,
    closed: Option<String>,
}

/// So many single atoms are refused in the same words, one after the other, before others are tried from elsewhere.
const EQUAL_REFUSALS: usize = 3;
/// So many of those are tried: were the first ones refused for their size, the smallest would be taken.
const PROBES: usize = 3;

impl Round<'_> {
    fn end(&mut self, members: &[usize], outcome: &AtomOutcome) {
        for index in members {
            self.outcomes[*index] = outcome.clone();
        }
    }

    fn end_all(&mut self, outcome: &AtomOutcome) {
        let left: Vec<usize> = self.waiting.drain(..).flat_map(|chunk| chunk.members).collect();
        self.end(&left, outcome);
    }

    fn halve(&mut self, chunk: Chunk) {
        let (first, second) = halves(self.atoms, chunk.members);
        self.waiting.push_front(Chunk { members: second, drops: 0 });
        self.waiting.push_front(Chunk { members: first, drops: 0 });
    }

    fn refused(&mut self, mut chunk: Chunk, words: String) {
        if is_about_comments(&words) {
            let commented =
                |index: &usize| self.atoms[*index].write.as_ref().is_some_and(|write| write.content.comment.is_some());
            let (with, without): (Vec<usize>, Vec<usize>) = chunk.members.iter().copied().partition(commented);
            if !with.is_empty() {
                self.end(&with, &AtomOutcome::Uncommented);
                chunk.members = without;
                if !chunk.members.is_empty() {
                    self.waiting.push_front(chunk);
                }
                return;
            }
        }
        let blamed = blamed(self.atoms, &chunk.members, &words);
        if blamed.is_none() && !self.refusals.any_done && self.closed == Some(words.as_str()) {
            self.end(&chunk.members, &AtomOutcome::Refused(words.clone()));
            self.close(&words);
        } else if let [only] = *chunk.members {
            self.outcomes[only] = AtomOutcome::Refused(words.clone());
            if blamed.is_none() {
                self.count(&words);
            }
        } else if let Some(at) = blamed.filter(|_| chunk.drops < NAMED_DROPS) {
            self.outcomes[chunk.members.remove(at)] = AtomOutcome::Refused(words);
            chunk.drops += 1;
            self.waiting.push_front(chunk);
        } else {
            self.halve(chunk);
        }
    }

    /// One atom alone was refused without being named.
    fn count(&mut self, words: &str) {
        let refusals = &mut self.refusals;
        if refusals.words == words {
            refusals.count += 1;
        } else {
            (refusals.words, refusals.count) = (words.to_owned(), 1);
        }
        if refusals.any_done || refusals.count < EQUAL_REFUSALS {
            return;
        }
        let probe = (refusals.count < EQUAL_REFUSALS + PROBES).then(|| self.probe(self.refusals.count)).flatten();
        if let Some(probe) = probe {
            for chunk in &mut self.waiting {
                chunk.members.retain(|index| *index != probe);
            }
            self.waiting.retain(|chunk| !chunk.members.is_empty());
            self.waiting.push_front(Chunk { members: vec![probe], drops: 0 });
        } else {
            self.close(words);
        }
    }

    fn close(&mut self, words: &str) {
        self.refusals.closed = Some(words.to_owned());
        self.end_all(&AtomOutcome::Refused(words.to_owned()));
    }

    /// One of those left that may fare better: the smallest, then the last, then one from the middle.
    fn probe(&self, count: usize) -> Option<usize> {
        // An atom can be sent by itself where no other one has its name.
        let mut at_name: HashMap<&Fqdn, usize> = HashMap::with_capacity(self.atoms.len());
        for atom in self.atoms {
            *at_name.entry(&atom.name).or_default() += 1;
        }
        let is_alone = |index: &usize| at_name.get(&self.atoms[*index].name) == Some(&1);
        let left = self.waiting.iter().flat_map(|chunk| &chunk.members).copied();
        let left: Vec<usize> = left.filter(is_alone).collect();
        let size = |index: &&usize| changes(self.atoms, &[**index]).iter().map(Change::encoded_len).sum::<usize>();
        match count - EQUAL_REFUSALS {
            0 => left.iter().min_by_key(size).copied(),
            1 => left.last().copied(),
            _ => left.get(left.len() / 2).copied(),
        }
    }
}

/// The answer of PowerDNS to a comment when its backend keeps no comments.
fn is_about_comments(words: &str) -> bool {
    words.contains("does not support editing comments")
}

/// Whether a serial moved by more than the one PATCH that led from `before` to `now`. A serial that is a time cannot tell.
fn skips(counting: &str, before: u32, now: u32) -> bool {
    let next = now == before.wrapping_add(1);
    match counting {
        "INCREASE" | "SOA-EDIT-INCREASE" => !next,
        // The first of a day ends in 01.
        "DEFAULT" => !next && (now <= before || now % 100 != 1),
        _ => false,
    }
}

struct Chunk {
    members: Vec<usize>,
    drops: usize,
}

/// Atoms of one name stay together. Names that only lose something come last: creates before deletes.
fn chunks(atoms: &[Atom]) -> Vec<Chunk> {
    let bytes_of = |members: &[usize]| changes(atoms, members).iter().map(Change::encoded_len).sum::<usize>();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, atom) in atoms.iter().enumerate() {
        let fits = |group: &[usize]| bytes_of(group) + bytes_of(&[index]) <= MAX_PATCH_BYTES;
        match groups.last_mut() {
            // Changes that are too large for one request are sent in the same order in several.
            Some(group) if atoms[group[0]].name == atom.name && fits(group) => group.push(index),
            _ => groups.push(vec![index]),
        }
    }
    groups.sort_by_key(|group| group.iter().all(|index| atoms[*index].write.is_none()));
    let mut chunks: Vec<Chunk> = Vec::new();
    let (mut sets, mut bytes) = (0, 0);
    for group in groups {
        let of_group = changes(atoms, &group);
        let group_bytes: usize = of_group.iter().map(Change::encoded_len).sum();
        let full = sets + of_group.len() > MAX_PATCH_SETS || bytes + group_bytes > MAX_PATCH_BYTES;
        match chunks.last_mut() {
            Some(chunk) if !full => chunk.members.extend(group),
            _ => {
                chunks.push(Chunk { members: group, drops: 0 });
                (sets, bytes) = (0, 0);
            }
        }
        sets += of_group.len();
        bytes += group_bytes;
    }
    chunks
}

/// The changes in the order the server applies them: at each name, deletions before writes.
fn changes(atoms: &[Atom], members: &[usize]) -> Vec<Change> {
    let mut changes = Vec::with_capacity(members.len());
    let mut at = 0;
    while at < members.len() {
        let name = &atoms[members[at]].name;
        let end =
            members[at..].iter().position(|index| atoms[*index].name != *name).map_or(members.len(), |len| at + len);
        let group = || members[at..end].iter().map(|index| &atoms[*index]);
        for key in group().flat_map(|atom| &atom.deletes) {
            changes.push(Change { name: key.name.clone(), rtype: key.rtype, action: Action::Delete });
        }
        for write in group().filter_map(|atom| atom.write.as_ref()) {
            let action = Action::Replace { content: write.content.clone(), comment: write.comment.clone() };
            changes.push(Change { name: write.key.name.clone(), rtype: write.key.rtype, action });
        }
        at = end;
    }
    changes
}

/// The one member the server's words are about: `NAME IN TYPE` or `NAME/TYPE`.
fn blamed(atoms: &[Atom], members: &[usize], words: &str) -> Option<usize> {
    let words = words.to_ascii_lowercase();
    let mentions = |atom: &Atom| {
        let keys = atom.deletes.iter().chain(atom.write.iter().map(|write| &write.key));
        keys.into_iter().any(|key| {
            let rtype = key.rtype.as_str().to_ascii_lowercase();
            let name = key.name.to_string();
            [format!(" {name} in {rtype}"), format!(" {name}/{rtype}")].iter().any(|text| {
                words.match_indices(text.as_str()).any(|(at, found)| {
                    !words[at + found.len()..].starts_with(|next: char| next.is_ascii_alphanumeric())
                })
            })
        })
    };
    let mut found = members.iter().enumerate().filter(|(_, index)| mentions(&atoms[**index])).map(|(at, _)| at);
    match (found.next(), found.next()) {
        (Some(at), None) => Some(at),
        _ => None,
    }
}

/// Halves at a boundary between names where there is one, so that a switch of types stays whole.
fn halves(atoms: &[Atom], mut members: Vec<usize>) -> (Vec<usize>, Vec<usize>) {
    let middle = members.len() / 2;
    let boundary = |at: &usize| atoms[members[*at - 1]].name != atoms[members[*at]].name;
    let nearest =
        (0..middle).flat_map(|away| [middle - away, middle + away]).filter(|at| (1..members.len()).contains(at));
    let at = nearest.into_iter().find(boundary).unwrap_or(middle);
    let second = members.split_off(at);
    (members, second)
}

#[cfg(test)]
#[path = "patch_tests.rs"]
mod tests;
