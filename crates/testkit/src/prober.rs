//! Asks a name server for one name again and again, and keeps every change of the answer: a gap of a moment is seen, and so is a server that does
//! not answer any more.

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

/// So many questions in a row without an answer are a gap. A single datagram may be lost.
const SILENCES: usize = 2;

/// The answers to one question, asked every 20 ms: each change once, in order. A gap is an empty answer.
#[derive(Debug)]
pub struct Prober {
    answers: Arc<Mutex<Log>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// The answers so far.
#[derive(Debug, Default)]
struct Log {
    answers: Vec<Vec<String>>,
    /// Questions in a row without an answer.
    silences: usize,
}

impl Log {
    /// The records of an answer; `None` when there was no answer.
    fn note(&mut self, records: Option<Vec<String>>) {
        self.silences = if records.is_none() { self.silences + 1 } else { 0 };
        let answer = match records {
            Some(records) => records,
            None if self.silences >= SILENCES => Vec::new(),
            None => return,
        };
        if self.answers.last() != Some(&answer) {
            self.answers.push(answer);
        }
    }
}

impl Prober {
    /// Starts to ask.
    pub fn start(server: SocketAddr, name: String, rtype: &'static str) -> Self {
        let answers: Arc<Mutex<Log>> = Arc::default();
        let stop = CancellationToken::new();
        let (log, token) = (answers.clone(), stop.clone());
        let task = tokio::spawn(async move {
            while !token.is_cancelled() {
                let answer = try_dig(server, &name, rtype).await;
                log.lock().unwrap_or_else(PoisonError::into_inner).note(answer.ok().map(|answer| answer.records));
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { answers, stop, task }
    }

    fn answers(&self) -> Vec<Vec<String>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).answers.clone()
    }

    /// Waits until it has this answer.
    pub async fn until(&self, answer: &str) {
        eventually(&format!("the prober is answered {answer}"), PATIENCE, || async {
            let last = self.answers().pop();
            if last == Some(vec![answer.to_owned()]) { Ok(()) } else { Err(last) }
        })
        .await;
    }

    /// Every answer until now.
    pub async fn stop(self) -> Vec<Vec<String>> {
        self.stop.cancel();
        self.task.await.expect("the prober does not panic");
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).answers.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_silences_in_a_row_are_a_gap_and_one_is_not() {
        let mut log = Log::default();
        let answer = || Some(vec!["192.0.2.1".to_owned()]);
        for records in [answer(), None, answer(), None, answer()] {
            log.note(records);
        }
        assert_eq!(log.answers, [["192.0.2.1"]]);
        for records in [None, None, None, answer()] {
            log.note(records);
        }
        assert_eq!(log.answers, [vec!["192.0.2.1".to_owned()], vec![], vec!["192.0.2.1".to_owned()]]);
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_a_gap() {
        // Nothing listens there any more, which is reported at once.
        let closed = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let prober = Prober::start(closed, "example.com".to_owned(), "A");
        eventually("the prober has seen a gap", PATIENCE, || async {
            if prober.answers() == [Vec::<String>::new()] { Ok(()) } else { Err(prober.answers()) }
        })
        .await;
        assert_eq!(prober.stop().await, [Vec::<String>::new()]);
    }
}
