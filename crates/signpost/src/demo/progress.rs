//! Follows the examples until each has come to what is expected of it, and says so as it happens.
//!
//! Nothing is taken on trust: an object that says it is Ready counts only when the name server answers for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use kube::Client;
use serde_json::Value;
use tokio::net::UdpSocket;

use super::examples::{Example, Expected};
use super::say;

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
    Refused { reason: String, message: String },
    NotYet(String),
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
            let expected = example.expected();
            match (look(client, example, server, &socket).await, expected) {
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
                (Look::NotYet(_), Expected::Ignored) => {}
                (Look::Served(_), _) => still.push((example, "it is served, which was not expected".to_owned())),
                (Look::Refused { reason, message }, _) => still.push((example, format!("{reason}: {message}"))),
                (Look::NotYet(why), _) => still.push((example, why)),
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
                return Look::NotYet("it has no Ready condition yet".into());
            };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            if ready["status"] != "True" {
                return Look::Refused { reason: text(&ready["reason"]), message: text(&ready["message"]) };
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
                return Look::NotYet("it has no managed hosts yet".into());
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

/// Asks the name server; an empty answer means there is no such name or type.
async fn ask(socket: &UdpSocket, server: SocketAddr, name: &str, rtype: &str) -> anyhow::Result<Vec<String>> {
    let rtype: RecordType = rtype.parse().map_err(|_| anyhow::anyhow!("no query can be made for the type {rtype}"))?;
    let mut query = Message::new(rand_id(name), MessageType::Query, OpCode::Query);
    query.add_query(Query::query(Name::from_ascii(name)?, rtype));
    socket.send_to(&query.to_vec()?, server).await?;
    let mut buffer = [0_u8; 4096];
    let (length, _) = tokio::time::timeout(Duration::from_secs(2), socket.recv_from(&mut buffer)).await??;
    let answer = Message::from_vec(buffer.get(..length).unwrap_or_default())?;
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

/// An id that differs between names; the server is on loopback and the socket is our own.
fn rand_id(name: &str) -> u16 {
    name.bytes().fold(1, |id, byte| id.wrapping_mul(31).wrapping_add(u16::from(byte)))
}
