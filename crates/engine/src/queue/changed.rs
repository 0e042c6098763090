//! The keys that changed since they were last asked for. Nothing is remembered until [`Changed::follow`] is called.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Changed<K> {
    followed: AtomicBool,
    keys: Mutex<BTreeSet<K>>,
    wake: Notify,
}

impl<K: Ord + Clone> Changed<K> {
    pub(super) fn new() -> Self {
        Self { followed: AtomicBool::new(false), keys: Mutex::default(), wake: Notify::new() }
    }

    pub(super) fn follow(&self) {
        self.followed.store(true, Ordering::Release);
    }

    pub(super) fn is_followed(&self) -> bool {
        self.followed.load(Ordering::Acquire)
    }

    pub(super) fn note(&self, key: &K) {
        if self.is_followed() {
            self.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
            self.wake.notify_one();
        }
    }

    /// Waits for keys, and takes all of them.
    pub(super) async fn next(&self) -> BTreeSet<K> {
        loop {
            let keys = std::mem::take(&mut *self.keys.lock().unwrap_or_else(PoisonError::into_inner));
            if !keys.is_empty() {
                return keys;
            }
            self.wake.notified().await;
        }
    }
}
