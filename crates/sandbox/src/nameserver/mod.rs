//! An authoritative name server in the process: UDP and TCP on one port, answering from [`Records`].
//!
//! ```text
//! Records::{add_zone, set, remove} ─► records ─► lookup ─► wire ─► hickory-server ─► dig
//! ```
//!
//! It answers only for zones that were added, and for single names it was given outside of any zone; everything else is refused.

mod lookup;
mod records;
#[cfg(test)]
mod tests;
mod wire;

use std::{future::Future, io, net::SocketAddr, pin::Pin, time::Duration};

use hickory_proto::{
    op::{Edns, MessageType, Metadata, OpCode, ResponseCode},
    rr::{DNSClass, Record},
};
use hickory_server::{
    net::runtime::Time,
    server::{Request, RequestHandler, ResponseHandler, ResponseInfo, Server},
    zone_handler::MessageResponseBuilder,
};
use lookup::AnswerKind;
pub use records::Records;
use signpost_dns::{Fqdn, RecordSet};
use tokio::net::{TcpListener, UdpSocket};

/// How long a TCP connection may be silent.
const TCP_IDLE: Duration = Duration::from_secs(10);
/// Answers that may wait on one TCP connection.
const TCP_BUFFER: usize = 64;
/// The largest UDP answer, whatever the client would take: what passes everywhere without being cut into fragments.
const UDP_PAYLOAD: u16 = 1232;
/// How often a port is tried that is free for TCP but not for UDP.
const PORT_TRIES: usize = 32;

const AXFR: u16 = 252;
const IXFR: u16 = 251;

/// A running name server; it stops when dropped.
pub struct NameServer {
    addr: SocketAddr,
    records: Records,
    _server: Server<Handler>,
}

impl std::fmt::Debug for NameServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NameServer").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl NameServer {
    /// Listens on the address, for UDP and TCP; port 0 picks one that is free for both.
    pub async fn start(addr: SocketAddr) -> io::Result<Self> {
        Self::start_with(addr, Records::default()).await
    }

    /// Like [`Self::start`], with records that may be shared with others.
    pub async fn start_with(addr: SocketAddr, records: Records) -> io::Result<Self> {
        let (udp, tcp) = bind(addr).await?;
        let addr = tcp.local_addr()?;
        let mut server = Server::new(Handler { records: records.clone() });
        server.register_socket(udp);
        server.register_listener(tcp, TCP_IDLE, TCP_BUFFER);
        Ok(Self { addr, records, _server: server })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its records.
    pub fn records(&self) -> Records {
        self.records.clone()
    }
}

async fn bind(addr: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    let mut tries = 0;
    loop {
        let tcp = TcpListener::bind(addr).await?;
        match UdpSocket::bind(tcp.local_addr()?).await {
            Ok(udp) => return Ok((udp, tcp)),
            Err(error) if addr.port() != 0 || tries >= PORT_TRIES => return Err(error),
            Err(_) => tries += 1,
        }
    }
}

/// Answers requests from the records.
struct Handler {
    records: Records,
}

/// A reply before it is encoded.
struct Reply {
    code: ResponseCode,
    authoritative: bool,
    answers: Vec<Record>,
    authority: Vec<Record>,
    additional: Vec<Record>,
}

impl Reply {
    fn bare(code: ResponseCode) -> Self {
        Self { code, authoritative: false, answers: Vec::new(), authority: Vec::new(), additional: Vec::new() }
    }
}

impl Handler {
    fn reply(&self, request: &Request) -> Reply {
        if request.metadata.message_type != MessageType::Query || request.metadata.op_code != OpCode::Query {
            return Reply::bare(ResponseCode::NotImp);
        }
        let Ok(info) = request.request_info() else { return Reply::bare(ResponseCode::FormErr) };
        let qtype = u16::from(info.query.query_type());
        if info.query.query_class() != DNSClass::IN || matches!(qtype, AXFR | IXFR) {
            return Reply::bare(ResponseCode::Refused);
        }
        let records = self.records.read();
        let labels: Vec<String> =
            info.query.name().iter().map(|label| String::from_utf8_lossy(label).into_owned()).collect();
        let Some((qname, whole)) = readable(&labels) else { return Reply::bare(ResponseCode::Refused) };
        let mut answer = lookup::answer(&records, &qname, qtype);
        if !whole && answer.kind != AnswerKind::Refused {
            // A label that no record can have: nothing is there, whatever is above it.
            answer = lookup::absent(&records, &qname);
        }
        let code = match answer.kind {
            AnswerKind::Found | AnswerKind::Referral => ResponseCode::NoError,
            AnswerKind::NoSuchName => ResponseCode::NXDomain,
            AnswerKind::Refused => ResponseCode::Refused,
        };
        Reply {
            code,
            authoritative: matches!(answer.kind, AnswerKind::Found | AnswerKind::NoSuchName),
            answers: encoded(&answer.answers),
            authority: encoded(&answer.authority),
            additional: encoded(&answer.additional),
        }
    }
}

/// The longest part of a name that can be read, and whether that is all of it.
fn readable(labels: &[String]) -> Option<(Fqdn, bool)> {
    if labels.is_empty() {
        return Some((Fqdn::root(), true));
    }
    (0..labels.len()).find_map(|skipped| {
        let name = Fqdn::parse(&labels[skipped..].join(".")).ok()?;
        (name.depth() == labels.len() - skipped).then_some((name, skipped == 0))
    })
}

fn encoded(sets: &[RecordSet]) -> Vec<Record> {
    sets.iter()
        .flat_map(|set| set.records.iter().filter_map(|rdata| wire::record(&set.name, set.ttl.seconds(), rdata)))
        .collect()
}

impl RequestHandler for Handler {
    fn handle_request<'handler, 'request, 'future, R, T>(
        &'handler self,
        request: &'request Request,
        mut response_handle: R,
    ) -> Pin<Box<dyn Future<Output = ResponseInfo> + Send + 'future>>
    where
        'handler: 'future,
        'request: 'future,
        R: ResponseHandler + 'future,
        T: Time + 'future,
        Self: 'future,
    {
        Box::pin(async move {
            let reply = self.reply(request);
            let mut metadata = Metadata::response_from_request(&request.metadata);
            metadata.response_code = reply.code;
            metadata.authoritative = reply.authoritative;
            let edns = request.edns.as_ref().map(|asked| {
                let mut edns = Edns::new();
                edns.set_max_payload(asked.max_payload().clamp(512, UDP_PAYLOAD));
                edns.set_version(0);
                edns
            });
            let response = MessageResponseBuilder::new(&request.queries, edns.as_ref()).build(
                metadata,
                &reply.answers,
                &reply.authority,
                &[],
                &reply.additional,
            );
            match response_handle.send_response(response).await {
                Ok(info) => info,
                Err(error) => {
                    tracing::debug!(%error, "a DNS answer was not sent");
                    hickory_proto::op::Header { metadata, counts: hickory_proto::op::HeaderCounts::default() }.into()
                }
            }
        })
    }
}
