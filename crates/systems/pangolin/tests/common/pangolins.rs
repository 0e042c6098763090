//! A Pangolin that stops its caller at a chosen request, and reports every write to a judge.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use signpost_provider_pangolin::{
    Answer, Deleted, Domain, Incoming, Listed, NewResource, Outgoing, Pangolin, PangolinError, Resource, ResourceId,
    ResourceSettings, Site, Target, TargetId, TargetSettings, Transport,
};
use signpost_testkit::pangolin::{Asked, State, Version};
use tokio::sync::Notify;

type Judge = Arc<dyn Fn(&str) + Send + Sync>;

/// The state that survives its caller.
#[derive(Default)]
pub(crate) struct Fate {
    /// Writes until the caller stops; negative for never.
    left: AtomicI64,
    /// Whether the last write still takes effect.
    pub(crate) takes_effect: std::sync::atomic::AtomicBool,
    stopped: Notify,
    judge: Mutex<Option<Judge>>,
}

impl Fate {
    pub(crate) fn never() -> Arc<Self> {
        let fate = Self::default();
        fate.left.store(-1, Ordering::SeqCst);
        Arc::new(fate)
    }

    pub(crate) fn stop_at(&self, write: i64, takes_effect: bool) {
        self.takes_effect.store(takes_effect, Ordering::SeqCst);
        self.left.store(write, Ordering::SeqCst);
    }

    pub(crate) fn judged_by(&self, judge: impl Fn(&str) + Send + Sync + 'static) {
        *self.judge.lock().unwrap() = Some(Arc::new(judge));
    }

    /// Waits until a caller was stopped.
    pub(crate) async fn stopped(&self) {
        self.stopped.notified().await;
    }
}

pub(crate) struct Fragile<P> {
    pub(crate) inner: P,
    pub(crate) fate: Arc<Fate>,
}

impl<P: Pangolin> Fragile<P> {
    async fn write<T>(&self, what: &str, call: Answer<'_, T>) -> Result<T, signpost_provider_pangolin::PangolinError> {
        let left = self.fate.left.load(Ordering::SeqCst);
        if left > 0 {
            self.fate.left.fetch_sub(1, Ordering::SeqCst);
        }
        let last = left == 1;
        if last && !self.fate.takes_effect.load(Ordering::SeqCst) {
            self.fate.stopped.notify_one();
            std::future::pending::<()>().await;
        }
        let answer = call.await;
        let judge = self.fate.judge.lock().unwrap().clone();
        if let Some(judge) = judge {
            judge(what);
        }
        if last {
            self.fate.stopped.notify_one();
            std::future::pending::<()>().await;
        }
        answer
    }
}

impl<P: Pangolin> Pangolin for Fragile<P> {
    fn probe(&self) -> Answer<'_, ()> {
        self.inner.probe()
    }
    fn answers(&self) -> u64 {
        self.inner.answers()
    }
    fn domains(&self) -> Answer<'_, Arc<[Domain]>> {
        self.inner.domains()
    }
    fn sites(&self) -> Answer<'_, Arc<[Site]>> {
        self.inner.sites()
    }
    fn forget(&self) {
        self.inner.forget();
    }
    fn resources(&self, max_age: Duration) -> Answer<'_, Arc<[Listed]>> {
        self.inner.resources(max_age)
    }
    fn resource(&self, id: ResourceId) -> Answer<'_, Resource> {
        self.inner.resource(id)
    }
    fn targets(&self, id: ResourceId) -> Answer<'_, Vec<Target>> {
        self.inner.targets(id)
    }
    fn create_resource<'a>(&'a self, new: &'a NewResource) -> Answer<'a, Resource> {
        self.write("create", async move { self.inner.create_resource(new).await }.boxed()).boxed()
    }
    fn update_resource<'a>(&'a self, current: &'a Resource, wanted: &'a ResourceSettings) -> Answer<'a, Resource> {
        self.write("update", async move { self.inner.update_resource(current, wanted).await }.boxed()).boxed()
    }
    fn delete_resource(&self, id: ResourceId) -> Answer<'_, Deleted> {
        self.write("delete", async move { self.inner.delete_resource(id).await }.boxed()).boxed()
    }
    fn create_target<'a>(&'a self, resource: ResourceId, wanted: &'a TargetSettings) -> Answer<'a, Target> {
        self.write("create target", async move { self.inner.create_target(resource, wanted).await }.boxed()).boxed()
    }
    fn update_target<'a>(&'a self, current: &'a Target, wanted: &'a TargetSettings) -> Answer<'a, Target> {
        self.write("update target", async move { self.inner.update_target(current, wanted).await }.boxed()).boxed()
    }
    fn delete_target(&self, resource: ResourceId, id: TargetId) -> Answer<'_, Deleted> {
        self.write("delete target", async move { self.inner.delete_target(resource, id).await }.boxed()).boxed()
    }
}

/// The strict stand-in without a port, for a clock that is paused. A call may be late, slow or broken.
#[derive(Debug)]
pub(crate) struct InProcess {
    state: Arc<Mutex<State>>,
    calls: Mutex<Vec<String>>,
    late: Mutex<Option<(&'static str, Duration)>>,
    slow: Mutex<Option<(&'static str, Duration)>>,
    lagging: Mutex<Option<(&'static str, Duration)>>,
    cut: Mutex<Option<&'static str>>,
    each: Mutex<Duration>,
    broken: Mutex<Option<(&'static str, u16)>>,
}

impl Default for InProcess {
    fn default() -> Self {
        let state = Arc::new(Mutex::new(State::of(Version::V1_22)));
        Self {
            state,
            calls: Mutex::default(),
            late: Mutex::default(),
            slow: Mutex::default(),
            lagging: Mutex::default(),
            cut: Mutex::default(),
            each: Mutex::default(),
            broken: Mutex::default(),
        }
    }
}

impl InProcess {
    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The calls since the last time.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    /// The next call that starts like this reaches the server so much later, and is answered then.
    pub(crate) fn slow(&self, call: &'static str, by: Duration) {
        *self.slow.lock().unwrap() = Some((call, by));
    }

    /// The next call that starts like this is served at once, and answered so much later.
    pub(crate) fn lag(&self, call: &'static str, by: Duration) {
        *self.lagging.lock().unwrap() = Some((call, by));
    }

    /// The connection of every call that starts like this is dropped before it is served, until [`Self::mend`].
    pub(crate) fn cut(&self, call: &'static str) {
        *self.cut.lock().unwrap() = Some(call);
    }

    /// The next call that starts like this has its effect so much later, and no answer.
    pub(crate) fn delay(&self, call: &'static str, by: Duration) {
        *self.late.lock().unwrap() = Some((call, by));
    }

    /// Every call that starts like this is a server error, until [`Self::mend`].
    pub(crate) fn fail(&self, call: &'static str) {
        self.fail_with(call, 500);
    }

    /// The same, with another status.
    pub(crate) fn fail_with(&self, call: &'static str, status: u16) {
        *self.broken.lock().unwrap() = Some((call, status));
    }

    /// Whether the call of [`Self::lag`] was not made yet.
    pub(crate) fn is_lagging(&self) -> bool {
        self.lagging.lock().unwrap().is_some()
    }

    /// Every call takes so long.
    pub(crate) fn pause_each(&self, by: Duration) {
        *self.each.lock().unwrap() = by;
    }

    pub(crate) fn mend(&self) {
        *self.cut.lock().unwrap() = None;
        *self.broken.lock().unwrap() = None;
    }
}

impl Transport for InProcess {
    fn carry(&self, request: Outgoing) -> futures::future::BoxFuture<'_, Result<Incoming, PangolinError>> {
        let name = format!("{} {}", request.method, request.url.path());
        let late = self.late.lock().unwrap().take_if(|(start, _)| name.starts_with(*start));
        let broken = self.broken.lock().unwrap().filter(|(start, _)| name.starts_with(*start));
        let slow = self.slow.lock().unwrap().take_if(|(start, _)| name.starts_with(*start));
        let lagging = self.lagging.lock().unwrap().take_if(|(start, _)| name.starts_with(*start));
        let cut = self.cut.lock().unwrap().is_some_and(|start| name.starts_with(start));
        self.calls.lock().unwrap().push(name);
        let state = Arc::clone(&self.state);
        let serve = move || {
            let asked = Asked {
                method: request.method.as_str(),
                path: request.url.path(),
                query: request.url.query().unwrap_or_default(),
                authorization: request.authorization.as_deref(),
                body: request.body.as_deref(),
            };
            let (status, body) = state.lock().unwrap().respond(&asked);
            Incoming { status, location: None, retry_after: None, body: body.into_bytes() }
        };
        let each = *self.each.lock().unwrap();
        async move {
            if !each.is_zero() {
                tokio::time::sleep(each).await;
            }
            if let Some((_, by)) = slow {
                tokio::time::sleep(by).await;
            }
            if let Some((_, status)) = broken {
                let body = serde_json::json!({"data": null, "success": false, "error": true, "message": "An error occurred", "status": status});
                let body = body.to_string().into_bytes();
                return Ok(Incoming { status, location: None, retry_after: None, body });
            }
            if cut {
                return Err(PangolinError::Unreachable { what: "connection reset".to_owned(), dropped: true });
            }
            let Some((_, late)) = late else {
                let answer = serve();
                if let Some((_, by)) = lagging {
                    tokio::time::sleep(by).await;
                }
                return Ok(answer);
            };
            tokio::spawn(async move {
                tokio::time::sleep(late).await;
                serve();
            });
            tokio::time::sleep(Duration::from_secs(15)).await;
            Err(PangolinError::Timeout)
        }
        .boxed()
    }
}
