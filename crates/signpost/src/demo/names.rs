//! The demo's name server, as the systems see it: they put records in, and every result is queried over UDP.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use futures::future::BoxFuture;
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use signpost_dns::{Fqdn, RecordSet, ZoneName};
use signpost_engine::demo::{BoxError, Names};
use signpost_sandbox::nameserver::{NameServer, Records};
use tokio::net::UdpSocket;
use tokio::sync::Mutex;

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A running name server and a client of it.
pub(super) struct Served {
    records: Records,
    server: SocketAddr,
    /// One query at a time.
    socket: Mutex<UdpSocket>,
}

impl Served {
    pub(super) async fn by(server: &NameServer) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.context("no free port on 127.0.0.1 for queries")?;
        Ok(Self { records: server.records(), server: server.addr(), socket: Mutex::new(socket) })
    }
}

impl Names for Served {
    fn add_zone(&self, zone: &ZoneName) {
        self.records.add_zone(zone);
    }

    fn remove_zone(&self, zone: &ZoneName) {
        self.records.remove_zone(zone);
    }

    fn set(&self, set: &RecordSet) {
        self.records.set(set);
    }

    fn remove(&self, name: &Fqdn, rtype: signpost_dns::RecordType) {
        self.records.remove(name, &rtype);
    }

    fn address(&self) -> SocketAddr {
        self.server
    }

    fn ask<'a>(&'a self, name: &'a str, rtype: &'a str) -> BoxFuture<'a, Result<Vec<String>, BoxError>> {
        Box::pin(async move { Ok(ask(&*self.socket.lock().await, self.server, name, rtype).await?) })
    }
}

/// Queries the name server; an empty answer means that the name or type does not exist. A late answer to an earlier query is ignored.
async fn ask(socket: &UdpSocket, server: SocketAddr, name: &str, rtype: &str) -> anyhow::Result<Vec<String>> {
    let rtype: RecordType = rtype.parse().map_err(|_| anyhow::anyhow!("the type {rtype} cannot be queried"))?;
    // By its labels, because a name may have characters that a host name has not (RFC 2317: 0/25).
    let mut name = Name::from_labels(name.trim_end_matches('.').split('.').map(str::as_bytes))?;
    name.set_fqdn(true);
    let mut query = Message::query();
    query.add_query(Query::query(name, rtype));
    socket.send_to(&query.to_vec()?, server).await?;
    let answer = tokio::time::timeout(TIMEOUT, answer_to(&query, socket)).await??;
    anyhow::ensure!(
        matches!(answer.metadata.response_code, ResponseCode::NoError | ResponseCode::NXDomain),
        "{}",
        answer.metadata.response_code
    );
    Ok(answer
        .answers
        .iter()
        .filter(|record| record.record_type() == rtype)
        .map(|record| record.data.to_string())
        .collect())
}

/// Reads until the answer to this query arrives.
async fn answer_to(query: &Message, socket: &UdpSocket) -> std::io::Result<Message> {
    let mut buffer = [0_u8; 4096];
    loop {
        let (length, _) = socket.recv_from(&mut buffer).await?;
        match Message::from_vec(buffer.get(..length).unwrap_or_default()) {
            Ok(answer) if answer.metadata.id == query.metadata.id && answer.queries == query.queries => {
                return Ok(answer);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::rr::rdata::A;
    use hickory_proto::rr::{RData, Record};

    #[tokio::test]
    async fn an_answer_to_another_query_is_ignored() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let serving = async {
            let mut buffer = [0_u8; 512];
            let (length, from) = server.recv_from(&mut buffer).await.unwrap();
            let asked = Message::from_vec(&buffer[..length]).unwrap();
            let answer = |id: u16, name: &str, last: u8| {
                let mut answer = Message::response(id, asked.metadata.op_code);
                let name = Name::from_ascii(name).unwrap();
                answer.add_query(Query::query(name.clone(), RecordType::A));
                answer.add_answer(Record::from_rdata(name, 60, RData::A(A::new(192, 0, 2, last))));
                answer.to_vec().unwrap()
            };
            let id = asked.metadata.id;
            for bytes in [
                b"no message".to_vec(),
                answer(id.wrapping_add(1), "www.example.org.", 1),
                answer(id, "old.example.org.", 2),
                answer(id, "www.example.org.", 3),
            ] {
                server.send_to(&bytes, from).await.unwrap();
            }
        };
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (answer, ()) = tokio::join!(ask(&socket, address, "www.example.org", "A"), serving);
        assert_eq!(answer.unwrap(), ["192.0.2.3"]);
    }
}
