//! The stream of one kind: list, watch, and what to do when either fails.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
    core::Status,
};
use rand::{SeedableRng, rngs::StdRng};
use tokio::time::{Instant, timeout};

use super::{
    Index, KindState, KindStatus, Need, Shared, Watched, check_of,
    guard::Guarded,
    seen::{News, Seen},
};
use crate::{
    events::{Event, EventKind},
    object::{ObjectId, kind_of},
    queue::{jittered, transient_delay},
    write::WriteError,
};

/// Longest time for one page of a list, or for the start of a watch.
const ANSWER: Duration = Duration::from_secs(30);
/// The server ends a watch after this long; it is then resumed.
const WATCH_SECONDS: u32 = 50;
/// A watch that is silent for longer has lost its connection without a word.
const SILENCE: Duration = Duration::from_secs(55);
/// How often a kind that is not installed is looked for.
const MISSING: Duration = Duration::from_secs(5);
/// How often a missing right is tried again.
const FORBIDDEN: Duration = Duration::from_secs(10);
/// A list older than what was seen is taken for a stale answer this often in a row; then the cluster itself has gone back (a restore).
const STALE_LISTS: u32 = 20;
/// A page that fails this often in a row begins the list anew.
const PAGE_TRIES: u32 = 5;
/// A watch that fails this often in a row without an event is given up for a new list.
const WATCH_TRIES: u32 = 5;
/// Unreadable objects that wait for their event until this replica leads; of more, the first have to do.
const UNTOLD: usize = 50;

pub(super) struct KindStream<K> {
    shared: Shared,
    resource: &'static str,
    kind: &'static str,
    need: Need,
    indexes: Vec<Arc<dyn Index<K>>>,
    api: Api<Guarded<K>>,
    seen: Seen,
    rng: StdRng,
    failures: u32,
    stale_since: Option<Timestamp>,
    /// The newest version seen, and how many lists in a row were older.
    newest: u64,
    older_lists: u32,
    untold: Vec<Event>,
}

/// Why a list or a watch ended early.
#[derive(Debug)]
enum Trouble {
    Missing,
    Forbidden(&'static str),
    /// The version asked for is too old.
    Expired,
    Throttled(Option<Duration>, String),
    Other(String),
}

impl Trouble {
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
    pub(super) fn new(shared: Shared, resource: &'static str, need: Need, indexes: Vec<Arc<dyn Index<K>>>) -> Self {
        let api = match &shared.namespace {
            Some(namespace) if is_namespaced::<K>() => Api::namespaced_with(shared.client.clone(), namespace, &()),
            _ => Api::all_with(shared.client.clone(), &()),
        };
        // Each kind has its own jitter, so that they do not all come back in the same moment.
        let seed = resource.bytes().fold(shared.seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
        Self {
            shared,
            resource,
            kind: kind_of::<K>(),
            need,
            indexes,
            api,
            seen: Seen::default(),
            rng: StdRng::seed_from_u64(seed),
            failures: 0,
            stale_since: None,
            newest: 0,
            older_lists: 0,
            untold: Vec::new(),
        }
    }

    /// Lists and watches for ever.
    pub(super) async fn run(mut self) {
        loop {
            match self.list().await {
                Ok(version) => {
                    self.shared.metrics.list(self.resource, "complete");
                    self.watch(version).await;
                }
                Err(trouble) => {
                    self.shared.metrics.list(self.resource, "failed");
                    self.wait_after(trouble).await;
                }
            }
        }
    }

    /// Folds a complete list and returns the version to watch from. A list that fails half-way deletes nothing.
    async fn list(&mut self) -> Result<String, Trouble> {
        self.seen.begin();
        // The latest version, not the server's cache: an older view could miss objects that exist, and the server pages no cached list.
        let mut params = ListParams::default().limit(self.shared.page_size);
        let mut tries = 0;
        loop {
            let page = match timeout(ANSWER, self.api.list(&params)).await {
                Ok(page) => page.map_err(|error| Trouble::of("list", error)),
                Err(_) => Err(Trouble::Other(format!("list: no answer within {ANSWER:?}"))),
            };
            let page = match page {
                // One bad answer is no reason to fetch all the pages before it again.
                Err(trouble @ (Trouble::Other(_) | Trouble::Throttled(..)))
                    if params.continue_token.is_some() && tries < PAGE_TRIES =>
                {
                    tries += 1;
                    self.wait_after(trouble).await;
                    continue;
                }
                page => page?,
            };
            self.failures -= tries;
            tries = 0;
            self.refuse_older(page.metadata.resource_version.as_deref())?;
            for object in page.items {
                self.fold(object);
            }
            if let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) {
                params.continue_token = Some(token);
                continue;
            }
            let Some(version) = page.metadata.resource_version.filter(|version| !version.is_empty()) else {
                return Err(Trouble::Other("list: the answer has no resourceVersion".to_owned()));
            };
            for id in self.seen.complete(self.kind) {
                self.gone(&id);
            }
            for index in &self.indexes {
                index.listed();
            }
            self.count_list();
            return Ok(version);
        }
    }

    /// A list from before what was seen would delete what was made since. Versions of one kind can be compared.
    fn refuse_older(&mut self, version: Option<&str>) -> Result<(), Trouble> {
        let Some(version) = version.and_then(|version| version.parse::<u64>().ok()) else { return Ok(()) };
        if version < self.newest && self.older_lists < STALE_LISTS {
            self.older_lists += 1;
            return Err(Trouble::Other("list: the answer is older than what was seen before".to_owned()));
        }
        if version < self.newest {
            tracing::warn!(kind = self.kind, "the cluster has gone back in time; taking its word for it");
            self.seen.rewind();
            for index in &self.indexes {
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
        loop {
            match self.watch_once(&mut version, &mut tries).await {
                Ok(()) => {}
                Err(Trouble::Expired) => {
                    tracing::debug!(kind = self.kind, "watch expired: listing again");
                    self.failures = self.failures.saturating_add(1);
                    if self.failures > 1 {
                        tokio::time::sleep(transient_delay(self.failures - 1, &mut self.rng)).await;
                    }
                    return;
                }
                // The kind was removed from the cluster; a list will tell when it is back.
                Err(Trouble::Missing) => return,
                Err(trouble) => {
                    self.shared.metrics.watch_error(self.resource);
                    tries += 1;
                    // Rights and throttling are no reason to list again.
                    let give_up = tries >= WATCH_TRIES && matches!(trouble, Trouble::Other(_));
                    self.wait_after(trouble).await;
                    if give_up {
                        return;
                    }
                }
            }
        }
    }

    /// One watch request, from `version`, until the server ends it.
    async fn watch_once(&mut self, version: &mut String, tries: &mut u32) -> Result<(), Trouble> {
        let params = WatchParams { timeout: Some(WATCH_SECONDS), bookmarks: true, ..WatchParams::default() };
        let started = Instant::now();
        let mut events = match timeout(ANSWER, self.api.watch(&params, version)).await {
            Ok(events) => events.map_err(|error| Trouble::of("watch", error))?.boxed(),
            Err(_) => return Err(Trouble::Other(format!("watch: no answer within {ANSWER:?}"))),
        };
        self.synced();
        loop {
            let event = match timeout(SILENCE, events.try_next()).await {
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) => break,
                // An event that cannot be parsed at all is an event lost: only a list can make up for it.
                Ok(Err(kube::Error::SerdeError(_))) => return Err(Trouble::Expired),
                Ok(Err(error)) => return Err(Trouble::of("watch", error)),
                Err(_) => {
                    tracing::info!(kind = self.kind, "watch was silent for {SILENCE:?}: opening it again");
                    return Ok(());
                }
            };
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    if let Some(newer) = &kube::Resource::meta(&object).resource_version {
                        version.clone_from(newer);
                    }
                    self.shared.metrics.watch_event(self.resource);
                    self.fold(object);
                }
                WatchEvent::Deleted(object) => {
                    let meta = kube::Resource::meta(&object);
                    if let Some(newer) = &meta.resource_version {
                        version.clone_from(newer);
                    }
                    self.shared.metrics.watch_event(self.resource);
                    let id = self.id_of(meta);
                    if self.seen.remove(meta) {
                        self.gone(&id);
                    }
                }
                WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(Trouble::of_status("watch", *status)),
            }
            *tries = 0;
            self.failures = 0;
            self.saw(version);
            self.count_objects(true);
            self.tell();
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

    fn fold(&mut self, object: Guarded<K>) {
        let meta = kube::Resource::meta(&object);
        let id = self.id_of(meta);
        if id.name.is_empty() {
            tracing::warn!(kind = self.kind, "an object without a name is ignored");
            return;
        }
        let news = self.seen.note(meta, matches!(object, Guarded::Good(_)));
        match news {
            News::Old => return,
            News::Reborn => self.gone(&id),
            News::New => {}
        }
        match object {
            Guarded::Good(object) => {
                for index in &self.indexes {
                    index.applied(&object);
                }
            }
            Guarded::Bad { meta, error } => {
                let event = self.unreadable(&meta, &error);
                tracing::warn!(object = %id, note = event.note, "object cannot be read");
                if self.untold.len() < UNTOLD {
                    self.untold.push(event);
                }
                for index in &self.indexes {
                    index.unreadable(&id, &error);
                }
            }
        }
    }

    /// What the owner of an unreadable object has to know.
    fn unreadable(&self, meta: &ObjectMeta, error: &str) -> Event {
        let finalizers = meta.finalizers.as_deref().unwrap_or_default();
        let note = if meta.deletion_timestamp.is_some() && !finalizers.is_empty() {
            format!(
                "the object is being deleted but cannot be read, so what it stands for is kept and so are its finalizers ({}): apply it again in a form that can be read, or remove them by hand; {error}",
                finalizers.join(", ")
            )
        } else {
            format!("the object cannot be read; what was known of it is kept: {error}")
        };
        let object = ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(self.kind.to_owned()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            field_path: None,
        };
        Event { object, kind: EventKind::Warning, reason: "Unreadable".to_owned(), note }
    }

    /// Records what was kept until this replica leads.
    fn tell(&mut self) {
        if self.shared.writer.may_write() {
            for event in self.untold.drain(..) {
                self.shared.recorder.record_once(event);
            }
        }
    }

    fn gone(&self, id: &ObjectId) {
        self.shared.writer.forget(id);
        for index in &self.indexes {
            index.deleted(id);
        }
    }

    fn id_of(&self, meta: &ObjectMeta) -> ObjectId {
        ObjectId::new(self.kind, meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    fn count_list(&self) {
        self.shared.kinds.send_modify(|kinds| {
            if let Some(kind) = kinds.get_mut(self.resource) {
                kind.lists += 1;
            }
        });
    }

    fn count_objects(&self, synced: bool) {
        let (objects, unreadable) = self.seen.count();
        self.shared.metrics.kind(self.resource, objects, unreadable, synced);
    }

    fn synced(&mut self) {
        if self.stale_since.take().is_some() {
            tracing::info!(kind = self.kind, "view is current again");
        }
        self.tell();
        self.set(&KindState::Synced);
    }

    /// Says what is wrong and waits as long as that calls for.
    async fn wait_after(&mut self, trouble: Trouble) {
        self.failures = self.failures.saturating_add(1);
        let (state, delay) = match trouble {
            Trouble::Missing => (KindState::Missing, MISSING),
            Trouble::Forbidden(verb) => (KindState::Forbidden { verb }, jittered(FORBIDDEN, &mut self.rng)),
            Trouble::Expired => {
                // A list that took longer than the server keeps its versions. Begin again, a little slower each time.
                tokio::time::sleep(transient_delay(self.failures, &mut self.rng)).await;
                return;
            }
            Trouble::Throttled(after, error) => {
                let delay = after.unwrap_or_else(|| transient_delay(self.failures.max(3), &mut self.rng));
                (self.stale(error), delay + jittered(Duration::from_millis(250), &mut self.rng))
            }
            Trouble::Other(error) => (self.stale(error), transient_delay(self.failures, &mut self.rng)),
        };
        self.set(&state);
        tokio::time::sleep(delay).await;
    }

    fn stale(&mut self, error: String) -> KindState {
        let since = *self.stale_since.get_or_insert_with(|| self.shared.clock.now());
        KindState::Stale { since, error }
    }

    fn set(&mut self, state: &KindState) {
        let mut complete = false;
        self.shared.kinds.send_modify(|kinds| {
            let kind = kinds.entry(self.resource).or_insert(KindStatus {
                need: self.need,
                state: KindState::Listing,
                complete: false,
                lists: 0,
            });
            if kind.state != *state {
                log_change(self.kind, self.resource, state);
            }
            kind.complete |= *state == KindState::Synced;
            complete = kind.complete;
            kind.state = state.clone();
        });
        self.count_objects(*state == KindState::Synced);
        let check = check_of(&self.shared, self.resource, self.kind, self.need, state, complete);
        self.shared.health.set(format!("kind {}", self.resource), check);
    }
}

fn log_change(kind: &str, resource: &str, state: &KindState) {
    match state {
        KindState::Missing => tracing::info!(kind, resource, "kind is not installed; looking for it every few seconds"),
        KindState::Forbidden { verb } => tracing::error!(kind, resource, verb, "a right is missing"),
        KindState::Listing => {}
        KindState::Synced => tracing::debug!(kind, "view is complete"),
        KindState::Stale { error, .. } => tracing::warn!(kind, error = %error, "view is not current"),
    }
}

/// kube keeps the scope as a marker type without a method; its name is the only thing it tells.
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
