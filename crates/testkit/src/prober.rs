//! Asks a name server for one name again and again, and keeps every change of the answer: a gap of a moment is seen.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{eventually, try_dig};

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(20);
/// How long an answer may take to become the wanted one, on the busiest machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// The answers to one question, asked every 20 ms: each change once, in order.
#[derive(Debug)]
pub struct Prober {
    answers: Arc<Mutex<Vec<Vec<String>>>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Prober {
    /// Starts to ask.
    pub fn start(server: SocketAddr, name: String, rtype: &'static str) -> Self {
        let answers: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
        let stop = CancellationToken::new();
        let (log, token) = (answers.clone(), stop.clone());
        let task = tokio::spawn(async move {
            while !token.is_cancelled() {
                // A datagram may be lost; an answer may not.
                if let Ok(answer) = try_dig(server, &name, rtype).await {
                    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                    if log.last() != Some(&answer.records) {
                        log.push(answer.records);
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { answers, stop, task }
    }

    /// Waits until it has this answer.
    pub async fn until(&self, answer: &str) {
        eventually(&format!("the prober is answered {answer}"), PATIENCE, || async {
            let last = self.answers.lock().unwrap_or_else(PoisonError::into_inner).last().cloned();
            if last == Some(vec![answer.to_owned()]) { Ok(()) } else { Err(last) }
        })
        .await;
    }

    /// Every answer until now.
    pub async fn stop(self) -> Vec<Vec<String>> {
        self.stop.cancel();
        self.task.await.expect("the prober does not panic");
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
