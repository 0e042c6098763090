//! A list that is read again when it is too old. Callers that ask at the same time share one request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// A list with the time at which it was asked for.
#[derive(Debug)]
pub(crate) struct Cached<T> {
    list: Mutex<Option<(Instant, Arc<[T]>)>>,
    forgotten: AtomicBool,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self { list: Mutex::new(None), forgotten: AtomicBool::new(false) }
    }
}

impl<T: Clone> Cached<T> {
    /// The list, read by `load` unless there is one that is at most so old.
    pub(crate) async fn get<E, F>(&self, max_age: Duration, load: impl FnOnce() -> F) -> Result<Arc<[T]>, E>
    where
        F: Future<Output = Result<Vec<T>, E>>,
    {
        let mut list = self.list.lock().await;
        if self.forgotten.swap(false, Ordering::AcqRel) {
            *list = None;
        }
        if let Some((read, known)) = list.as_ref()
            && read.elapsed() <= max_age
        {
            return Ok(Arc::clone(known));
        }
        let asked = Instant::now();
        let loaded: Arc<[T]> = load().await?.into();
        *list = Some((asked, Arc::clone(&loaded)));
        Ok(loaded)
    }

    /// Reads it again at the next use.
    pub(crate) fn forget(&self) {
        self.forgotten.store(true, Ordering::Release);
    }

    /// Changes the known list, after a write of our own. A list that is being read meanwhile gets the change afterwards.
    pub(crate) async fn edit(&self, change: impl FnOnce(&mut Vec<T>)) {
        if let Some((_, known)) = self.list.lock().await.as_mut() {
            let mut list = known.to_vec();
            change(&mut list);
            *known = list.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test(start_paused = true)]
    async fn a_list_is_read_again_when_it_is_too_old_or_forgotten() {
        let cached = Cached::default();
        let reads = Cell::new(0);
        let load = || {
            reads.set(reads.get() + 1);
            std::future::ready(Ok::<_, ()>(vec![reads.get()]))
        };
        let age = Duration::from_secs(10);
        assert_eq!(cached.get(age, load).await.unwrap()[..], [1]);
        tokio::time::advance(age).await;
        assert_eq!(cached.get(age, load).await.unwrap()[..], [1]);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(cached.get(age, load).await.unwrap()[..], [2]);
        cached.edit(|list| list.push(9)).await;
        assert_eq!(cached.get(age, load).await.unwrap()[..], [2, 9]);
        cached.forget();
        assert_eq!(cached.get(age, load).await.unwrap()[..], [3]);
    }

    #[tokio::test]
    async fn a_failed_read_leaves_nothing_behind() {
        let cached = Cached::<u8>::default();
        assert_eq!(cached.get(Duration::MAX, || std::future::ready(Err(()))).await, Err(()));
        assert_eq!(cached.get(Duration::MAX, || std::future::ready(Ok::<_, ()>(vec![1]))).await.unwrap()[..], [1]);
    }
}
