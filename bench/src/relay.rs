//! A name server some milliseconds away: passes datagrams on to the real one, and answers back after a fixed delay.
//!
//! ```text
//!  client ─► relay (id replaced by a number of its own) ─► name server ─► relay (id put back, waits) ─► client
//! ```

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A running relay; it ends when it is dropped.
pub(crate) struct Relay {
    addr: SocketAddr,
    _tasks: JoinSet<()>,
}

/// Who asked, under which id, and when the answer may arrive.
type Open = HashMap<[u8; 2], (SocketAddr, [u8; 2], Instant)>;

impl Relay {
    /// Starts a relay to a server, with this much time between a question and its answer.
    pub(crate) async fn start(server: SocketAddr, delay: Duration) -> anyhow::Result<Self> {
        let near = Arc::new(UdpSocket::bind("127.0.0.1:0").await?);
        let far = Arc::new(UdpSocket::bind("127.0.0.1:0").await?);
        far.connect(server).await?;
        let addr = near.local_addr()?;
        let open: Arc<Mutex<Open>> = Arc::default();
        let (send, mut waiting) = mpsc::unbounded_channel::<(Instant, SocketAddr, Vec<u8>)>();
        let mut tasks = JoinSet::new();
        tasks.spawn({
            let (near, far, open) = (near.clone(), far.clone(), open.clone());
            async move {
                let mut buffer = [0_u8; 4096];
                let mut number = 0_u16;
                while let Ok((length, from)) = near.recv_from(&mut buffer).await {
                    let Some((id, _)) = buffer[..length].split_first_chunk::<2>() else { continue };
                    number = number.wrapping_add(1);
                    let asked = (from, *id, Instant::now() + delay);
                    open.lock().unwrap_or_else(PoisonError::into_inner).insert(number.to_be_bytes(), asked);
                    buffer[..2].copy_from_slice(&number.to_be_bytes());
                    let _ = far.send(&buffer[..length]).await;
                }
            }
        });
        tasks.spawn(async move {
            let mut buffer = [0_u8; 4096];
            while let Ok(length) = far.recv(&mut buffer).await {
                let Some((number, rest)) = buffer[..length].split_first_chunk::<2>() else { continue };
                let asked = open.lock().unwrap_or_else(PoisonError::into_inner).remove(number);
                let Some((from, id, at)) = asked else { continue };
                let _ = send.send((at, from, [&id[..], rest].concat()));
            }
        });
        tasks.spawn(async move {
            // One delay for all, so answers leave in the order in which they arrive.
            while let Some((at, to, answer)) = waiting.recv().await {
                tokio::time::sleep_until(at).await;
                let _ = near.send_to(&answer, to).await;
            }
        });
        Ok(Self { addr, _tasks: tasks })
    }

    /// Where it answers.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_has_the_id_of_its_question_and_takes_its_time() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay::start(server.local_addr().unwrap(), Duration::from_millis(30)).await.unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let began = Instant::now();
        client.send_to(b"\x12\x34hello", relay.addr()).await.unwrap();
        let mut buffer = [0_u8; 16];
        let (length, from) = server.recv_from(&mut buffer).await.unwrap();
        assert_eq!(&buffer[2..length], b"hello");
        server.send_to(&[&buffer[..2], b"world"].concat(), from).await.unwrap();
        let (length, _) = client.recv_from(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..length], b"\x12\x34world");
        assert!(began.elapsed() >= Duration::from_millis(30));
    }
}
