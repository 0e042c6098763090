//! One question to one server: over UDP, sent again when there is no answer, and over TCP when the answer does not fit.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Name, RecordType as WireType};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

use crate::wire;

/// Pauses before the question is sent again.
const AGAIN: [Duration; 2] = [Duration::from_millis(800), Duration::from_millis(1600)];

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The time is over.
    Timeout,
    /// The network reports an error.
    Network(io::Error),
    /// What arrived is not a message.
    Unreadable(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Network(error)
    }
}

/// Why a message over a stream is not an answer when it is truncated.
const CUT_OFF: &str =
    "it is truncated, although it was not sent in a datagram: the name has more records than a message";

/// Why a truncated answer over UDP is not followed by one over TCP.
const CLOSED: &str = "it is truncated, and the server closed the TCP connection without a whole one: the name may have more records than a message";

/// Why there is no TCP connection after a truncated answer over UDP. Without the error of the network: the words are part of a status, and do not change
/// from try to try.
const NOT_OPEN: &str =
    "it is truncated, and the server accepts no TCP connection for a whole one: allow TCP to its port";

/// Asks a server, until the deadline.
pub(crate) async fn exchange(
    server: SocketAddr,
    name: &Name,
    rtype: WireType,
    recursive: bool,
    deadline: Instant,
) -> Result<Message, Failure> {
    let mut question = wire::question(name, rtype, recursive, true);
    let mut answer = datagrams(server, &question, deadline).await?;
    // Old servers do not know EDNS.
    if matches!(answer.metadata.response_code, ResponseCode::FormErr | ResponseCode::NotImp) && answer.edns.is_none() {
        question = wire::question(name, rtype, recursive, false);
        answer = datagrams(server, &question, deadline).await?;
    }
    if answer.metadata.truncation {
        return timeout_at(deadline, stream(server, &question)).await.map_err(|_| Failure::Timeout)?;
    }
    Ok(answer)
}

/// Over UDP. The socket is connected, so answers from other addresses do not arrive; its port is drawn by the kernel for this question.
async fn datagrams(server: SocketAddr, question: &Message, deadline: Instant) -> Result<Message, Failure> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let sent = question.to_vec().map_err(|error| Failure::Unreadable(error.to_string()))?;
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    let mut pauses = AGAIN.into_iter();
    let mut buffer = vec![0; 4096];
    loop {
        socket.send(&sent).await?;
        let until = pauses.next().map_or(deadline, |pause| (Instant::now() + pause).min(deadline));
        while let Ok(received) = timeout_at(until, socket.recv(&mut buffer)).await {
            // Anything that is not the answer may be a forgery: the answer is still awaited.
            let message = buffer.get(..received?).and_then(read_datagram);
            if let Some(message) = message.filter(|message| wire::answers(question, message)) {
                return Ok(message);
            }
        }
        if until >= deadline {
            return Err(Failure::Timeout);
        }
    }
}

/// A datagram as a message. A truncated one may end within a record; then its beginning counts.
fn read_datagram(octets: &[u8]) -> Option<Message> {
    if let Ok(message) = Message::from_vec(octets) {
        return Some(message);
    }
    // Header and question only: no answers, no authorities, no additional records.
    let truncated = octets.get(2).is_some_and(|flags| flags & 0b10 != 0);
    let mut head = octets.to_vec();
    head.get_mut(6..12)?.fill(0);
    truncated.then(|| Message::from_vec(&head).ok()).flatten()
}

/// Over TCP, after a truncated answer. A server that answers over UDP works, also when it refuses, resets or closes the connection: PowerDNS closes it
/// for a name with more records than a message.
async fn stream(server: SocketAddr, question: &Message) -> Result<Message, Failure> {
    let connection = TcpStream::connect(server).await;
    let mut connection = connection.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Failure::Unreadable(NOT_OPEN.to_owned()),
        // It may be on this side.
        _ => Failure::from(error),
    })?;
    framed(&mut connection, question).await.map_err(|failure| match failure {
        Failure::Network(_) => Failure::Unreadable(CLOSED.to_owned()),
        other @ (Failure::Timeout | Failure::Unreadable(_)) => other,
    })
}

/// Over a stream, where the length comes before a message.
pub(crate) async fn framed(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    question: &Message,
) -> Result<Message, Failure> {
    let unreadable = |error: String| Failure::Unreadable(error);
    let sent = question.to_vec().map_err(|error| unreadable(error.to_string()))?;
    let length = u16::try_from(sent.len()).map_err(|error| unreadable(error.to_string()))?;
    stream.write_all(&[&length.to_be_bytes()[..], &sent].concat()).await?;
    stream.flush().await?;
    let length = stream.read_u16().await?;
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await?;
    let answer = Message::from_vec(&buffer).map_err(|error| unreadable(error.to_string()))?;
    whole_answer(question, answer)
}

/// The answer to a question that did not arrive in a datagram. A part of the records would be judged as if it were all of them.
pub(crate) fn whole_answer(question: &Message, answer: Message) -> Result<Message, Failure> {
    match answer {
        answer if !wire::answers(question, &answer) => {
            Err(Failure::Unreadable("it answers another question".to_owned()))
        }
        answer if answer.metadata.truncation => Err(Failure::Unreadable(CUT_OFF.to_owned())),
        answer => Ok(answer),
    }
}
