//! The retries after a pass, and how soon they are due.

use std::{sync::Arc, time::Duration};

use signpost_engine::{ObjectId, Outcome, RetryClass, Touched, WriteError};
use signpost_provider_powerdns::{ErrorClass, ServerError};

/// The retries, and how soon they are due.
pub(crate) struct Retries {
    pub(crate) now: bool,
    pub(crate) deferred: bool,
    pub(crate) transient: Touched<Arc<ObjectId>>,
    pub(crate) throttled: bool,
    /// The longest pause that was asked for.
    pub(crate) pause: Option<Duration>,
    pub(crate) slow: Touched<Arc<ObjectId>>,
    pub(crate) fixed: Option<Duration>,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            now: false,
            deferred: false,
            transient: Touched::none(),
            throttled: false,
            pause: None,
            slow: Touched::none(),
            fixed: None,
        }
    }
}

impl Retries {
    pub(crate) fn server(&mut self, error: &ServerError, objects: Option<Touched<Arc<ObjectId>>>) {
        match error.class() {
            ErrorClass::Transient | ErrorClass::Unauthorised => {
                self.transient.merge(objects.unwrap_or(Touched::All));
            }
            ErrorClass::Throttled(after) => {
                self.throttled = true;
                self.pause = after.max(self.pause);
                self.transient.merge(objects.unwrap_or(Touched::All));
            }
            ErrorClass::Refused => self.slow.merge(objects.unwrap_or(Touched::All)),
            ErrorClass::Missing => self.now = true,
        }
    }

    /// A write to the API server failed.
    pub(crate) fn object(&mut self, error: &WriteError, objects: Touched<Arc<ObjectId>>) {
        if let WriteError::Throttled(after) = error {
            self.throttled = true;
            self.pause = (*after).max(self.pause);
        }
        self.transient.merge(objects);
    }

    pub(crate) fn widen(&mut self) {
        if !self.transient.is_empty() {
            self.transient = Touched::All;
        }
    }

    pub(crate) fn outcome(mut self, resync: Option<Duration>) -> Outcome<Arc<ObjectId>> {
        let retry = |class, objects| Outcome::Retry { class, objects };
        if self.deferred {
            // An object that was not tried waits no longer than a failed one.
            self.widen();
        }
        if self.now {
            return retry(RetryClass::Now, Touched::All);
        }
        if self.throttled {
            return retry(RetryClass::Throttled { after: self.pause }, self.transient);
        }
        if !self.transient.is_empty() {
            return retry(RetryClass::Transient, self.transient);
        }
        if self.deferred {
            return retry(RetryClass::Fixed(Duration::from_millis(200)), Touched::All);
        }
        if let Some(after) = self.fixed {
            return retry(RetryClass::Fixed(after), Touched::All);
        }
        if !self.slow.is_empty() {
            return retry(RetryClass::Slow, self.slow);
        }
        resync.map_or(Outcome::Done, |after| Outcome::Check { after })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_apis::powerdns::RRset;

    #[test]
    fn what_was_not_tried_is_tried_again_with_what_failed() {
        let one = Touched::Some([Arc::new(ObjectId::new::<RRset>(Some("ns"), "www"))].into());
        let retries = || Retries { deferred: true, ..Retries::default() };
        let objects = |retries: Retries| match retries.outcome(Some(Duration::from_mins(1))) {
            Outcome::Retry { objects, .. } => objects,
            other => panic!("{other:?}"),
        };
        assert_eq!(objects(retries()), Touched::All);
        assert_eq!(objects(Retries { transient: one.clone(), ..retries() }), Touched::All);
        assert_eq!(objects(Retries { transient: one.clone(), throttled: true, ..retries() }), Touched::All);
        assert_eq!(objects(Retries { transient: one.clone(), ..Retries::default() }), one);
    }
}
