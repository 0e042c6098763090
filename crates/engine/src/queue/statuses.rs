//! Objects whose finalizers or status may have to be written: each once, in order of arrival.
//!
//! In: object ids with the key they belong to, from reports and from indexes. Out: one id at a time for the driver, and whether it was the
//! last of its key. An object that a caller waits for is first in the queue.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use crate::{object::ObjectId, write::WriteError};

/// The end of a write that a caller waits for.
pub(crate) type Waiter = oneshot::Sender<Result<(), WriteError>>;

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
    waiting: VecDeque<(Arc<ObjectId>, K)>,
    queued: HashSet<Arc<ObjectId>>,
    /// To be queued again, by when.
    later: BTreeMap<(Instant, u64), (Arc<ObjectId>, K)>,
    numbered: u64,
    /// Being written; true when it was queued again meanwhile.
    in_progress: BTreeMap<Arc<ObjectId>, bool>,
    /// Objects waiting or in progress, by key, and whether any was written.
    keys: BTreeMap<K, (usize, bool)>,
    /// The callers that wait for the next write of an object.
    waiters: BTreeMap<Arc<ObjectId>, Vec<Waiter>>,
}

impl<K: Ord + Clone> Statuses<K> {
    pub(crate) fn new() -> Self {
        let state = State {
            waiting: VecDeque::new(),
            queued: HashSet::new(),
            later: BTreeMap::new(),
            numbered: 0,
            in_progress: BTreeMap::new(),
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

    /// Queues an object once `delay` has passed.
    pub(crate) fn enqueue_after(&self, id: Arc<ObjectId>, key: K, delay: Duration) {
        let mut state = self.lock();
        state.numbered += 1;
        let place = (Instant::now() + delay, state.numbered);
        state.later.insert(place, (id, key));
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Waits until an object is queued.
    pub(crate) async fn ready(&self) {
        loop {
            let wake = self.shared.wake.notified();
            let until = {
                let mut state = self.lock();
                state.bring_due(Instant::now());
                if !state.waiting.is_empty() {
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
        self.lock().waiting.len()
    }

    /// Whether any object is queued now.
    pub(crate) fn has_any(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Takes the next object, and who waits for it. It must be ended with [`Statuses::done`] or [`Statuses::requeue`].
    pub(crate) fn take(&self) -> Option<(Arc<ObjectId>, K, Vec<Waiter>)> {
        let mut state = self.lock();
        let (id, key) = state.waiting.pop_front()?;
        state.queued.remove(&id);
        state.in_progress.insert(id.clone(), false);
        let waiters = state.waiters.remove(&id).unwrap_or_default();
        Some((id, key, waiters))
    }

    /// Puts an object that is not done yet at the end of the queue, or first where a caller waits for it.
    pub(crate) fn requeue(&self, id: Arc<ObjectId>, key: K, waiters: Vec<Waiter>) {
        let mut state = self.lock();
        state.in_progress.remove(&id);
        state.keys.entry(key.clone()).or_default().1 = true;
        if !waiters.is_empty() {
            state.waiters.entry(id.clone()).or_default().extend(waiters);
        }
        state.queued.insert(id.clone());
        state.place(id, key);
        drop(state);
        self.shared.wake.notify_one();
    }

    /// An object is done; `wrote` when something was written for it. Returns true when it was the last of its key, and any was written.
    pub(crate) fn done(&self, id: &Arc<ObjectId>, key: &K, wrote: bool) -> bool {
        let mut state = self.lock();
        if state.in_progress.remove(id) == Some(true) {
            state.enqueue(id.clone(), key.clone());
            self.shared.wake.notify_one();
        }
        let Some((count, any)) = state.keys.get_mut(key) else { return false };
        *count = count.saturating_sub(1);
        *any |= wrote;
        let last = *count == 0 && *any;
        if *count == 0 {
            state.keys.remove(key);
        }
        last
    }
}

impl<K: Ord + Clone> State<K> {
    fn enqueue(&mut self, id: Arc<ObjectId>, key: K) {
        if let Some(again) = self.in_progress.get_mut(&id) {
            *again = true;
        } else if self.queued.insert(id.clone()) {
            self.keys.entry(key.clone()).or_default().0 += 1;
            self.place(id, key);
        } else if self.waiters.contains_key(&id)
            && let Some(place) = self.waiting.iter().position(|(other, _)| *other == id)
            && let Some(entry) = self.waiting.remove(place)
        {
            self.waiting.push_front(entry);
        }
    }

    /// Puts an object into the queue: first where a caller waits for it, otherwise last.
    fn place(&mut self, id: Arc<ObjectId>, key: K) {
        if self.waiters.contains_key(&id) {
            self.waiting.push_front((id, key));
        } else {
            self.waiting.push_back((id, key));
        }
    }

    fn is_urgent(&self) -> bool {
        self.waiting.front().is_some_and(|(id, _)| self.waiters.contains_key(id))
    }

    fn bring_due(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry()
            && entry.key().0 <= now
        {
            let (id, key) = entry.remove();
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

    #[tokio::test(start_paused = true)]
    async fn an_object_is_queued_once_and_again_while_it_is_written() {
        let statuses = Statuses::new();
        statuses.enqueue([(id("a"), 1), (id("b"), 1), (id("a"), 1)]);
        let (first, key, _) = statuses.take().unwrap();
        assert_eq!(first, id("a"));
        statuses.enqueue([(id("a"), 1)]);
        assert_eq!(statuses.take().unwrap().0, id("b"));
        assert!(statuses.take().is_none(), "it is being written");
        assert!(!statuses.done(&first, &key, true));
        assert_eq!(statuses.take().unwrap().0, id("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_key_is_reported_once_if_something_was_written() {
        let statuses = Statuses::new();
        statuses.enqueue([(id("a"), 1), (id("b"), 1), (id("c"), 2)]);
        let taken: Vec<_> = std::iter::from_fn(|| statuses.take()).collect();
        let done: Vec<bool> = taken.iter().map(|(id, key, _)| statuses.done(id, key, id.name == "a")).collect();
        assert_eq!(done, [false, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_with_new_finalizers_waits_behind_the_others() {
        let statuses = Statuses::new();
        statuses.enqueue([(id("a"), 1), (id("b"), 1)]);
        let (first, key, waiters) = statuses.take().unwrap();
        statuses.requeue(first, key, waiters);
        assert_eq!(statuses.take().unwrap().0, id("b"));
        assert!(!statuses.done(&id("b"), &1, false));
        assert_eq!(statuses.take().unwrap().0, id("a"));
        assert!(statuses.done(&id("a"), &1, false), "its finalizers were written");
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
        let (taken, key, waiters) = statuses.take().unwrap();
        assert_eq!((taken.name.as_str(), waiters.len()), ("b", 1));
        // A caller that comes while it is written waits for the next write of it.
        let second = wait(&statuses);
        tokio::task::yield_now().await;
        for waiter in waiters {
            waiter.send(Ok(())).unwrap();
        }
        assert_eq!(first.await.unwrap(), Ok(()));
        assert!(!statuses.done(&taken, &key, true) && !second.is_finished());
        let (taken, _, waiters) = statuses.take().unwrap();
        assert_eq!((taken.name.as_str(), waiters.len()), ("b", 1));
        drop(waiters);
        assert!(matches!(second.await.unwrap(), Err(WriteError::Transient(_))), "nobody writes any more");
        assert_eq!(statuses.take().unwrap().0, id("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_write_is_queued_again_after_its_delay() {
        let statuses = Statuses::new();
        statuses.enqueue_after(id("a"), 1, Duration::from_secs(2));
        let began = Instant::now();
        statuses.ready().await;
        assert!(began.elapsed() >= Duration::from_secs(2));
        assert_eq!(statuses.take().unwrap().0, id("a"));
    }
}
