//! One DNS question to one server: UDP, then TCP when the answer did not fit.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, Metadata, Query};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// `NOERROR`, `NXDOMAIN`, `SERVFAIL`, `REFUSED`, …
    pub rcode: String,
    /// The data of the answer section's records of the asked type, in presentation form, sorted.
    pub records: Vec<String>,
    /// The whole answer section as `name TTL type data`, in the server's order, with the CNAME chain.
    pub lines: Vec<String>,
    /// The authority section, in the same form.
    pub authority: Vec<String>,
    /// The TTL of the first record of the asked type.
    pub ttl: Option<u32>,
    /// Whether the answer is authoritative.
    pub authoritative: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum DigError {
    /// The question itself cannot be asked.
    #[error("not a question: {0}")]
    Question(String),
    /// There was no answer in time, or the connection failed.
    #[error("no answer from {server}: {why}")]
    Silent {
        /// The server.
        server: SocketAddr,
        /// The error.
        why: String,
    },
    /// The answer is not DNS.
    #[error("a broken answer: {0}")]
    Broken(String),
}

const TIMEOUT: Duration = Duration::from_secs(3);

/// Asks `server` for `name` and `rtype`; panics when there is no answer. See [`try_dig`].
pub async fn dig(server: SocketAddr, name: &str, rtype: &str) -> Answer {
    ask_with_retries(server, name, rtype, false).await
}

/// The same with DNSSEC: the answer includes signatures and proofs.
pub async fn dig_signed(server: SocketAddr, name: &str, rtype: &str) -> Answer {
    ask_with_retries(server, name, rtype, true).await
}

/// Retries when there is no answer: a datagram may be lost, and a loaded machine slow.
async fn ask_with_retries(server: SocketAddr, name: &str, rtype: &str, signed: bool) -> Answer {
    let mut tries = 1;
    loop {
        match ask(server, name, rtype, signed).await {
            Ok(answer) => return answer,
            Err(DigError::Silent { .. }) if tries < 5 => tries += 1,
            Err(error) => panic!("{name} {rtype}: {error}, {tries} times"),
        }
    }
}

/// Asks `server` for `name` and `rtype` (`A`, `TXT`, `TYPE65535`, …).
pub async fn try_dig(server: SocketAddr, name: &str, rtype: &str) -> Result<Answer, DigError> {
    ask(server, name, rtype, false).await
}

async fn ask(server: SocketAddr, name: &str, rtype: &str, signed: bool) -> Result<Answer, DigError> {
    let mut absolute = Name::from_ascii(name).map_err(|error| DigError::Question(error.to_string()))?;
    absolute.set_fqdn(true);
    let rtype = parse_type(rtype)?;
    let mut message = Message::query();
    message.metadata.recursion_desired = false;
    message.add_query(Query::query(absolute, rtype));
    if signed {
        let mut edns = Edns::new();
        edns.set_max_payload(4096).set_dnssec_ok(true);
        message.set_edns(edns);
    }
    let query = message.to_vec().map_err(|error| DigError::Question(error.to_string()))?;
    let answer = parse(&over_udp(server, &query).await?)?;
    let answer = if answer.metadata.truncation { parse(&over_tcp(server, &query).await?)? } else { answer };
    let Metadata { response_code, authoritative, .. } = answer.metadata;
    let asked = |record: &&Record| record.record_type() == rtype;
    let mut records: Vec<String> =
        answer.answers.iter().filter(asked).map(|record| presentation(&record.data)).collect();
    records.sort();
    Ok(Answer {
        rcode: rcode_name(u16::from(response_code)),
        records,
        ttl: answer.answers.iter().find(asked).map(|record| record.ttl),
        lines: answer.answers.iter().map(line).collect(),
        authority: answer.authorities.iter().map(line).collect(),
        authoritative,
    })
}

fn parse_type(text: &str) -> Result<RecordType, DigError> {
    let upper = text.to_ascii_uppercase();
    if let Some(number) = upper.strip_prefix("TYPE").and_then(|digits| digits.parse::<u16>().ok()) {
        return Ok(RecordType::from(number));
    }
    upper.parse().map_err(|_| DigError::Question(format!("unknown type {text}")))
}

async fn over_udp(server: SocketAddr, query: &[u8]) -> Result<Vec<u8>, DigError> {
    let silent = |why: String| DigError::Silent { server, why };
    let local: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let exchange = async {
        let socket = UdpSocket::bind(local).await?;
        socket.connect(server).await?;
        socket.send(query).await?;
        let mut buffer = vec![0; 65_535];
        loop {
            let length = socket.recv(&mut buffer).await?;
            // A message with another id is not the answer to this question.
            if buffer.get(..2) == query.get(..2) {
                buffer.truncate(length);
                return std::io::Result::Ok(buffer);
            }
        }
    };
    let answer = timeout(TIMEOUT, exchange).await.map_err(|_| silent(format!("silence for {TIMEOUT:?}")))?;
    answer.map_err(|error| silent(error.to_string()))
}

async fn over_tcp(server: SocketAddr, query: &[u8]) -> Result<Vec<u8>, DigError> {
    let silent = |why: String| DigError::Silent { server, why };
    let length = u16::try_from(query.len()).map_err(|_| DigError::Question("too long".into()))?;
    let exchange = async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(&[&length.to_be_bytes(), query].concat()).await?;
        let size = stream.read_u16().await?;
        let mut buffer = vec![0; usize::from(size)];
        stream.read_exact(&mut buffer).await?;
        std::io::Result::Ok(buffer)
    };
    let answer = timeout(TIMEOUT, exchange).await.map_err(|_| silent(format!("silence for {TIMEOUT:?}")))?;
    answer.map_err(|error| silent(error.to_string()))
}

fn parse(bytes: &[u8]) -> Result<Message, DigError> {
    Message::from_vec(bytes).map_err(|error| DigError::Broken(error.to_string()))
}

fn line(record: &Record) -> String {
    format!("{} {} {} {}", record.name, record.ttl, record.record_type(), presentation(&record.data))
}

/// As in a zone file: text strings quoted and escaped, everything else as the library prints it.
fn presentation(data: &RData) -> String {
    match data {
        RData::TXT(text) => {
            let quoted: Vec<String> = text.txt_data.iter().map(|chunk| quote(chunk)).collect();
            quoted.join(" ")
        }
        other => other.to_string(),
    }
}

fn quote(bytes: &[u8]) -> String {
    let mut quoted = String::from('"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted.extend(['\\', digit(byte / 100), digit(byte / 10 % 10), digit(byte % 10)]),
        }
    }
    quoted.push('"');
    quoted
}

fn digit(value: u8) -> char {
    char::from(b'0' + value)
}

fn rcode_name(code: u16) -> String {
    match code {
        0 => "NOERROR".into(),
        1 => "FORMERR".into(),
        2 => "SERVFAIL".into(),
        3 => "NXDOMAIN".into(),
        4 => "NOTIMP".into(),
        5 => "REFUSED".into(),
        9 => "NOTAUTH".into(),
        other => format!("RCODE{other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_and_escaped_as_in_a_zone_file() {
        assert_eq!(quote(b"a \"b\" \\ \xc3\xa9"), r#""a \"b\" \\ \195\169""#);
    }

    #[tokio::test]
    async fn a_silent_port_is_an_error_not_a_hang() {
        let silent = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let error = try_dig(silent.local_addr().unwrap(), "example.com", "A").await.unwrap_err();
        assert!(matches!(error, DigError::Silent { .. }), "{error}");
    }
}
