//! Writes to a Pi-hole v6.
//!
//! ```text
//! one or two changes ──────────────► PUT and DELETE of exactly these lines: no foreign line is in the request
//! more, or an address that changes ─► read the list ─► one PATCH of the whole list, every other line in its place
//! too large for one PATCH ─────────► one PATCH filled up to the limit, the rest by PUT and DELETE, additions first
//! ```
//! A PATCH replaces the list, and a Pi-hole has no versions: a foreign change between the read and the PATCH is undone. Single
//! lines avoid that, so they are used where they cost little.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};

use reqwest::Method;
use serde_json::json;

use super::{List, V6Dialect, judge};
use crate::error::PiholeError;
use crate::http::{Reply, element};
use crate::line::Line;
use crate::spec::note;
use crate::{ApplyResult, ChangeSet};

/// Pi-hole drops request bodies above 64 KiB; some room is left for headers it may count in.
pub(super) const PATCH_CAP: usize = 60 * 1024;
/// Below this a PATCH is not worth its risk.
const SMALLEST_CAP: usize = 4 * 1024;
/// How many of our lines may be refused one after another before the rest is sent line by line.
const REFUSALS: usize = 16;

/// How one PATCH ended when it did not fail.
enum Patched {
    /// Written (or there was nothing to write), without these additions, for which there was no room.
    Done { left_out: Vec<Line> },
    /// Not even the list as it is fits into one request.
    TooLarge,
}

/// The changes of a list, and how many of them the next PATCH takes.
struct Batch<'a> {
    add: Vec<&'a Line>,
    remove: Vec<&'a Line>,
}

impl Batch<'_> {
    /// Takes a refused line out. A refused line replaces nothing: the line that it was to replace is kept.
    fn drop_line(&mut self, line: &Line) {
        self.add.retain(|candidate| *candidate != line);
        self.remove.retain(|old| !line.replaces(old));
    }
}

/// A list after a change, filled up to a limit.
struct Filled<'a> {
    lines: Vec<&'a Line>,
    left_out: Vec<Line>,
    changed: bool,
}

/// `before` without `remove` and with as much of `add` at its end as a body of `cap` bytes has room for; None when not even the rest of the list fits.
/// A line that is replaced is kept until its successor is there.
fn fill<'a>(before: &'a [Line], add: &[&'a Line], remove: &[&Line], cap: usize) -> Option<Filled<'a>> {
    let size = |line: &Line| serde_json::to_string(line.as_str()).map_or(usize::MAX / 4, |text| text.len() + 1);
    let removed: BTreeSet<Line> = remove.iter().map(|line| line.tidy()).collect();
    let successors: BTreeSet<_> = add.iter().filter_map(|line| line.subject()).collect();
    let mut present = BTreeSet::new();
    let mut replaced: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    let mut lines: Vec<Option<&Line>> = Vec::with_capacity(before.len() + add.len());
    let mut bytes = json!({"config": {"dns": {"cnameRecords": []}}}).to_string().len();
    for line in before {
        let tidy = line.tidy();
        if removed.contains(&tidy) {
            match line.subject().filter(|subject| successors.contains(subject)) {
                Some(subject) => replaced.entry(subject).or_default().push(lines.len()),
                None => continue,
            }
        }
        present.insert(tidy);
        bytes += size(line);
        lines.push(Some(line));
    }
    let mut left_out = Vec::new();
    for new in add.iter().copied() {
        let tidy = new.tidy();
        let old: Vec<usize> = new.subject().and_then(|subject| replaced.get(&subject).cloned()).unwrap_or_default();
        // A line that differs by its blanks only is there already.
        let old = old.into_iter().filter(|place| lines[*place].is_some_and(|line| line.tidy() != tidy));
        let old: Vec<usize> = old.collect();
        let freed: usize = old.iter().filter_map(|place| lines[*place]).map(size).sum();
        let own = if present.contains(&tidy) { 0 } else { size(new) };
        if bytes + own > cap + freed {
            left_out.push(new.clone());
            continue;
        }
        bytes = bytes + own - freed;
        for place in old {
            lines[place] = None;
        }
        if own > 0 {
            lines.push(Some(new));
        }
    }
    let lines: Vec<&Line> = lines.into_iter().flatten().collect();
    let changed = lines.len() != before.len() || lines.iter().zip(before).any(|(new, old)| **new != *old);
    (bytes <= cap).then_some(Filled { lines, left_out, changed })
}

impl V6Dialect {
    /// Reads a list and replaces it, right after, by itself without `remove` and with `add` at its end.
    async fn patch_once(
        &self,
        list: List,
        add: &[&Line],
        remove: &[&Line],
        writes: &AtomicU32,
        sent: &mut Option<Vec<Line>>,
    ) -> Result<Patched, PiholeError> {
        let before = self.read(list).await?;
        loop {
            let cap = self.patch_cap.load(Ordering::Relaxed);
            let Some(filled) = fill(&before, add, remove, cap) else { return Ok(Patched::TooLarge) };
            if list == List::Cnames && !filled.left_out.is_empty() {
                return Ok(Patched::TooLarge);
            }
            let left_out = filled.left_out;
            if !filled.changed {
                return Ok(if left_out.is_empty() { Patched::Done { left_out } } else { Patched::TooLarge });
            }
            let lines: Vec<&str> = filled.lines.iter().map(|line| line.as_str()).collect();
            let body = json!({ "config": { "dns": { list.key(): lines } } });
            writes.fetch_add(1, Ordering::Relaxed);
            let reply = self.sessions.call(Method::PATCH, &list.path(), Some(&body)).await;
            if may_take_effect(&reply) {
                *sent = Some(filled.lines.iter().map(|line| (*line).clone()).collect());
            }
            let reply = reply?;
            match reply.status.as_u16() {
                200..=299 => return Ok(Patched::Done { left_out }),
                400 if reply.error_body().message.contains("No request body data") => {
                    // This server (or a proxy before it) takes less: the limit applies to later requests too.
                    let smaller = body.to_string().len() * 3 / 4;
                    self.patch_cap.store(smaller, Ordering::Relaxed);
                    if smaller < SMALLEST_CAP {
                        return Ok(Patched::TooLarge);
                    }
                }
                400 => return Err(blame(&reply, list, &filled.lines, add).unwrap_or_else(|| judge(reply))),
                _ => return Err(judge(reply)),
            }
        }
    }

    /// One PATCH of `dns.hosts`, repeated without the lines of ours that are refused; what is left to be sent one by one.
    async fn patch_hosts(&self, add: &[Line], remove: &[Line], applied: &mut ApplyResult) -> (Vec<Line>, Vec<Line>) {
        let mut batch = Batch { add: add.iter().collect(), remove: remove.iter().collect() };
        for _ in 0..=REFUSALS {
            let result = self.patched(List::Hosts, &batch.add, &batch.remove, applied).await;
            match result {
                Ok(Patched::Done { left_out }) => {
                    let replaced = |old: &&&Line| left_out.iter().any(|new| new.replaces(old));
                    let remove = batch.remove.iter().filter(replaced).map(|line| (*line).clone()).collect();
                    return (left_out, remove);
                }
                Ok(Patched::TooLarge) => break,
                Err(PiholeError::LineRefused { line, why }) => {
                    batch.drop_line(&line);
                    applied.refused.push((line.clone(), PiholeError::LineRefused { line, why }));
                }
                Err(error) => {
                    applied.stopped = Some(error);
                    return (Vec::new(), Vec::new());
                }
            }
        }
        (batch.add.into_iter().cloned().collect(), batch.remove.into_iter().cloned().collect())
    }

    /// One PATCH of `dns.cnameRecords`, without the aliases that are refused.
    ///
    /// The resolver refuses its whole configuration and quotes a line of it; where that line is not ours, the refused alias is found by
    /// sending fewer and fewer of them. A refused write restarts nothing; the first accepted one does, so the rest waits for the next time.
    async fn patch_aliases(&self, add: &[Line], remove: &[Line], applied: &mut ApplyResult) {
        let mut batch = Batch { add: add.iter().collect(), remove: remove.iter().collect() };
        let mut size = batch.add.len();
        for _ in 0..=REFUSALS {
            let (now, later) = batch.add.split_at(size);
            // A line that is replaced is kept until its successor is there.
            let removed: Vec<&Line> =
                batch.remove.iter().copied().filter(|old| !later.iter().any(|new| new.replaces(old))).collect();
            let result = self.patched(List::Cnames, now, &removed, applied).await;
            let (line, why) = match result {
                Ok(Patched::Done { .. }) => {
                    applied.postponed.extend(later.iter().map(|line| (*line).clone()));
                    return;
                }
                Ok(Patched::TooLarge) => {
                    applied.aliases = Some(PiholeError::TooLarge { list: List::Cnames.name() });
                    return;
                }
                Err(PiholeError::LineRefused { line, why }) => (line, why),
                Err(PiholeError::Rejected { status: 400, detail }) if size > 0 => match quoted(&detail, now) {
                    Some(line) => (line.clone(), format!("status 400{detail}")),
                    None if size > 1 => {
                        size /= 2;
                        continue;
                    }
                    None => (now[0].clone(), format!("status 400{detail}")),
                },
                Err(
                    error @ (PiholeError::EnvLocked { .. }
                    | PiholeError::BadForeignLine { .. }
                    | PiholeError::Rejected { status: 400, .. }),
                ) => {
                    applied.aliases = Some(error);
                    return;
                }
                Err(error) => {
                    applied.stopped = Some(error);
                    return;
                }
            };
            batch.drop_line(&line);
            size = batch.add.len();
            applied.refused.push((line.clone(), PiholeError::LineRefused { line, why }));
        }
        // Those that were found are not sent again, so the next attempt gets further.
        applied.postponed.extend(batch.add.into_iter().cloned());
    }

    async fn patched(
        &self,
        list: List,
        add: &[&Line],
        remove: &[&Line],
        applied: &mut ApplyResult,
    ) -> Result<Patched, PiholeError> {
        let writes = AtomicU32::new(0);
        let sent = tokio::sync::Mutex::new(None);
        let attempt = || async { self.patch_once(list, add, remove, &writes, &mut *sent.lock().await).await };
        let result = self.http().quickly(attempt).await;
        applied.writes += writes.into_inner();
        if list == List::Hosts {
            applied.sent = sent.into_inner().or(applied.sent.take());
        }
        result
    }

    async fn put(&self, list: List, line: &Line) -> Result<(), PiholeError> {
        let path = format!("{}/{}", list.path(), element(line.as_str()));
        let reply = self.http().quickly(|| self.sessions.call(Method::PUT, &path, None)).await?;
        match reply.status.as_u16() {
            200..=299 => Ok(()),
            400 if reply.error_body().message.contains("already present") => Ok(()),
            400 if index_in(&reply.error_body().hint, list).is_some() => {
                // The whole list is checked on every addition: find out which line is invalid.
                let mut lines = self.http().quickly(|| self.read(list)).await?;
                lines.push(line.clone());
                let lines: Vec<&Line> = lines.iter().collect();
                Err(blame(&reply, list, &lines, &[line]).unwrap_or_else(|| judge(reply)))
            }
            404 if is_ftls_404(&reply) => {
                Err(PiholeError::LineRefused { line: line.clone(), why: "status 404: no such list or element".into() })
            }
            _ => Err(judge(reply)),
        }
    }

    async fn delete(&self, list: List, line: &Line) -> Result<(), PiholeError> {
        let path = format!("{}/{}", list.path(), element(line.as_str()));
        let reply = self.http().quickly(|| self.sessions.call(Method::DELETE, &path, None)).await?;
        match reply.status.as_u16() {
            200..=299 | 404 => Ok(()),
            _ => Err(judge(reply)),
        }
    }

    /// Adds and removes lines of `dns.hosts` one at a time, additions first.
    async fn one_by_one(&self, add: &[Line], remove: &[Line], applied: &mut ApplyResult) {
        if add.is_empty() && remove.is_empty() {
            return;
        }
        if let Err(error) = self.http().quickly(|| self.sessions.refuse_read_only()).await {
            applied.stopped = Some(error);
            return;
        }
        let mut added = false;
        for line in add {
            if applied.refused.iter().any(|(refused, _)| refused == line) {
                continue;
            }
            applied.writes += 1;
            added = true;
            let result = self.put(List::Hosts, line).await;
            if !note(applied, line, result) {
                return;
            }
        }
        let remove: Vec<&Line> =
            remove.iter().filter(|line| !applied.refused.iter().any(|(refused, _)| refused.replaces(line))).collect();
        // An addition tidies every line, and a line is deleted by the text that it has now.
        let now = if added && !remove.is_empty() {
            match self.http().quickly(|| self.read(List::Hosts)).await {
                Ok(lines) => Some(lines),
                Err(error) => {
                    applied.stopped = Some(error);
                    return;
                }
            }
        } else {
            None
        };
        for line in remove {
            let stored = now.as_ref().and_then(|now| now.iter().find(|stored| stored.tidy() == line.tidy()));
            applied.writes += 1;
            let result = self.delete(List::Hosts, stored.unwrap_or(line)).await;
            if !note(applied, line, result) {
                return;
            }
        }
    }

    async fn write_hosts(&self, changes: &ChangeSet, applied: &mut ApplyResult) {
        let (add, remove) = (&changes.add_hosts, &changes.remove_hosts);
        let replaces = add.iter().any(|new| remove.iter().any(|old| new.replaces(old)));
        match add.len() + remove.len() {
            0 => {}
            1 | 2 if !replaces => self.one_by_one(add, remove, applied).await,
            _ => {
                let (add, remove) = self.patch_hosts(add, remove, applied).await;
                self.one_by_one(&add, &remove, applied).await;
            }
        }
        // A foreign invalid line blocks additions, but not deletions.
        if let Some(PiholeError::BadForeignLine { .. }) = applied.stopped {
            let stopped = applied.stopped.take();
            let removed: Vec<Line> =
                remove.iter().filter(|old| !add.iter().any(|new| new.replaces(old))).cloned().collect();
            self.one_by_one(&[], &removed, applied).await;
            applied.stopped = applied.stopped.take().or(stopped);
        }
    }

    pub(super) async fn write(&self, changes: &ChangeSet) -> ApplyResult {
        let _one_at_a_time = self.writing.lock().await;
        let mut applied = ApplyResult::default();
        self.write_hosts(changes, &mut applied).await;
        // An invalid line among the addresses does not concern aliases.
        let may_go_on = matches!(applied.stopped, None | Some(PiholeError::BadForeignLine { .. }));
        if may_go_on && changes.touches_cnames() > 0 {
            self.patch_aliases(&changes.add_cnames, &changes.remove_cnames, &mut applied).await;
        }
        if applied.stopped == Some(PiholeError::CommentsRefused) {
            self.refuses_comments.store(true, Ordering::Relaxed);
        }
        applied
    }
}

/// Whether a request was accepted, or may still be carried out: no answer of the Pi-hole itself has come.
fn may_take_effect(reply: &Result<Reply, PiholeError>) -> bool {
    match reply {
        Ok(reply) => matches!(reply.status.as_u16(), 200..=299 | 502..=504),
        Err(error) => matches!(error, PiholeError::Timeout | PiholeError::Unreachable { .. }),
    }
}

/// Reads `dns.hosts[7]: …`.
fn index_in(hint: &str, list: List) -> Option<usize> {
    let (_, rest) = hint.split_once(&format!("{}[", list.name()))?;
    rest.split_once(']')?.0.parse().ok()
}

/// The line that a validation error is about.
fn blame(reply: &Reply, list: List, sent: &[&Line], ours: &[&Line]) -> Option<PiholeError> {
    let error = reply.error_body();
    let index = index_in(&error.hint, list)?;
    let line = sent.get(index)?;
    if !ours.contains(line) {
        let line = line.as_str().chars().take(200).collect();
        return Some(PiholeError::BadForeignLine { list: list.name(), index, line });
    }
    // FTL before 6.0.3 takes the comment for a name and quotes it.
    if list == List::Hosts && line.is_marked() && error.hint.contains("(\"#\")") {
        return Some(PiholeError::CommentsRefused);
    }
    Some(PiholeError::LineRefused { line: (*line).clone(), why: error.hint })
}

/// The only line of ours that the resolver's message can be about: it quotes the line that was written for it, maybe without its first characters.
fn quoted<'a>(detail: &str, ours: &[&'a Line]) -> Option<&'a Line> {
    let text = detail.trim_end().strip_suffix('"')?.rsplit_once('"')?.1.trim();
    let is_meant = |line: &&&Line| {
        let raw = line.as_str();
        let value = raw.split_once(" #").map_or(raw, |(value, _)| value).trim();
        // Less than that could be the end of many lines.
        text.len() + "cname=".len() >= value.len() && format!("cname={value}").ends_with(text)
    };
    let mut meant = ours.iter().filter(is_meant);
    match (meant.next(), meant.next()) {
        (Some(line), None) => Some(line),
        _ => None,
    }
}

/// FTL's own answer to a path that does not exist: an object with nothing but the time it took. A proxy's is another one.
fn is_ftls_404(reply: &Reply) -> bool {
    let value = reply.json();
    value.as_ref().and_then(serde_json::Value::as_object).is_some_and(|object| object.keys().all(|key| key == "took"))
}
