//! Objects whose finalizers or status may have to be written: each once, in order of arrival.
//!
//! In: object ids with the key they belong to, from reports and from indexes. Out: one id at a time for the driver, and whether it was the
//! last of its key. An object that a caller waits for is first in the queue.
//!
//! Objects whose last write failed wait apart from the others, so that they delay no other object for long. One of them is written at a time,
//! and one more after each that succeeds.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use crate::{object::ObjectId, write::WriteError};

/// While other objects wait, one write in this many is the retry of a failed one.
const RETRY_SHARE: u32 = 8;

/// The end of a write that a caller waits for.
type Waiter = oneshot::Sender<Result<(), WriteError>>;

/// An object whose turn has come.
#[derive(Debug)]
pub(crate) struct Taken {
    /// Which object.
    pub(crate) id: Arc<ObjectId>,
    /// The callers that wait for its write.
    pub(crate) waiters: Vec<Waiter>,
    /// How often its write has failed in a row.
    pub(crate) failures: u32,
}

/// The objects of one system. Cloning gives another handle to the same queue.
#[derive(Debug)]
pub struct Statuses<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Statuses<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

#[derive(Debug)]
struct Shared<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

#[derive(Debug)]
struct State<K> {
    /// Everything that is queued, being written or to be queued later: each object once.
    objects: HashMap<Arc<ObjectId>, Object<K>>,
    /// Objects whose last write did not fail, and those that a caller waits for.
    waiting: VecDeque<Arc<ObjectId>>,
    /// Objects whose last write failed, and that may be written again: those with the fewest failures first, then in order of arrival.
    retries: BTreeMap<(u32, u64), Arc<ObjectId>>,
    /// Retries in progress.
    retrying: usize,
    /// Retries that may be in progress: one, and one more for each that succeeded since the last failure.
    retries_allowed: usize,
    /// Objects taken since the last retry.
    since_retry: u32,
    /// To be queued again, by when.
    later: BTreeMap<(Instant, u64), Arc<ObjectId>>,
    numbered: u64,
    /// Objects waiting or being written, by key, and whether any was written.
    keys: BTreeMap<K, (usize, bool)>,
    /// The callers that wait for the next write of an object.
    waiters: BTreeMap<Arc<ObjectId>, Vec<Waiter>>,
}

#[derive(Debug)]
struct Object<K> {
    place: Place,
    /// The key that it was queued for last.
    key: K,
    /// Other keys that it was queued for before, since it was last done. It is counted under them too.
    former: Vec<K>,
    /// How often its write has failed in a row.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Waiting,
    /// Queued again after its write failed.
    Retry((u32, u64)),
    /// Being written.
    Writing {
        /// It was queued again meanwhile.
        again: bool,
        /// It was taken from the retries.
        retry: bool,
    },
    /// Its write failed, and is repeated then.
    Later((Instant, u64)),
}

impl<K: PartialEq> Object<K> {
    /// Moves it to a key. Returns whether it is not counted under that one yet.
    fn move_to(&mut self, key: K) -> bool {
        if self.key == key {
            return false;
        }
        let Some(at) = self.former.iter().position(|former| *former == key) else {
            self.former.push(std::mem::replace(&mut self.key, key));
            return true;
        };
        std::mem::swap(&mut self.former[at], &mut self.key);
        false
    }
}

impl<K: Ord + Clone> Statuses<K> {
    pub(crate) fn new() -> Self {
        let state = State {
            objects: HashMap::new(),
            waiting: VecDeque::new(),
            retries: BTreeMap::new(),
            retrying: 0,
            retries_allowed: 1,
            since_retry: 0,
            later: BTreeMap::new(),
            numbered: 0,
            keys: BTreeMap::new(),
            waiters: BTreeMap::new(),
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), wake: Notify::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues objects. An object that is queued already keeps its place; an object that is being written is queued again afterwards.
    pub fn enqueue(&self, objects: impl IntoIterator<Item = (Arc<ObjectId>, K)>) {
        let mut state = self.lock();
        for (id, key) in objects {
            state.enqueue(id, key);
        }
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Writes what is wanted of an object now, before all others, and returns when the API server has it.
    ///
    /// It is one write like any other of the queue: no two writes of an object overlap, and none that was made up earlier ends later.
    pub async fn write_now(&self, id: Arc<ObjectId>, key: K) -> Result<(), WriteError> {
        let (waiter, end) = oneshot::channel();
        {
            let mut state = self.lock();
            state.waiters.entry(id.clone()).or_default().push(waiter);
            state.enqueue(id, key);
        }
        self.shared.wake.notify_one();
        end.await.unwrap_or_else(|_| Err(WriteError::Transient("this replica stops".to_owned())))
    }

    /// Waits until an object can be taken.
    pub(crate) async fn ready(&self) {
        loop {
            let wake = self.shared.wake.notified();
            let until = {
                let mut state = self.lock();
                state.bring_due(Instant::now());
                if !state.waiting.is_empty() || state.is_retry_next() {
                    return;
                }
                state.later.first_key_value().map(|((at, _), _)| *at)
            };
            match until {
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = wake => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => wake.await,
            }
        }
    }

    /// Waits until a caller waits for the next object.
    pub(crate) async fn urgent(&self) {
        loop {
            let wake = self.shared.wake.notified();
            if self.lock().is_urgent() {
                return;
            }
            wake.await;
        }
    }

    /// How many objects are queued now.
    pub fn queued(&self) -> usize {
        let state = self.lock();
        state.waiting.len() + state.retries.len()
    }

    /// Whether an object is queued now whose last write did not fail.
    pub(crate) fn has_new(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Takes the next object. It must be ended with [`Statuses::done`], [`Statuses::failed`] or [`Statuses::requeue`].
    pub(crate) fn take(&self) -> Option<Taken> {
        let mut state = self.lock();
        let retry = state.is_retry_next();
        let id = if retry { state.retries.pop_first()?.1 } else { state.waiting.pop_front()? };
        if retry {
            state.retrying += 1;
            state.since_retry = 0;
        } else {
            state.since_retry = state.since_retry.saturating_add(1);
        }
        let mut failures = 0;
        if let Some(object) = state.objects.get_mut(&id) {
            object.place = Place::Writing { again: false, retry };
            failures = object.failures;
        }
        let waiters = state.waiters.remove(&id).unwrap_or_default();
        Some(Taken { id, waiters, failures })
    }

    /// Gives memory back while nothing is written: forgets queued objects of which nothing is wanted, as a turn would do.
    pub(crate) fn tidy(&self, is_wanted: impl Fn(&ObjectId) -> bool) {
        for _ in 0..self.queued() {
            // Taken as for a write, so that an object that is queued again meanwhile stays.
            let Some(Taken { id, waiters, .. }) = self.take() else { return };
            if waiters.is_empty() && !is_wanted(&id) {
                self.done(&id, false);
            } else {
                self.requeue(id, waiters, false);
            }
        }
    }

    /// Puts an object that was taken at the end of the queue, or first where a caller waits for it; `wrote` when something was written for
    /// it.
    pub(crate) fn requeue(&self, id: Arc<ObjectId>, waiters: Vec<Waiter>, wrote: bool) {
        let mut state = self.lock();
        if !waiters.is_empty() {
            state.waiters.entry(id.clone()).or_default().extend(waiters);
        }
        if wrote {
            state.wrote(&id);
        }
        state.end(&id, 0);
        state.place(id);
        drop(state);
        self.shared.wake.notify_one();
    }

    /// An object is done; `wrote` when something was written for it. Returns the keys of which it was the last, if any was written.
    pub(crate) fn done(&self, id: &Arc<ObjectId>, wrote: bool) -> Vec<K> {
        let mut state = self.lock();
        if wrote {
            state.wrote(id);
        }
        let again = state.end(id, 0);
        // The next retry may be waiting for the end of this one.
        self.shared.wake.notify_one();
        if again {
            state.place(id.clone());
            return Vec::new();
        }
        let Some(object) = state.objects.remove(id) else { return Vec::new() };
        object.former.iter().chain([&object.key]).filter(|key| state.one_less(key)).cloned().collect()
    }

    /// The write of an object did not succeed, and has failed this often in a row. The object is queued again once `delay` has passed, or as
    /// soon as something queues it. The rest is as with [`Statuses::done`].
    pub(crate) fn failed(&self, id: &Arc<ObjectId>, failures: u32, delay: Duration) -> Vec<K> {
        let mut state = self.lock();
        let again = state.end(id, failures);
        self.shared.wake.notify_one();
        if again {
            state.place(id.clone());
            return Vec::new();
        }
        state.numbered += 1;
        let place = (Instant::now() + delay, state.numbered);
        let Some(object) = state.objects.get_mut(id) else { return Vec::new() };
        object.place = Place::Later(place);
        let keys: Vec<K> = object.former.drain(..).chain([object.key.clone()]).collect();
        state.later.insert(place, id.clone());
        keys.into_iter().filter(|key| state.one_less(key)).collect()
    }
}

impl<K: Ord + Clone> State<K> {
    fn enqueue(&mut self, id: Arc<ObjectId>, key: K) {
        let Some(object) = self.objects.get_mut(&id) else {
            self.keys.entry(key.clone()).or_default().0 += 1;
            self.objects.insert(id.clone(), Object { place: Place::Waiting, key, former: Vec::new(), failures: 0 });
            self.place(id);
            return;
        };
        let place = object.place;
        let uncounted = match place {
            Place::Later(_) => {
                object.key = key.clone();
                true
            }
            Place::Waiting | Place::Retry(_) | Place::Writing { .. } => object.move_to(key.clone()),
        };
        if uncounted {
            self.keys.entry(key).or_default().0 += 1;
        }
        match place {
            Place::Writing { retry, .. } => object.place = Place::Writing { again: true, retry },
            Place::Waiting | Place::Retry(_) if !self.waiters.contains_key(&id) => {}
            Place::Waiting => {
                self.waiting.retain(|other| *other != id);
                self.place(id);
            }
            Place::Retry(at) => {
                self.retries.remove(&at);
                self.place(id);
            }
            Place::Later(at) => {
                self.later.remove(&at);
                self.place(id);
            }
        }
    }

    /// The write of an object ended, and has failed this often in a row now. Returns whether the object was queued again meanwhile.
    fn end(&mut self, id: &Arc<ObjectId>, failures: u32) -> bool {
        let Some(object) = self.objects.get_mut(id) else { return false };
        object.failures = failures;
        let Place::Writing { again, retry } = object.place else { return false };
        if retry {
            self.retrying = self.retrying.saturating_sub(1);
            self.retries_allowed = if failures == 0 { self.retries_allowed.saturating_add(1) } else { 1 };
        }
        again
    }

    /// Something was written for an object.
    fn wrote(&mut self, id: &Arc<ObjectId>) {
        let Some(object) = self.objects.get(id) else { return };
        for key in object.former.iter().chain([&object.key]) {
            if let Some((_, any)) = self.keys.get_mut(key) {
                *any = true;
            }
        }
    }

    /// An object of `key` ended. True when it was the last, and any was written.
    fn one_less(&mut self, key: &K) -> bool {
        let Some((count, any)) = self.keys.get_mut(key) else { return false };
        *count = count.saturating_sub(1);
        let (last, any) = (*count == 0, *any);
        if last {
            self.keys.remove(key);
        }
        last && any
    }

    /// Puts an object into its queue: first where a caller waits for it, otherwise last.
    fn place(&mut self, id: Arc<ObjectId>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        let urgent = self.waiters.contains_key(&id);
        if object.failures > 0 && !urgent {
            self.numbered += 1;
            let place = (object.failures, self.numbered);
            object.place = Place::Retry(place);
            self.retries.insert(place, id);
            return;
        }
        object.place = Place::Waiting;
        if urgent {
            self.waiting.push_front(id);
        } else {
            self.waiting.push_back(id);
        }
    }

    fn is_urgent(&self) -> bool {
        self.waiting.front().is_some_and(|id| self.waiters.contains_key(id))
    }

    /// Whether the next object is one whose last write failed.
    fn is_retry_next(&self) -> bool {
        let before_others = self.since_retry >= RETRY_SHARE - 1 && !self.is_urgent();
        (self.waiting.is_empty() || before_others) && self.retrying < self.retries_allowed && !self.retries.is_empty()
    }

    fn bring_due(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry()
            && entry.key().0 <= now
        {
            let id = entry.remove();
            let Some(key) = self.objects.get(&id).map(|object| object.key.clone()) else { continue };
            self.enqueue(id, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn id(name: &str) -> Arc<ObjectId> {
        Arc::new(ObjectId::new::<ConfigMap>(Some("default"), name))
    }

    fn taken(statuses: &Statuses<u8>) -> Option<Arc<ObjectId>> {
        statuses.take().map(|taken| taken.id)
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_queued_once_and_again_while_it_is_written() {
        let statuses = Statuses::new();
        statuses.enqueue([(id("a"), 1), (id("b"), 1), (id("a"), 1)]);
        assert_eq!(taken(&statuses), Some(id("a")));
        statuses.enqueue([(id("a"), 1)]);
        assert_eq!(taken(&statuses), Some(id("b")));
        assert_eq!(taken(&statuses), None, "it is being written");
        assert!(statuses.done(&id("a"), true).is_empty());
        assert_eq!(taken(&statuses), Some(id("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_key_is_reported_once_if_something_was_written() {
        let statuses = Statuses::new();
        statuses.enqueue([(id("a"), 1), (id("b"), 1), (id("c"), 2)]);
        let taken: Vec<_> = std::iter::from_fn(|| taken(&statuses)).collect();
        let done: Vec<_> = taken.iter().map(|id| statuses.done(id, id.name == "a")).collect();
        assert_eq!(done, [vec![], vec![1], vec![]]);
    }

    #[tokio::test(start_paused = true)]
    async fn tidying_keeps_wanted_objects_and_those_queued_meanwhile() {
        let statuses = Statuses::new();
        statuses.enqueue([(id("a"), 1), (id("b"), 1), (id("c"), 2)]);
        statuses.tidy(|of| {
            if of.name == "c" {
                statuses.enqueue([(id("c"), 2)]);
            }
            of.name == "a"
        });
        assert_eq!([taken(&statuses), taken(&statuses), taken(&statuses)], [Some(id("a")), Some(id("c")), None]);
        assert_eq!(statuses.done(&id("a"), true), [1], "the last of its key");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_with_new_finalizers_waits_behind_the_others() {
        let statuses = Statuses::new();
        statuses.enqueue([(id("a"), 1), (id("b"), 1)]);
        let Taken { id: first, waiters, .. } = statuses.take().unwrap();
        statuses.requeue(first, waiters, true);
        assert_eq!(taken(&statuses), Some(id("b")));
        assert!(statuses.done(&id("b"), false).is_empty());
        assert_eq!(taken(&statuses), Some(id("a")));
        assert_eq!(statuses.done(&id("a"), false), [1], "its finalizers were written");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_with_a_waiter_is_first_and_its_end_is_reported() {
        let statuses = Statuses::new();
        statuses.enqueue([(id("a"), 1), (id("b"), 1)]);
        let wait = |statuses: &Statuses<u8>| {
            tokio::spawn({
                let statuses = statuses.clone();
                async move { statuses.write_now(id("b"), 1).await }
            })
        };
        let first = wait(&statuses);
        statuses.urgent().await;
        let Taken { id: taken, waiters, .. } = statuses.take().unwrap();
        assert_eq!((taken.name.as_str(), waiters.len()), ("b", 1));
        // A caller that comes while it is written waits for the next write of it.
        let second = wait(&statuses);
        tokio::task::yield_now().await;
        for waiter in waiters {
            waiter.send(Ok(())).unwrap();
        }
        assert_eq!(first.await.unwrap(), Ok(()));
        assert!(statuses.done(&taken, true).is_empty() && !second.is_finished());
        let Taken { id: taken, waiters, .. } = statuses.take().unwrap();
        assert_eq!((taken.name.as_str(), waiters.len()), ("b", 1));
        drop(waiters);
        assert!(matches!(second.await.unwrap(), Err(WriteError::Transient(_))), "nobody writes any more");
        assert_eq!(statuses.take().unwrap().id, id("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_write_is_queued_again_after_its_delay() {
        let statuses = Statuses::new();
        statuses.enqueue([(id("a"), 1)]);
        assert_eq!(taken(&statuses), Some(id("a")));
        assert!(statuses.failed(&id("a"), 1, Duration::from_secs(2)).is_empty());
        let began = Instant::now();
        statuses.ready().await;
        assert!(began.elapsed() >= Duration::from_secs(2));
        assert_eq!(taken(&statuses), Some(id("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn retries_of_one_object_do_not_multiply() {
        let statuses = Statuses::new();
        for failures in 1..=10 {
            statuses.enqueue([(id("a"), 1)]);
            assert_eq!(taken(&statuses), Some(id("a")), "a new request does not wait for the retry");
            statuses.failed(&id("a"), failures, Duration::from_secs(2));
        }
        assert_eq!(statuses.lock().later.len(), 1);
        statuses.ready().await;
        assert_eq!((taken(&statuses), taken(&statuses)), (Some(id("a")), None));
        assert_eq!(statuses.done(&id("a"), true), [1]);
        let state = statuses.lock();
        assert!(state.objects.is_empty() && state.later.is_empty() && state.keys.is_empty(), "{state:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_moved_ends_under_both_keys() {
        let statuses = Statuses::new();
        statuses.enqueue([(id("a"), 1)]);
        assert_eq!(taken(&statuses), Some(id("a")));
        statuses.enqueue([(id("a"), 2)]);
        assert!(statuses.done(&id("a"), true).is_empty(), "it is queued again");
        assert_eq!(taken(&statuses), Some(id("a")));
        assert_eq!(statuses.done(&id("a"), false), [1, 2]);
        // The same while it waits, and a failed write counts under no key.
        statuses.enqueue([(id("a"), 1)]);
        statuses.enqueue([(id("a"), 2)]);
        assert_eq!((taken(&statuses), taken(&statuses)), (Some(id("a")), None));
        assert!(statuses.failed(&id("a"), 1, Duration::from_secs(2)).is_empty());
        statuses.enqueue([(id("a"), 3)]);
        assert_eq!(taken(&statuses), Some(id("a")));
        assert_eq!(statuses.done(&id("a"), true), [3]);
        assert!(statuses.lock().keys.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_alternates_between_two_keys_is_counted_once_under_each() {
        let statuses = Statuses::new();
        for _ in 0..1_000 {
            statuses.enqueue([(id("a"), 1)]);
            statuses.enqueue([(id("a"), 2)]);
        }
        assert_eq!(statuses.lock().objects[&id("a")].former, [1]);
        assert_eq!(statuses.lock().keys, BTreeMap::from([(1, (1, false)), (2, (1, false))]));
        assert_eq!(taken(&statuses), Some(id("a")));
        assert_eq!(statuses.done(&id("a"), true), [1, 2]);
        assert!(statuses.lock().keys.is_empty());
    }

    /// Objects whose write has failed this often, and that may be tried again.
    async fn failed(statuses: &Statuses<u8>, objects: &[(&str, u32)]) {
        statuses.enqueue(objects.iter().map(|(name, _)| (id(name), 1)));
        for _ in objects {
            statuses.take().unwrap();
        }
        for (name, failures) in objects {
            statuses.failed(&id(name), *failures, Duration::from_secs(2));
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        statuses.ready().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_whose_write_failed_waits_behind_the_others() {
        let statuses = Statuses::new();
        failed(&statuses, &[("a", 1)]).await;
        statuses.enqueue([(id("b"), 1), (id("c"), 1), (id("a"), 1)]);
        assert_eq!(statuses.queued(), 3);
        let order: Vec<_> = std::iter::from_fn(|| taken(&statuses)).map(|id| id.name.clone()).collect();
        assert_eq!(order, ["b", "c", "a"]);
        // Once it is done it is an object as any other.
        statuses.enqueue([(id("a"), 1)]);
        assert!(statuses.done(&id("a"), true).is_empty(), "it is queued again");
        statuses.enqueue([(id("d"), 1)]);
        assert_eq!((taken(&statuses), taken(&statuses)), (Some(id("a")), Some(id("d"))));
    }

    #[tokio::test(start_paused = true)]
    async fn one_failed_object_is_tried_at_a_time_and_more_after_a_success() {
        let statuses = Statuses::new();
        failed(&statuses, &[("a", 1), ("b", 1), ("c", 1), ("d", 1)]).await;
        assert_eq!((taken(&statuses), taken(&statuses)), (Some(id("a")), None));
        statuses.enqueue([(id("x"), 1)]);
        assert_eq!((taken(&statuses), taken(&statuses)), (Some(id("x")), None), "others do not wait for it");
        let waits = tokio::spawn({
            let statuses = statuses.clone();
            async move { statuses.ready().await }
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(!waits.is_finished());
        statuses.failed(&id("a"), 2, Duration::from_hours(1));
        waits.await.unwrap();
        assert_eq!((taken(&statuses), taken(&statuses)), (Some(id("b")), None));
        statuses.done(&id("b"), true);
        assert_eq!((taken(&statuses), taken(&statuses)), (Some(id("c")), Some(id("d"))));
    }

    #[tokio::test(start_paused = true)]
    async fn the_object_that_failed_least_often_is_tried_first() {
        let statuses = Statuses::new();
        failed(&statuses, &[("a", 7), ("b", 3), ("c", 1)]).await;
        for name in ["c", "b", "a"] {
            let taken = statuses.take().unwrap();
            assert_eq!(taken.id, id(name));
            statuses.done(&taken.id, true);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_object_gets_a_turn_while_many_others_wait() {
        let statuses = Statuses::new();
        failed(&statuses, &[("a", 1)]).await;
        statuses.enqueue((0..100).map(|number| (id(&format!("m{number}")), 1)));
        let order: Vec<_> = std::iter::from_fn(|| taken(&statuses)).collect();
        let at = order.iter().position(|taken| *taken == id("a")).unwrap();
        assert!(at < usize::try_from(RETRY_SHARE).unwrap(), "{at}");
        assert_eq!(order.len(), 101);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_with_a_waiter_is_first_although_its_write_failed() {
        let statuses = Statuses::new();
        failed(&statuses, &[("a", 1), ("b", 5)]).await;
        statuses.enqueue([(id("c"), 1)]);
        tokio::spawn({
            let statuses = statuses.clone();
            async move { statuses.write_now(id("b"), 1).await }
        });
        statuses.urgent().await;
        let Taken { id: first, waiters, failures } = statuses.take().unwrap();
        assert_eq!((first, waiters.len(), failures), (id("b"), 1, 5));
        assert_eq!((taken(&statuses), taken(&statuses)), (Some(id("c")), Some(id("a"))));
        assert!(statuses.lock().retries.is_empty());
    }
}
