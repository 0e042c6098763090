//! Follows the examples until each has come to what is expected of it, and says so as it happens.
//!
//! Nothing is taken on trust: an object that says it is Ready counts only when the name server answers for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use kube::Client;
use serde_json::Value;
use tokio::net::UdpSocket;

use super::examples::{Example, Expected};
use super::say;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the examples came to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Names and types that the name server answers, with their data.
    pub(super) served: BTreeMap<(String, String), Vec<String>>,
    /// Objects that were refused as expected, with the reason.
    pub(super) refused: Vec<(String, String)>,
    /// Objects that did not come to what was expected, with what is known.
    pub(super) missing: Vec<(String, String)>,
}

impl Outcome {
    /// Takes in what further examples came to.
    pub(super) fn add(&mut self, other: Self) {
        let Self { served, refused, missing } = other;
        self.served.extend(served);
        self.refused.extend(refused);
        self.missing.extend(missing);
    }
}

/// What one look at one object showed.
enum Look {
    Served(Vec<(String, String, Vec<String>)>),
    Refused {
        reason: String,
        message: String,
    },
    NotYet(String),
    /// No system has written to it.
    Untouched(&'static str),
}

impl Look {
    /// What to say when something else was expected.
    fn unexpected(self) -> String {
        match self {
            Self::Served(_) => "it is served, which was not expected".to_owned(),
            Self::Refused { reason, message } => format!("{reason}: {message}"),
            Self::NotYet(why) => why,
            Self::Untouched(lacks) => lacks.to_owned(),
        }
    }
}

/// Those to which something happened although nothing was to, with what that is.
pub(super) async fn touched(
    client: &Client,
    examples: &[Example],
    server: SocketAddr,
) -> anyhow::Result<Vec<(String, String)>> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    let mut touched = Vec::new();
    for example in examples {
        match look(client, example, server, &socket).await {
            Look::Untouched(_) => {}
            other => touched.push((example.title(), other.unexpected())),
        }
        let rules = example.object["spec"]["rules"].as_array().into_iter().flatten();
        for host in rules.filter_map(|rule| rule["host"].as_str()) {
            // A name outside of every zone is refused, which is no answer either.
            if ask(&socket, server, host, "A").await.is_ok_and(|data| !data.is_empty()) {
                touched.push((example.title(), format!("{host} is answered, which was not expected")));
            }
        }
    }
    Ok(touched)
}

/// Looks at the open examples again and again until none is left or time is up.
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
            match (look(client, example, server, &socket).await, example.expected()) {
                (Look::Served(names), Expected::Served) => {
                    for (name, rtype, data) in names {
                        say(&format!("  served   {name:<28} {rtype:<6} {:<32} {}", data.join(", "), example.title()));
                        outcome.served.insert((name, rtype), data);
                    }
                }
                (Look::Refused { reason, message }, Expected::Refused(wanted)) if reason == wanted => {
                    say(&format!("  refused  {}: {reason}: {message}", example.title()));
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

async fn look(client: &Client, example: &Example, server: SocketAddr, socket: &UdpSocket) -> Look {
    let object = match example.api(client).get(example.name()).await {
        Ok(object) => object,
        Err(error) => return Look::NotYet(format!("it cannot be read: {error}")),
    };
    let annotations = object.metadata.annotations.clone().unwrap_or_default();
    match example.kind() {
        "Zone" | "ClusterZone" | "RRset" | "ClusterRRset" => {
            let status = &object.data["status"];
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let Some(ready) = conditions.iter().find(|condition| condition["type"] == "Ready") else {
                return Look::Untouched("it has no Ready condition yet");
            };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if ready["status"] != "True" {
                return Look::Refused { reason: text(&ready["reason"]), message: text(&ready["message"]) };
            }
            // Its records come from its masters, so the demo has nothing to answer for it.
            if matches!(object.data["spec"]["kind"].as_str(), Some("Slave" | "Consumer")) {
                return Look::Served(Vec::new());
            }
            let (name, rtype) = match example.kind() {
                "Zone" | "ClusterZone" => (text(&status["name"]), "SOA".to_owned()),
                _ => (text(&status["dnsEntryName"]), text(&object.data["spec"]["type"])),
            };
            match ask(socket, server, &name, &rtype).await {
                Ok(data) if !data.is_empty() => Look::Served(vec![(name, rtype, data)]),
                Ok(_) => Look::NotYet(format!("it says Ready, but {name} {rtype} has no answer")),
                Err(error) => Look::NotYet(format!("it says Ready, but {name} {rtype} cannot be asked for: {error}")),
            }
        }
        "Ingress" => {
            let Some(hosts) = annotations.get("pihole.io/managed-hosts").filter(|hosts| !hosts.is_empty()) else {
                return Look::Untouched("it has no managed hosts yet");
            };
            let mut names = Vec::new();
            for host in hosts.split(',') {
                match ask(socket, server, host, "A").await {
                    Ok(data) if !data.is_empty() => names.push((format!("{host}."), "A".to_owned(), data)),
                    Ok(_) => return Look::NotYet(format!("{host} has no answer")),
                    Err(error) => return Look::NotYet(format!("{host} cannot be asked for: {error}")),
                }
            }
            Look::Served(names)
        }
        _ => Look::Served(Vec::new()),
    }
}

/// Asks the name server; an empty answer means there is no such name or type. A late answer to an earlier question is not taken for this one.
async fn ask(socket: &UdpSocket, server: SocketAddr, name: &str, rtype: &str) -> anyhow::Result<Vec<String>> {
    let rtype: RecordType = rtype.parse().map_err(|_| anyhow::anyhow!("no query can be made for the type {rtype}"))?;
    let mut name = Name::from_ascii(name)?;
    name.set_fqdn(true);
    let mut query = Message::query();
    query.add_query(Query::query(name, rtype));
    socket.send_to(&query.to_vec()?, server).await?;
    let answer = tokio::time::timeout(PATIENCE, answer_to(&query, socket)).await??;
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

/// Reads on until the answer to this question comes.
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
    async fn an_answer_to_another_question_is_passed_over() {
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
