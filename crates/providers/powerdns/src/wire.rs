//! The JSON of PowerDNS's API, to and from the plain types.
//!
//! Answers are hostile input: names and types are parsed, numbers bounded, and what has no meaning here is skipped.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};
use signpost_dns::{Fqdn, RecordType, ZoneName};

use crate::{
    error::ServerError,
    types::{Action, Change, Comment, CommentChange, NewZone, ServerInfo, ServerSet, ZoneInfo, ZoneSettings},
};

#[derive(Deserialize)]
struct Server {
    #[serde(default)]
    daemon_type: String,
    #[serde(default)]
    version: String,
}

pub(crate) fn server(body: &[u8]) -> Result<ServerInfo, ServerError> {
    let Server { daemon_type, version } = parse(body)?;
    Ok(ServerInfo { daemon_type, version })
}

#[derive(Deserialize)]
struct Zone<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    serial: u32,
    #[serde(default)]
    notified_serial: u32,
    #[serde(default)]
    edited_serial: u32,
    #[serde(default)]
    masters: Vec<String>,
    #[serde(default)]
    dnssec: bool,
    #[serde(default)]
    catalog: String,
    #[serde(default)]
    account: String,
    #[serde(default)]
    soa_edit_api: String,
    #[serde(default)]
    api_rectify: bool,
}

#[derive(Deserialize)]
struct Set<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(rename = "type", borrow)]
    rtype: Cow<'a, str>,
    #[serde(default)]
    ttl: u32,
    #[serde(default, borrow)]
    records: Vec<Record<'a>>,
    #[serde(default)]
    comments: Vec<WireComment>,
}

#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    content: Cow<'a, str>,
    #[serde(default)]
    disabled: bool,
}

#[derive(Deserialize)]
struct WireComment {
    #[serde(default)]
    content: String,
    #[serde(default)]
    account: String,
    modified_at: Option<u64>,
}

/// One record set. `None` when this crate cannot write its name or type, so that the set is not ours.
pub(crate) fn set(body: &[u8]) -> Result<Option<ServerSet>, ServerError> {
    let Set { name, rtype, ttl, records, comments } = parse(body)?;
    let (Ok(name), Ok(rtype)) = (Fqdn::parse(&name), rtype.parse::<RecordType>()) else { return Ok(None) };
    let served = records.iter().filter(|record| !record.disabled);
    // Of exactly the size that is needed: a zone may have hundreds of thousands of sets.
    let mut contents = Vec::with_capacity(served.clone().count());
    contents.extend(served.map(|record| Box::from(record.content.as_ref())));
    let disabled = contents.len() < records.len();
    let comment = |WireComment { content, account, modified_at }| Comment { content, account, modified_at };
    let comments = comments.into_iter().map(comment).collect();
    Ok(Some(ServerSet { name, rtype, ttl, contents, disabled, comments }))
}

/// A zone's settings and serial; record sets are skipped.
pub(crate) fn zone(body: &[u8]) -> Result<ZoneInfo, ServerError> {
    let zone: Zone<'_> = parse(body)?;
    let name = ZoneName::parse(&zone.name).map_err(|error| ServerError::Protocol { why: error.to_string() })?;
    Ok(ZoneInfo {
        id: zone.id.into_owned(),
        name,
        kind: zone.kind.into_owned(),
        serial: zone.serial,
        notified_serial: zone.notified_serial,
        edited_serial: zone.edited_serial,
        masters: zone.masters,
        dnssec: zone.dnssec,
        catalog: zone.catalog,
        account: zone.account,
        soa_edit_api: zone.soa_edit_api,
        api_rectify: zone.api_rectify,
    })
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default)]
    error: String,
    #[serde(default)]
    errors: Vec<String>,
}

/// The server's words: `error`, then the entries of `errors` (5.1 and later), or the raw body.
pub(crate) fn failure(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Failure>(body) {
        Ok(Failure { error, errors }) => {
            let more = errors.iter().filter(|more| **more != error);
            let parts: Vec<&str> = std::iter::once(error.as_str())
                .chain(more.map(String::as_str))
                .filter(|part| !part.is_empty())
                .collect();
            parts.join("; ")
        }
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    crate::error::words(&text)
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ServerError> {
    serde_json::from_slice(body).map_err(|error| ServerError::Protocol { why: error.to_string() })
}

/// The body of a POST that creates a zone.
pub(crate) fn new_zone(zone: &NewZone) -> serde_json::Value {
    let mut body = settings(&zone.settings);
    body["name"] = zone.name.to_string().into();
    body["kind"] = zone.kind.clone().into();
    // Absent rather than empty for zones that are transferred: some versions refuse the key itself.
    let secondary = matches!(zone.kind.as_str(), "Slave" | "Consumer");
    if !secondary || !zone.nameservers.is_empty() {
        body["nameservers"] = zone.nameservers.iter().map(ToString::to_string).collect::<Vec<_>>().into();
    }
    body
}

/// The body of a PUT: only what is to change.
pub(crate) fn settings(settings: &ZoneSettings) -> serde_json::Value {
    let ZoneSettings { kind, masters, catalog, account, soa_edit_api, api_rectify, dnssec } = settings;
    let mut body = serde_json::Map::new();
    let mut put = |key: &str, value: Option<serde_json::Value>| {
        if let Some(value) = value {
            body.insert(key.to_owned(), value);
        }
    };
    put("kind", kind.clone().map(Into::into));
    put("masters", masters.clone().map(Into::into));
    put("catalog", catalog.clone().map(Into::into));
    put("account", account.clone().map(Into::into));
    put("soa_edit_api", soa_edit_api.clone().map(Into::into));
    put("api_rectify", api_rectify.map(Into::into));
    put("dnssec", dnssec.map(Into::into));
    serde_json::Value::Object(body)
}

/// The body of a PATCH.
#[derive(Serialize)]
pub(crate) struct Patch<'a> {
    rrsets: &'a [Change],
}

impl<'a> Patch<'a> {
    pub(crate) fn of(changes: &'a [Change]) -> Self {
        Self { rrsets: changes }
    }
}

impl Change {
    /// The bytes this change takes in a PATCH.
    pub fn encoded_len(&self) -> usize {
        serde_json::to_vec(self).map_or(0, |bytes| bytes.len() + 1)
    }
}

impl Serialize for Change {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Out<'a> {
            content: &'a str,
            disabled: bool,
        }
        #[derive(Serialize)]
        struct OutComment<'a> {
            content: &'a str,
            account: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            modified_at: Option<u64>,
        }
        let Self { name, rtype, action } = self;
        let mut change = serializer.serialize_struct("Change", 6)?;
        change.serialize_field("name", &format_args!("{name}"))?;
        change.serialize_field("type", rtype.as_str())?;
        match action {
            Action::Delete => change.serialize_field("changetype", "DELETE")?,
            Action::Replace { content, comment } => {
                change.serialize_field("changetype", "REPLACE")?;
                change.serialize_field("ttl", &content.ttl)?;
                let records: Vec<Out<'_>> =
                    content.records.iter().map(|content| Out { content, disabled: false }).collect();
                change.serialize_field("records", &records)?;
                if let CommentChange::Are(comments) = comment {
                    let out = comments.iter().map(|Comment { content, account, modified_at }| OutComment {
                        content,
                        account,
                        modified_at: *modified_at,
                    });
                    change.serialize_field("comments", &out.collect::<Vec<_>>())?;
                }
            }
        }
        change.end()
    }
}
