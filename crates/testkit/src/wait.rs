//! Waiting for a condition instead of sleeping, and reporting suites that could not run.

use std::fmt::Debug;
use std::future::Future;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// Polls `probe` until it returns `Ok`; panics with the last `Err` when `deadline` has passed.
///
/// A probe that hangs counts as failed.
pub async fn eventually<T, E, F, Fut>(what: &str, deadline: Duration, mut probe: F) -> T
where
    E: Debug,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    match eventually_within(deadline, &mut probe).await {
        Ok(value) => value,
        Err(last) => panic!("not within {deadline:?}: {what}\nlast seen: {last}"),
    }
}

/// Like [`eventually`], but returns the last error instead of panicking.
pub async fn eventually_within<T, E, F, Fut>(deadline: Duration, mut probe: F) -> Result<T, String>
where
    E: Debug,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let end = Instant::now() + deadline;
    let mut pause = Duration::from_millis(5);
    let mut last = String::from("nothing: the first probe never answered");
    loop {
        match timeout_at(end, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => last = format!("{error:#?}"),
            Err(_) => return Err(last),
        }
        if Instant::now() + pause >= end {
            return Err(last);
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// The lines that another process prints, read by a separate thread: waiting for a line has a deadline, and the process does not wait for
/// its reader.
#[derive(Debug)]
pub struct Lines(mpsc::Receiver<String>);

impl Lines {
    /// Starts to read.
    pub fn of(pipe: impl Read + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(pipe).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        Self(receiver)
    }

    /// The next line, or `None` when there are no more; panics when `deadline` has passed.
    pub fn next(&self, deadline: Duration) -> Option<String> {
        self.wait(deadline).unwrap_or_else(|late| panic!("{late}"))
    }

    fn wait(&self, deadline: Duration) -> Result<Option<String>, String> {
        match self.0.recv_timeout(deadline) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(format!("no line within {deadline:?}")),
        }
    }
}

/// Reports a suite that cannot run here. In CI (`CI=true`) that is a failure.
pub fn skip(suite: &str, why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{suite} must not be skipped in CI: {why}");
    // Written directly: the test harness shows what a test prints only if the test fails.
    let _ = writeln!(std::io::stderr(), "SKIPPED {suite}: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn eventually_polls_until_the_condition_is_true() {
        let calls = AtomicU32::new(0);
        let seen = eventually("third time", Duration::from_secs(1), || async {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            if call == 2 { Ok(call) } else { Err(call) }
        })
        .await;
        assert_eq!(seen, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_probe_reports_its_last_error() {
        let error =
            eventually_within(Duration::from_secs(1), || async { Err::<(), _>("still 404") }).await.unwrap_err();
        assert!(error.contains("still 404"), "{error}");
    }

    #[test]
    fn lines_are_read_in_order_until_the_end() {
        let lines = Lines::of("one\ntwo".as_bytes());
        let all: Vec<_> = std::iter::from_fn(|| lines.next(Duration::from_secs(30))).collect();
        assert_eq!(all, ["one", "two"]);
    }

    /// Not by a panic: a panic makes every test of the process keep its logs.
    #[test]
    fn a_missing_line_is_an_error() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(Lines::of(reader).wait(Duration::from_millis(10)).unwrap_err().contains("no line within"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_hangs_does_not_hang_the_test() {
        let error = eventually_within(Duration::from_secs(1), std::future::pending::<Result<(), ()>>).await;
        assert!(error.unwrap_err().contains("never answered"));
    }
}
