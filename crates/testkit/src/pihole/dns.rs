//! The resolver side of a stand-in: answers A, AAAA and CNAME from its lines, with a TTL of 0.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::net::UdpSocket;

use super::v6_rules;

/// The lines of the resolver at this moment; None while it is down.
pub(super) type Source = Arc<dyn Fn() -> Option<Zone> + Send + Sync>;

/// Names and their values, lower case and without a trailing dot.
#[derive(Clone, Debug, Default)]
pub(super) struct Zone {
    pub(super) addresses: Vec<(String, IpAddr)>,
    pub(super) aliases: Vec<(String, String)>,
}

impl Zone {
    /// Reads `dns.hosts` and `dns.cnameRecords` lines the way the resolver does.
    pub(super) fn of(hosts: &[String], cnames: &[String]) -> Self {
        let value = |line: &str| v6_rules::uncommented(line).to_ascii_lowercase();
        let undotted = |name: &str| name.trim().trim_end_matches('.').to_owned();
        let mut zone = Self::default();
        for line in hosts.iter().map(|line| value(line)) {
            let mut words = line.split_ascii_whitespace();
            let Some(ip) = words.next().and_then(|word| word.parse().ok()) else { continue };
            zone.addresses.extend(words.map(|name| (undotted(name), ip)));
        }
        for (aliases, target) in cnames.iter().filter_map(|line| v6_rules::alias_words(line)) {
            zone.aliases.extend(aliases.into_iter().map(|alias| (alias, target.clone())));
        }
        zone
    }

    /// The server answers its own name with its own address, whatever its lists hold.
    pub(super) fn with_own_name(mut self, name: &str) -> Self {
        self.addresses.retain(|(owner, _)| owner != name);
        self.addresses.push((name.to_owned(), IpAddr::from([127, 0, 0, 1])));
        self
    }

    fn answers(&self, name: &str, rtype: RecordType) -> (Vec<(String, RData)>, bool) {
        let mut found = Vec::new();
        let mut known = false;
        let mut name = name.to_owned();
        for _ in 0..8 {
            known |= self.addresses.iter().any(|(owner, _)| *owner == name);
            for (_, ip) in self.addresses.iter().filter(|(owner, _)| *owner == name) {
                match (ip, rtype) {
                    (IpAddr::V4(ip), RecordType::A) => found.push((name.clone(), RData::A(A(*ip)))),
                    (IpAddr::V6(ip), RecordType::AAAA) => found.push((name.clone(), RData::AAAA(AAAA(*ip)))),
                    _ => {}
                }
            }
            let Some((_, target)) = self.aliases.iter().find(|(alias, _)| *alias == name) else { break };
            known = true;
            // A target that is not ASCII is served in no form that a client understands.
            let Ok(data) = Name::from_ascii(format!("{target}.")) else { break };
            found.push((name.clone(), RData::CNAME(CNAME(data))));
            if rtype == RecordType::CNAME {
                break;
            }
            name.clone_from(target);
        }
        (found, known)
    }
}

/// Answers questions on a loopback port until the socket's task is aborted.
pub(super) async fn serve(source: Source) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
    let addr = socket.local_addr().expect("an address");
    let task = tokio::spawn(async move {
        let mut buffer = vec![0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer).await {
            let Some(zone) = source() else { continue };
            if let Some(reply) = buffer.get(..length).and_then(|question| reply(question, &zone)) {
                let _ = socket.send_to(&reply, peer).await;
            }
        }
    });
    (addr, task)
}

fn reply(question: &[u8], zone: &Zone) -> Option<Vec<u8>> {
    let question = Message::from_vec(question).ok()?;
    let query = question.queries.first()?.clone();
    let name = query.name().to_ascii().trim_end_matches('.').to_ascii_lowercase();
    let (found, known) = zone.answers(&name, query.query_type());
    let mut message = Message::response(question.metadata.id, question.metadata.op_code);
    message.metadata.response_code = if known { ResponseCode::NoError } else { ResponseCode::NXDomain };
    message.add_query(query);
    for (owner, data) in found {
        message.add_answer(Record::from_rdata(Name::from_ascii(format!("{owner}.")).ok()?, 0, data));
    }
    message.to_vec().ok()
}
