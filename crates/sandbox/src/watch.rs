//! Watches: a stream of events that follows a table's changes from a version on.
//!
//! ```text
//! start: initial ADDED events (when asked for) ─► changes after the cursor ─► wait for more ─► … ─► timeout
//!                                                └► bookmarks in between        └► too old: one ERROR 410, end
//! ```

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    Shared,
    api::{
        Ask,
        read::{Scope, check_list_options, version_wanted},
    },
    faults::WatchFate,
    kinds::Kind,
    render,
    request::Shape,
    signal::Listener,
    status::ApiError,
    store::{Change, Object},
    table,
    world::SandboxState,
};

/// Why a connection broke.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Watches shorter than this get no bookmark at their end.
const MIN_BOOKMARK: Duration = Duration::from_secs(1);

/// A watch that is being served.
pub(crate) struct Feed {
    shared: Arc<Shared>,
    kind: Arc<Kind>,
    scope: Scope,
    shape: Shape,
    include: String,
    cursor: u64,
    queue: VecDeque<Bytes>,
    signal: Listener,
    bookmarks: bool,
    columns_sent: bool,
    deadline: Instant,
    next_bookmark: Instant,
    crashed: CancellationToken,
    fate: WatchFate,
    breaks_at: Option<Instant>,
    sent: usize,
    /// The event plan's number of the next event, and how many sent events its decisions cover.
    event: u64,
    decided: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Deliver what is queued, then end.
    Closing,
    /// Deliver what is queued, then break.
    Breaking,
}

/// Opens a watch; the caller has locked the world.
pub(crate) fn open(
    shared: &Arc<Shared>,
    world: &mut SandboxState,
    ask: &Ask<'_>,
    shape: Shape,
    fate: WatchFate,
    crashed: CancellationToken,
) -> Result<Feed, ApiError> {
    let info = ask.info;
    check_list_options(info)?;
    let scope = Scope::parse(ask)?;
    let wanted = version_wanted(info)
        .map_err(|error| ApiError::unforeseen(error.message().trim_start_matches("invalid resource version: ")))?;
    let timeout = info.number("timeoutSeconds")?.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(3000);
    let now = world.store.version();
    let (signal, oldest) = {
        let table = world.store.open(&ask.kind.table);
        (table.subscribe(), table.oldest())
    };
    let initial =
        info.get("sendInitialEvents").map_or(wanted.unwrap_or_default() == 0, |_| info.flag("sendInitialEvents"));
    let bookmarks = info.flag("allowWatchBookmarks");
    let interval = shared.options.bookmark_interval;
    let mut feed = Feed {
        shared: shared.clone(),
        kind: ask.kind.clone(),
        scope,
        shape,
        include: info.get("includeObject").unwrap_or_default().to_owned(),
        cursor: wanted.filter(|wanted| *wanted > 0).unwrap_or(now),
        queue: VecDeque::new(),
        signal,
        bookmarks,
        columns_sent: false,
        deadline: Instant::now() + Duration::from_secs(timeout),
        next_bookmark: Instant::now() + interval.min(Duration::from_secs(timeout.saturating_sub(2)).max(MIN_BOOKMARK)),
        crashed,
        breaks_at: fate.break_after.map(|time| Instant::now() + time),
        fate,
        sent: 0,
        event: 0,
        decided: 0,
        state: State::Open,
    };
    if initial {
        feed.cursor = now;
        let existing = world.store.open(&ask.kind.table).read_at(now, &feed.scope.prefix, None).unwrap_or_default();
        for object in existing {
            if feed.scope.covers(&feed.kind, &object.value) {
                feed.push("ADDED", &object);
            }
        }
        if info.get("sendInitialEvents").is_some() && bookmarks {
            feed.queue.push_back(render::bookmark(&feed.kind, feed.shape, now, true));
        }
    } else if feed.cursor < oldest {
        let cursor = feed.cursor;
        feed.expire(&format!("too old resource version: {cursor} ({oldest})"));
    }
    Ok(feed)
}

impl Feed {
    fn push(&mut self, event: &str, object: &Object) {
        let now = self.shared.options.clock.now();
        let frame = if self.shape == Shape::Table {
            let shown = self.kind.show(&object.value);
            let value = shown.as_ref().unwrap_or(&object.value);
            let table = table::table(&self.kind, std::iter::once(value), &self.include, now, !self.columns_sent);
            self.columns_sent = true;
            render::event(event, &render::to_bytes(&table))
        } else {
            render::event(event, &render::one(&self.kind, self.shape, &self.include, object, now))
        };
        self.queue.push_back(frame);
    }

    fn expire(&mut self, message: &str) {
        let status = ApiError::expired(message).status;
        self.queue.push_back(render::event("ERROR", &render::to_bytes(&status)));
        self.state = State::Closing;
    }

    /// Turns the changes since the cursor into events.
    fn fetch(&mut self) {
        let shared = self.shared.clone();
        let world = shared.world();
        let Some(table) = world.store.table(&self.kind.table) else { return };
        let Ok(changes) = table.changes_after(self.cursor) else {
            self.expire("The resourceVersion for the provided watch is too old.");
            return;
        };
        let changes: Vec<Arc<Change>> =
            changes.filter(|change| change.key.starts_with(&self.scope.prefix)).cloned().collect();
        self.cursor = self.cursor.max(world.store.version());
        drop(world);
        for change in changes {
            let was = change.old.as_ref().is_some_and(|old| self.scope.covers(&self.kind, &old.value));
            let is = !change.removed && self.scope.covers(&self.kind, &change.new.value);
            match (was, is) {
                (false, true) => self.push("ADDED", &change.new),
                (true, true) => self.push("MODIFIED", &change.new),
                (true, false) if change.removed => self.push("DELETED", &change.new),
                (true, false) => {
                    // It is there, but no longer in scope: its last state in scope, under the version that took it out.
                    if let Some(old) = &change.old {
                        let mut last = old.value.clone();
                        last["metadata"]["resourceVersion"] = serde_json::Value::String(change.rv.to_string());
                        self.push("DELETED", &Object::new(last));
                    }
                }
                (false, false) => {}
            }
        }
    }

    /// The fault that is due before the next event, if any.
    fn due_fault(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        let sent = self.sent;
        let is_due = |after: Option<usize>| after.is_some_and(|after| sent >= after);
        if is_due(self.fate.cut) && !self.queue.is_empty() {
            let whole = self.queue.pop_front()?;
            self.stop(State::Breaking);
            return Some(Ok(Frame::data(whole.slice(..whole.len() / 2))));
        }
        if is_due(self.fate.expire) {
            self.stop(State::Closing);
            self.expire("too old resource version: 1 (2)");
        } else if is_due(self.fate.end) {
            self.stop(State::Closing);
        } else if self.breaks_at.is_some_and(|time| Instant::now() >= time) {
            self.stop(State::Breaking);
        }
        None
    }

    /// Drops what is queued and all faults to come.
    fn stop(&mut self, state: State) {
        self.queue.clear();
        self.fate = WatchFate::default();
        self.breaks_at = None;
        self.state = state;
    }

    /// Delays and repeats the event at the head of the queue as the event plan wants it.
    async fn meet_event_plan(&mut self) {
        let Some(frame) = self.queue.front().cloned() else { return };
        // A repeated event has been decided about with the first of its copies.
        if self.decided > self.sent {
            return;
        }
        let fate = self.fate.events.as_ref().map(|plan| plan.fate(self.event)).unwrap_or_default();
        self.event += 1;
        let repeatable = [&b"{\"type\":\"B"[..], b"{\"type\":\"E"].iter().all(|start| !frame.starts_with(start));
        let repeats = if repeatable { fate.repeats } else { 0 };
        self.decided = self.sent + 1 + repeats;
        for _ in 0..repeats {
            self.queue.push_front(frame.clone());
        }
        if !fate.delay.is_zero() {
            let until = Instant::now() + fate.delay;
            let until = self.breaks_at.map_or(until, |time| time.min(until));
            if tokio::time::timeout_at(until, self.crashed.cancelled()).await.is_ok() {
                self.stop(State::Breaking);
            }
        }
    }

    /// The next piece of the body.
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, BoxError>> {
        loop {
            if self.fate.events.is_some() && self.state != State::Breaking {
                self.meet_event_plan().await;
            }
            if let Some(frame) = self.due_fault() {
                return Some(frame);
            }
            if let Some(frame) = self.queue.pop_front() {
                self.sent += 1;
                return Some(Ok(Frame::data(frame)));
            }
            match self.state {
                State::Closing => return None,
                State::Breaking => {
                    self.state = State::Closing;
                    return Some(Err("connection reset by peer".into()));
                }
                State::Open => {}
            }
            let open = self.signal.is_open();
            self.signal.mark_seen();
            self.fetch();
            if !self.queue.is_empty() || self.state != State::Open {
                continue;
            }
            if !open {
                self.state = State::Closing;
                continue;
            }
            let bookmark_at = if self.bookmarks { self.next_bookmark.min(self.deadline) } else { self.deadline };
            let wake_at = self.breaks_at.map_or(bookmark_at, |time| time.min(bookmark_at));
            tokio::select! {
                biased;
                () = self.crashed.cancelled() => self.state = State::Breaking,
                changed = self.signal.changed() => if changed.is_err() {
                    self.fetch();
                    if self.state == State::Open {
                        self.state = State::Closing;
                    }
                },
                () = tokio::time::sleep_until(wake_at) => {
                    if wake_at < bookmark_at {
                        continue;
                    }
                    if self.bookmarks && Instant::now() < self.deadline {
                        self.fetch();
                        if self.state == State::Open {
                            self.queue.push_back(render::bookmark(&self.kind, self.shape, self.cursor, false));
                            self.next_bookmark = Instant::now() + self.shared.options.bookmark_interval;
                        }
                    }
                    if Instant::now() >= self.deadline {
                        self.state = State::Closing;
                    }
                }
            }
        }
    }

    /// The body of the response.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Frame<Bytes>, BoxError>> {
        futures::stream::unfold(self, |mut feed| async move { feed.next().await.map(|frame| (frame, feed)) })
    }
}
