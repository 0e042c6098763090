//! The stream of one kind: list, watch, and recovery when either fails.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    api::{ListParams, WatchEvent, WatchParams},
    core::{Request, Status},
};
use rand::{SeedableRng, rngs::StdRng};
use signpost_planning::Reason;
use tokio::time::{Instant, timeout};

use super::{
    Fold, KindState, KindStatus, Shared, Watched, check_of,
    guard::Guarded,
    page::Page,
    seen::{SeenVersions, VersionChange},
};
use crate::{
    events::{Event, EventKind},
    object::{Identity, Kind, ObjectId, version_of},
    queue::{jittered, transient_delay},
    write::WriteError,
};

/// Longest time for one page of a list, or for the start of a watch.
const ANSWER: Duration = Duration::from_secs(30);
/// A watch that is silent for so much longer than the server keeps it open has lost its connection unnoticed.
const OVERDUE: Duration = Duration::from_secs(5);
/// Longest time that the first list waits for the answer about the lease.
const FIRST_ANSWER: Duration = Duration::from_secs(1);
/// How often a kind that is not installed is checked for.
const MISSING: Duration = Duration::from_secs(5);
/// How often a missing permission is checked again.
const FORBIDDEN: Duration = Duration::from_secs(10);
/// A watch that follows one that expired is current once it has lasted this long, or has delivered something.
const SETTLED: Duration = Duration::from_secs(1);
/// Why a view is not current when every watch, or every list, expires.
const EXPIRES: &str = "the API server no longer keeps the version that was asked for (410), again and again";
/// After this many lists in a row that are older than what was seen, the cluster counts as restored from an older state.
const STALE_LISTS: u32 = 20;
/// After this many failures of a page in a row, the list starts again.
const PAGE_TRIES: u32 = 5;
/// After this many failures of a watch in a row without an event, a new list is made.
const WATCH_TRIES: u32 = 5;
/// After this long without a watch, a new list is made although a missing permission or throttling is not solved by it: the view would not
/// change otherwise.
const UNWATCHED: Duration = Duration::from_mins(5);
/// Unreadable objects whose event waits until this replica leads; further ones get none.
const PENDING_EVENTS: usize = 50;

pub(super) struct KindStream<K> {
    shared: Shared,
    /// `plural.group` and the selectors, in metrics and checks.
    name: &'static str,
    kind: &'static Kind,
    /// Whose objects are listed; `None` for all namespaces.
    namespace: Option<String>,
    url: String,
    fold: Fold<K>,
    seen: SeenVersions,
    rng: StdRng,
    /// Whether this replica led when the last list began.
    leads: bool,
    failures: u32,
    stale_since: Option<Timestamp>,
    /// The newest version seen, and how many lists in a row were older.
    newest: u64,
    older_lists: u32,
    pending_events: Vec<Event>,
}

/// Why a list or a watch ended early.
#[derive(Debug)]
enum Failure {
    Missing,
    Forbidden(&'static str),
    /// The version asked for is too old.
    Expired,
    Throttled(Option<Duration>, String),
    Other(String),
}

impl Failure {
    fn of(verb: &'static str, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(verb, *status),
            other => Self::Other(format!("{verb}: {other}")),
        }
    }

    fn of_status(verb: &'static str, status: Status) -> Self {
        let text = format!("{verb}: {} {}", status.code, status.message);
        match (status.code, WriteError::from(status)) {
            (404, _) => Self::Missing,
            (403, _) => Self::Forbidden(verb),
            (410, _) => Self::Expired,
            (_, WriteError::Throttled(after)) => Self::Throttled(after, text),
            _ => Self::Other(text),
        }
    }
}

impl<K: Watched> KindStream<K> {
    pub(super) fn new(shared: Shared, name: &'static str, fold: Fold<K>) -> Self {
        let namespace = fold.scope.namespace.clone().or(shared.namespace.clone()).filter(|_| is_namespaced::<K>());
        let url = K::url_path(&(), namespace.as_deref());
        if fold.compared.whole {
            shared.writer.view_of(Kind::of::<K>(), name, namespace.as_deref(), false);
        }
        // Each kind has its own jitter, so that they do not all retry at the same moment.
        let seed = name.bytes().fold(shared.seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
        Self {
            shared,
            name,
            kind: Kind::of::<K>(),
            namespace,
            url,
            fold,
            seen: SeenVersions::default(),
            rng: StdRng::seed_from_u64(seed),
            leads: false,
            failures: 0,
            stale_since: None,
            newest: 0,
            older_lists: 0,
            pending_events: Vec::new(),
        }
    }

    /// Lists and watches until it is dropped.
    pub(super) async fn run(mut self) {
        let election = self.shared.election.clone();
        // A list is fresh if this replica led when it began: then the leader before can have published nothing that the list lacks. When this
        // replica is elected, whatever it does here is given up for a new list. So that a start with a free lease lists once, the first list
        // waits a moment for the answer about the lease.
        election.first_answer(FIRST_ANSWER).await;
        loop {
            self.leads = election.is_won();
            tokio::select! {
                biased;
                () = election.won(), if !self.leads => self.elected(),
                () = self.list_and_watch() => {}
            }
        }
    }

    /// This replica leads from now on. What it knew before does not count until the kind is listed again, also that the kind was missing.
    fn elected(&mut self) {
        self.set(&KindState::Listing);
    }

    /// A list, and the watch that follows it until a new list is needed. It may be dropped at any point: a list that does not end deletes
    /// nothing.
    async fn list_and_watch(&mut self) {
        match self.list().await {
            Ok(version) => {
                self.shared.metrics.list(self.name, "complete");
                self.watch(version).await;
            }
            Err(failure) => {
                self.shared.metrics.list(self.name, "failed");
                self.wait_after(failure).await;
            }
        }
    }

    /// Processes a complete list and returns the version to watch from. A list that fails half-way deletes nothing.
    async fn list(&mut self) -> Result<String, Failure> {
        self.seen.begin();
        // The latest version, not the server's cache: an older view could miss objects that exist, and the server does not page a cached
        // list.
        let mut params = ListParams {
            label_selector: self.fold.scope.labels.clone(),
            field_selector: self.fold.scope.fields.clone(),
            ..ListParams::default().limit(self.shared.page_size)
        };
        let unlisted = |error| Failure::of("list", error);
        let mut tries = 0;
        loop {
            let page = match timeout(ANSWER, self.page(&params)).await {
                Ok(page) => page.map_err(unlisted),
                Err(_) => Err(Failure::Other(format!("list: no answer within {ANSWER:?}"))),
            };
            let page = match page {
                // One bad answer does not discard the pages before it.
                Err(failure @ (Failure::Other(_) | Failure::Throttled(..)))
                    if params.continue_token.is_some() && tries < PAGE_TRIES =>
                {
                    tries += 1;
                    self.wait_after(failure).await;
                    continue;
                }
                page => page?,
            };
            self.failures -= tries;
            tries = 0;
            self.refuse_older(page.metadata.resource_version.as_deref())?;
            page.each(|object| self.fold(object)).map_err(|error| unlisted(kube::Error::SerdeError(error)))?;
            if let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) {
                params.continue_token = Some(token);
                continue;
            }
            let Some(version) = page.metadata.resource_version.filter(|version| !version.is_empty()) else {
                return Err(Failure::Other("list: the answer has no resourceVersion".to_owned()));
            };
            for id in self.seen.complete(self.kind) {
                self.deleted(&id);
            }
            let lost = self.fold.compared.whole && {
                self.shared.writer.listed(self.kind, self.name, version_of(Some(&version)))
            };
            for index in &self.fold.indexes {
                if lost {
                    index.children_lost();
                }
                index.listed();
            }
            self.count_list();
            return Ok(version);
        }
    }

    async fn page(&self, params: &ListParams) -> kube::Result<Page> {
        let request = Request::new(&self.url);
        let request = if self.fold.scope.metadata_only { request.list_metadata(params) } else { request.list(params) };
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert("list");
        Page::parse(self.shared.client.request_text(request).await?).map_err(kube::Error::SerdeError)
    }

    /// A list older than what was seen would delete the objects created since. Versions of one kind can be compared.
    fn refuse_older(&mut self, version: Option<&str>) -> Result<(), Failure> {
        let Some(version) = version.and_then(|version| version.parse::<u64>().ok()) else { return Ok(()) };
        if version < self.newest && self.older_lists < STALE_LISTS {
            self.older_lists += 1;
            return Err(Failure::Other("list: the answer is older than what was seen before".to_owned()));
        }
        if version < self.newest {
            tracing::warn!(kind = self.kind.name, "the cluster was restored from an older state; its state is taken");
            self.seen.rewind();
            self.shared.writer.rewound();
            for index in &self.fold.indexes {
                index.rewound();
            }
        }
        self.older_lists = 0;
        self.newest = version;
        Ok(())
    }

    fn saw(&mut self, version: &str) {
        self.newest = self.newest.max(version.parse().unwrap_or(0));
    }

    /// Follows changes until a new list is needed.
    async fn watch(&mut self, mut version: String) {
        let mut tries = 0;
        // When a watch last delivered something, or ended in order.
        let mut watched = Instant::now();
        loop {
            let ended = self.watch_once(&mut version, &mut tries).await;
            if ended.is_ok() || tries == 0 {
                watched = Instant::now();
            }
            match ended {
                Ok(()) => {}
                Err(Failure::Expired) => {
                    tracing::debug!(kind = self.kind.name, "watch expired: listing again");
                    self.failures = self.failures.saturating_add(1);
                    if self.failures > 1 {
                        let state = self.stale(EXPIRES.to_owned());
                        self.set(&state);
                        tokio::time::sleep(transient_delay(self.failures - 1, &mut self.rng)).await;
                    }
                    return;
                }
                // The kind was removed from the cluster; the next list finds out when it is back.
                Err(Failure::Missing) => return,
                Err(failure) => {
                    self.shared.metrics.watch_error(self.name);
                    tries += 1;
                    let give_up = match failure {
                        Failure::Forbidden(_) | Failure::Throttled(..) => watched.elapsed() >= UNWATCHED,
                        Failure::Other(_) | Failure::Missing | Failure::Expired => tries >= WATCH_TRIES,
                    };
                    self.wait_after(failure).await;
                    if give_up {
                        return;
                    }
                }
            }
        }
    }

    /// One watch request, from `version`, until the server ends it.
    async fn watch_once(&mut self, version: &mut String, tries: &mut u32) -> Result<(), Failure> {
        let started = Instant::now();
        let mut events = match timeout(ANSWER, self.open(version)).await {
            Ok(events) => events.map_err(|error| Failure::of("watch", error))?.boxed(),
            Err(_) => return Err(Failure::Other(format!("watch: no answer within {ANSWER:?}"))),
        };
        // A watch may be accepted and then expire at once, each time.
        let mut settled = self.failures <= 1;
        let silence = self.shared.watch + OVERDUE;
        if settled {
            self.synced();
        }
        loop {
            let event = match timeout(if settled { silence } else { SETTLED }, events.try_next()).await {
                Ok(Ok(Some(event))) => event,
                Err(_) if !settled => {
                    settled = true;
                    self.failures = 0;
                    self.synced();
                    continue;
                }
                Ok(Ok(None)) => break,
                // An event that cannot be parsed at all is an event lost: only a list can make up for it.
                Ok(Err(kube::Error::SerdeError(_))) => return Err(Failure::Expired),
                Ok(Err(error)) => return Err(Failure::of("watch", error)),
                Err(_) => {
                    tracing::info!(kind = self.kind.name, "watch was silent for {silence:?}: opening it again");
                    return Ok(());
                }
            };
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    if let Some(newer) = &kube::Resource::meta(&object).resource_version {
                        version.clone_from(newer);
                    }
                    self.shared.metrics.watch_event(self.name);
                    self.fold(object);
                }
                WatchEvent::Deleted(object) => {
                    let meta = kube::Resource::meta(&object);
                    if let Some(newer) = &meta.resource_version {
                        version.clone_from(newer);
                    }
                    self.shared.metrics.watch_event(self.name);
                    let id = self.id_of(meta);
                    if self.seen.remove(meta) {
                        self.deleted(&id);
                    }
                }
                WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(Failure::of_status("watch", *status)),
            }
            *tries = 0;
            self.failures = 0;
            self.saw(version);
            if !settled {
                settled = true;
                self.synced();
            }
            self.count_objects(true);
            self.record_pending();
        }
        if started.elapsed() < Duration::from_secs(1) {
            // A server that ends every watch at once must not be asked in a tight loop.
            *tries += 1;
            let pause = transient_delay((*tries).min(4), &mut self.rng);
            tokio::time::sleep(pause).await;
        } else {
            *tries = 0;
            self.failures = 0;
        }
        Ok(())
    }

    async fn open(
        &self,
        version: &str,
    ) -> kube::Result<impl futures::Stream<Item = kube::Result<WatchEvent<Guarded<K>>>> + use<K>> {
        let params = WatchParams {
            label_selector: self.fold.scope.labels.clone(),
            field_selector: self.fold.scope.fields.clone(),
            timeout: Some(u32::try_from(self.shared.watch.as_secs()).unwrap_or(u32::MAX)),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = Request::new(&self.url);
        let request = if self.fold.scope.metadata_only {
            request.watch_metadata(&params, version)
        } else {
            request.watch(&params, version)
        };
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert("watch");
        self.shared.client.request_events(request).await
    }

    fn fold(&mut self, object: Guarded<K>) {
        let meta = kube::Resource::meta(&object);
        let id = self.id_of(meta);
        if id.name.is_empty() {
            tracing::warn!(kind = self.kind.name, "an object without a name is ignored");
            return;
        }
        match self.seen.note(meta, matches!(object, Guarded::Good { .. })) {
            VersionChange::Seen => return,
            VersionChange::Beside => {}
            VersionChange::Replaced => {
                self.deleted(&id);
                self.shared.writer.object_arrived();
            }
            VersionChange::Wanted => self.shared.writer.object_arrived(),
        }
        match object {
            Guarded::Good { object, applied } => {
                self.compare(&id, object.meta(), applied.as_deref());
                for index in &self.fold.indexes {
                    index.applied(&object);
                }
            }
            Guarded::Bad { meta, error } => {
                let event = self.unreadable(&meta, &error);
                tracing::warn!(object = %id, note = event.note, "object cannot be read");
                if self.pending_events.len() < PENDING_EVENTS {
                    self.pending_events.push(event);
                }
                let object = Identity::of_meta(Arc::new(id), &meta);
                for index in &self.fold.indexes {
                    index.unreadable(&object, &error);
                }
            }
        }
    }

    /// The event for the owner of an unreadable object.
    fn unreadable(&self, meta: &ObjectMeta, error: &str) -> Event {
        let finalizers = meta.finalizers.as_deref().unwrap_or_default();
        let note = if meta.deletion_timestamp.is_some() && !finalizers.is_empty() {
            format!(
                "the object is being deleted but cannot be read, so what was published for it is kept, and so are its finalizers ({}). Apply it again in a valid form, or remove the finalizers by hand: {error}",
                finalizers.join(", ")
            )
        } else {
            format!("the object cannot be read; what was known of it is kept. Apply it again in a valid form: {error}")
        };
        let object = Identity::of_meta(Arc::new(self.id_of(meta)), meta).reference();
        Event { object, kind: EventKind::Warning, reason: Reason::Unreadable.to_string(), note }
    }

    /// Records the events that waited until this replica leads.
    fn record_pending(&mut self) {
        if self.shared.writer.may_write() {
            for event in self.pending_events.drain(..) {
                self.shared.recorder.record_once(event);
            }
        }
    }

    fn deleted(&self, id: &ObjectId) {
        self.shared.writer.forget(id);
        self.shared.refusals.forget(id);
        for index in &self.fold.indexes {
            index.deleted(id);
        }
    }

    fn id_of(&self, meta: &ObjectMeta) -> ObjectId {
        ObjectId::of_kind(self.kind, meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    /// Passes the API server's state of the fields that we applied to the writer.
    fn compare(&self, id: &ObjectId, meta: &ObjectMeta, applied: Option<&serde_json::Value>) {
        if self.fold.compared != super::Compared::default() {
            let uid = meta.uid.as_deref().unwrap_or_default();
            let version = version_of(meta.resource_version.as_deref());
            let deleting = meta.deletion_timestamp.is_some();
            self.shared.writer.saw(id, uid, version, deleting, applied, self.fold.compared);
        }
    }

    /// Counts a complete list, and the objects after it.
    fn count_list(&self) {
        let mut synced = false;
        self.shared.kinds.send_modify(|kinds| {
            if let Some(kind) = kinds.get_mut(self.name) {
                kind.lists += 1;
                kind.old |= !self.leads;
                synced = kind.state == KindState::Synced;
            }
        });
        self.count_objects(synced);
    }

    fn count_objects(&self, synced: bool) {
        let (objects, unreadable) = self.seen.count();
        self.shared.metrics.kind(self.name, objects, unreadable, synced);
    }

    fn synced(&mut self) {
        if self.stale_since.take().is_some() {
            tracing::info!(kind = self.kind.name, "view is current again");
        }
        self.record_pending();
        self.set(&KindState::Synced);
    }

    /// Reports the failure and waits as long as its class requires.
    async fn wait_after(&mut self, failure: Failure) {
        self.failures = self.failures.saturating_add(1);
        let (state, delay) = match failure {
            Failure::Missing => (KindState::Missing, MISSING),
            Failure::Forbidden(verb) => (KindState::Forbidden { verb }, jittered(FORBIDDEN, &mut self.rng)),
            Failure::Expired if self.failures == 1 => {
                // The server no longer keeps that version: list again, a little later.
                tokio::time::sleep(transient_delay(1, &mut self.rng)).await;
                return;
            }
            Failure::Expired => (self.stale(EXPIRES.to_owned()), transient_delay(self.failures, &mut self.rng)),
            Failure::Throttled(after, error) => {
                let delay = after.unwrap_or_else(|| transient_delay(self.failures.max(3), &mut self.rng));
                (self.stale(error), delay + jittered(Duration::from_millis(250), &mut self.rng))
            }
            Failure::Other(error) => (self.stale(error), transient_delay(self.failures, &mut self.rng)),
        };
        self.set(&state);
        tokio::time::sleep(delay).await;
    }

    fn stale(&mut self, error: String) -> KindState {
        let since = *self.stale_since.get_or_insert_with(|| self.shared.clock.now());
        KindState::Stale { since, error }
    }

    fn set(&mut self, state: &KindState) {
        let synced = *state == KindState::Synced;
        let fresh = synced && self.leads;
        let mut status = None;
        self.shared.kinds.send_if_modified(|kinds| {
            let kind = kinds.entry(self.name).or_insert_with(|| KindStatus {
                systems: self.fold.systems.clone(),
                state: KindState::Listing,
                complete: false,
                fresh: false,
                old: false,
                lists: 0,
            });
            let same = kind.state == *state;
            if same && synced && kind.complete && (kind.fresh || !fresh) {
                // A watch that was opened again: nothing has changed.
                return false;
            }
            if !same {
                log_change(self.kind, self.name, state);
            }
            kind.complete |= synced;
            kind.fresh |= fresh;
            kind.state = state.clone();
            status = Some(kind.clone());
            synced || !same
        });
        let Some(status) = status else { return };
        self.count_objects(synced);
        if self.fold.compared.whole {
            self.shared.writer.view_of(self.kind, self.name, self.namespace.as_deref(), synced);
        }
        if status.is_left_out() {
            self.shared.metrics.kind_left_out(self.name);
        }
        // Also of an unchanged state: how long a view may be old before the check fails depends on the time.
        let check = check_of(&self.shared, self.kind, self.name, &status);
        self.shared.health.set(format!("kind {}", self.name), check);
    }
}

fn log_change(kind: &Kind, resource: &str, state: &KindState) {
    let kind = kind.name.as_str();
    match state {
        KindState::Missing => tracing::info!(kind, resource, "kind is not installed; checking again every few seconds"),
        KindState::Forbidden { verb } => tracing::error!(kind, resource, verb, "a permission is missing"),
        KindState::Listing => {}
        KindState::Synced => tracing::debug!(kind, "view is complete"),
        KindState::Stale { error, .. } => tracing::warn!(kind, error = %error, "view is not current"),
    }
}

/// kube keeps the scope as a marker type without a method; only its name identifies it.
fn is_namespaced<K: kube::Resource>() -> bool {
    !std::any::type_name::<K::Scope>().ends_with("ClusterResourceScope")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};

    #[test]
    fn the_scope_of_a_kind_is_known() {
        assert!(is_namespaced::<ConfigMap>());
        assert!(!is_namespaced::<Namespace>());
    }
}
