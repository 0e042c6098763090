//! Follows the examples until each has its expected result, and prints each result when it is there.
//!
//! An object with the condition Ready counts only when the name server answers for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use kube::Client;
use serde_json::Value;
use tokio::net::UdpSocket;

use super::examples::{Example, Expected};
use super::print_line;

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The results of the examples.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Names and types that the name server answers, with their data.
    pub(super) served: BTreeMap<(String, String), Vec<String>>,
    /// Objects that were refused as expected, with the reason.
    pub(super) refused: Vec<(String, String)>,
    /// Objects without the expected result, with the last known state.
    pub(super) missing: Vec<(String, String)>,
}

impl Outcome {
    /// Adds the results of further examples.
    pub(super) fn add(&mut self, other: Self) {
        let Self { served, refused, missing } = other;
        self.served.extend(served);
        self.refused.extend(refused);
        self.missing.extend(missing);
    }
}

/// The state of one object at one check.
enum State {
    Served(Vec<(String, String, Vec<String>)>),
    Refused {
        reason: String,
        message: String,
    },
    NotYet(String),
    /// No system has written to it.
    Untouched(&'static str),
}

impl State {
    /// The message when another state was expected.
    fn unexpected(self) -> String {
        match self {
            Self::Served(_) => "it is served, which was not expected".to_owned(),
            Self::Refused { reason, message } => format!("{reason}: {message}"),
            Self::NotYet(why) => why,
            Self::Untouched(lacks) => lacks.to_owned(),
        }
    }
}

/// The examples that were changed although they must not be, with the change.
pub(super) async fn changed(
    client: &Client,
    examples: &[Example],
    server: SocketAddr,
) -> anyhow::Result<Vec<(String, String)>> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    let mut changed = Vec::new();
    for example in examples {
        match check(client, example, server, &socket).await {
            State::Untouched(_) => {}
            other => changed.push((example.title(), other.unexpected())),
        }
        let rules = example.object["spec"]["rules"].as_array().into_iter().flatten();
        for host in rules.filter_map(|rule| rule["host"].as_str()) {
            // A name outside of every zone is refused, which does not count as an answer.
            if ask(&socket, server, host, "A").await.is_ok_and(|data| !data.is_empty()) {
                changed.push((example.title(), format!("{host} is answered, which was not expected")));
            }
        }
    }
    Ok(changed)
}

/// Checks the open examples repeatedly until none is left or the deadline has passed.
pub(super) async fn follow(
    client: &Client,
    examples: &[Example],
    server: SocketAddr,
    deadline: Instant,
) -> anyhow::Result<Outcome> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    let mut outcome = Outcome::default();
    let mut open: Vec<(&Example, String)> =
        examples.iter().map(|example| (example, "nothing was reported".to_owned())).collect();
    while !open.is_empty() && Instant::now() < deadline {
        let mut still = Vec::new();
        for (example, _) in open {
            match (check(client, example, server, &socket).await, example.expected()) {
                (State::Served(names), Expected::Served) => {
                    for (name, rtype, data) in names {
                        print_line(&format!(
                            "  served   {name:<28} {rtype:<6} {:<32} {}",
                            data.join(", "),
                            example.title()
                        ));
                        outcome.served.insert((name, rtype), data);
                    }
                }
                (State::Refused { reason, message }, Expected::Refused(wanted)) if reason == wanted => {
                    print_line(&format!("  refused  {}: {reason}: {message}", example.title()));
                    outcome.refused.push((example.title(), reason));
                }
                (other, _) => still.push((example, other.unexpected())),
            }
        }
        open = still;
        if !open.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    outcome.missing = open.into_iter().map(|(example, why)| (example.title(), why)).collect();
    Ok(outcome)
}

async fn check(client: &Client, example: &Example, server: SocketAddr, socket: &UdpSocket) -> State {
    let object = match example.api(client).get(example.name()).await {
        Ok(object) => object,
        Err(error) => return State::NotYet(format!("it cannot be read: {error}")),
    };
    let annotations = object.metadata.annotations.clone().unwrap_or_default();
    match example.kind() {
        "Zone" | "ClusterZone" | "RRset" | "ClusterRRset" => {
            let status = &object.data["status"];
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let Some(ready) = conditions.iter().find(|condition| condition["type"] == "Ready") else {
                return State::Untouched("it has no Ready condition yet");
            };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if ready["status"] != "True" {
                return State::Refused { reason: text(&ready["reason"]), message: text(&ready["message"]) };
            }
            // Its records come from its masters, so the demo has nothing to answer for it.
            if matches!(object.data["spec"]["kind"].as_str(), Some("Slave" | "Consumer")) {
                return State::Served(Vec::new());
            }
            let (name, rtype) = match example.kind() {
                "Zone" | "ClusterZone" => (text(&status["name"]), "SOA".to_owned()),
                _ => (text(&status["dnsEntryName"]), text(&object.data["spec"]["type"])),
            };
            match ask(socket, server, &name, &rtype).await {
                Ok(data) if !data.is_empty() => State::Served(vec![(name, rtype, data)]),
                Ok(_) => State::NotYet(format!("it is Ready, but {name} {rtype} has no answer")),
                Err(error) => State::NotYet(format!("it is Ready, but {name} {rtype} cannot be queried: {error}")),
            }
        }
        "Ingress" => {
            let Some(hosts) = annotations.get("pihole.io/managed-hosts").filter(|hosts| !hosts.is_empty()) else {
                return State::Untouched("it has no managed hosts yet");
            };
            let mut names = Vec::new();
            for host in hosts.split(',') {
                match ask(socket, server, host, "A").await {
                    Ok(data) if !data.is_empty() => names.push((format!("{host}."), "A".to_owned(), data)),
                    Ok(_) => return State::NotYet(format!("{host} has no answer")),
                    Err(error) => return State::NotYet(format!("{host} cannot be queried: {error}")),
                }
            }
            State::Served(names)
        }
        _ => State::Served(Vec::new()),
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
