//! Reads the names of a portal in another cluster: Connect with JSON, one POST per call, as every server of `sreportal.v1` answers it.
//!
//! ```text
//!  ListPortals ─► the portal: by name, or the main one ─► ListFQDNs, page by page ─► RemoteNames
//! ```
//!
//! Answers are hostile: their size, the number of pages and names, and the length of every text are bounded. Names that the other portal has from
//! a third one are left out, so two portals that show each other do not collect each other's copies.

mod memory;
mod wire;

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use signpost_provider_http::{
    Certificates, HttpClient, HttpError, HttpOptions, Method, Request, SetupError, StatusCode, printable,
};
use thiserror::Error;
use url::Url;

pub use memory::MemoryPortals;
use wire::{Fqdn, ListFqdns, ListPortals, NoFilter, Problem};

/// Names of one page, and most names and pages of one portal.
const PAGE: i32 = 1_000;
const MOST_NAMES: usize = 50_000;
const MOST_PAGES: usize = 1_000;
/// How often a call is tried, and the pause after the first failure; it doubles.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);
/// Longest text of a name, a value or a title, longest description, and most groups of a name.
const LONGEST: usize = 512;
const LONGEST_DESCRIPTION: usize = 1_024;
const MOST_GROUPS: usize = 8;
/// Octets in memory of all names that are kept; names beyond that count as omitted.
const MOST_OCTETS: usize = 24 << 20;

/// How a portal is reached.
#[derive(Clone, Debug)]
pub struct PortalOptions {
    /// Its URL; a path prefix is kept.
    pub url: Url,
    /// The authority to trust and the client certificate.
    pub certificates: Certificates,
    /// Accept any certificate.
    pub insecure: bool,
}

/// Why a portal has no names for us.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RemoteError {
    /// The certificates cannot be used.
    #[error("{0}")]
    Setup(#[from] SetupError),
    /// There is no connection.
    #[error("{0}")]
    Connection(#[from] HttpError),
    /// It answered with an error, or with something else than names.
    #[error("{0}")]
    Answer(String),
}

/// A name as the other portal shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteName {
    /// The name, not checked.
    pub name: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// Its purpose.
    pub description: Option<String>,
    /// Its type.
    pub record_type: Option<String>,
    /// Its values.
    pub targets: Vec<String>,
    /// When the other portal last saw it.
    pub last_seen: Option<Timestamp>,
    /// The verdict of the other portal.
    pub sync_status: Option<String>,
    /// The object that it comes from: kind, namespace, name.
    pub origin: Option<[String; 3]>,
}

impl RemoteName {
    /// Its size in memory.
    fn octets(&self) -> usize {
        let Self { name, groups, description, record_type, targets, last_seen: _, sync_status, origin } = self;
        let texts = [description, record_type, sync_status].into_iter().flatten();
        let lists = groups.iter().chain(targets);
        let listed = (groups.len() + targets.len()) * size_of::<String>();
        let texts = lists.chain(texts).chain(origin.iter().flatten()).map(String::len).sum::<usize>();
        size_of::<Self>() + listed + name.len() + texts
    }
}

/// The parts that a portal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is a field of the message
pub struct Features {
    /// Names.
    pub dns: bool,
    /// Releases.
    pub releases: bool,
    /// Network policies.
    pub network_policy: bool,
    /// Alerts.
    pub alerts: bool,
    /// Components.
    pub status_page: bool,
    /// Images.
    pub image_inventory: bool,
}

impl From<wire::Features> for Features {
    fn from(features: wire::Features) -> Self {
        let wire::Features { dns, releases, network_policy, alerts, status_page, image_inventory } = features;
        Self { dns, releases, network_policy, alerts, status_page, image_inventory }
    }
}

/// The names of a portal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteNames {
    /// The name of the portal there.
    pub portal: String,
    /// Its title.
    pub title: String,
    /// The parts that it shows; `None` for a server that does not know parts, and shows all that it has.
    pub features: Option<Features>,
    /// The names, in the order of the answer.
    pub names: Vec<RemoteName>,
    /// How many more it has than are read.
    pub omitted: usize,
}

/// Reads portals of other clusters.
pub trait Portals: fmt::Debug + Send + Sync {
    /// The names of the portal of this name, or else of the main one.
    fn names<'a>(
        &'a self,
        at: PortalOptions,
        portal: Option<&'a str>,
    ) -> BoxFuture<'a, Result<RemoteNames, RemoteError>>;
}

/// Reads them over Connect.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connect;

impl Portals for Connect {
    fn names<'a>(
        &'a self,
        at: PortalOptions,
        portal: Option<&'a str>,
    ) -> BoxFuture<'a, Result<RemoteNames, RemoteError>> {
        Box::pin(async move { RemotePortal::new(at)?.names(portal).await })
    }
}

/// A portal in another cluster.
#[derive(Debug)]
pub struct RemotePortal {
    http: HttpClient,
}

impl RemotePortal {
    /// A client; no call is made yet.
    pub fn new(options: PortalOptions) -> Result<Self, RemoteError> {
        let PortalOptions { mut url, certificates, insecure } = options;
        if !url.path().ends_with('/') {
            url.set_path(&format!("{}/", url.path()));
        }
        let http = HttpOptions { certificates, insecure, ..HttpOptions::new(url) };
        Ok(Self { http: HttpClient::new(http)? })
    }

    /// The names of the portal of this name, or else of the main one.
    pub async fn names(&self, wanted: Option<&str>) -> Result<RemoteNames, RemoteError> {
        let portals: wire::Portals = self.call(ListPortals::METHOD, &NoFilter {}).await?;
        let mut own = portals.portals.items.into_iter().filter(|portal| !portal.is_remote);
        let found = match wanted {
            Some(name) => own.find(|portal| portal.name == name),
            None => own.find(|portal| portal.main),
        };
        let portal = found.ok_or_else(|| {
            let what = wanted.map_or_else(|| "no main portal".to_owned(), |name| format!("no portal {name}"));
            RemoteError::Answer(format!("the other cluster has {what}; correct spec.remote.portal"))
        })?;
        let (title, features) = (cut(&portal.title, LONGEST), portal.features.map(Features::from));
        let mut names = RemoteNames { portal: portal.name, title, features, ..RemoteNames::default() };
        if features.is_none_or(|features| features.dns) {
            self.read(&mut names).await?;
        }
        Ok(names)
    }

    async fn read(&self, into: &mut RemoteNames) -> Result<(), RemoteError> {
        let (mut token, mut octets) = (String::new(), 0);
        for _ in 0..MOST_PAGES {
            let asked = ListFqdns { portal: into.portal.clone(), page_size: PAGE, page_token: token.clone() };
            let page: wire::Page = self.call(ListFqdns::METHOD, &asked).await?;
            into.omitted += page.fqdns.more;
            for fqdn in page.fqdns.items.into_iter().filter(|fqdn| fqdn.source != "remote") {
                let name = name(fqdn);
                octets += name.octets();
                if into.names.len() < MOST_NAMES && octets <= MOST_OCTETS {
                    into.names.push(name);
                } else {
                    into.omitted += 1;
                }
            }
            if page.next_page_token.is_empty() {
                return Ok(());
            }
            if page.next_page_token == token {
                return Err(RemoteError::Answer("the page after a page is the same page".to_owned()));
            }
            token = page.next_page_token;
        }
        Err(RemoteError::Answer(format!("the names do not end after {MOST_PAGES} pages")))
    }

    /// One call, repeated when the server cannot be reached or is overloaded.
    async fn call<Q: Serialize, A: DeserializeOwned>(&self, method: &str, asked: &Q) -> Result<A, RemoteError> {
        let mut pause = PAUSE;
        for _ in 1..TRIES {
            match self.call_once(method, asked).await {
                Err(Failed { error: _, again: true }) => tokio::time::sleep(pause).await,
                done => return done.map_err(|failed| failed.error),
            }
            pause *= 2;
        }
        self.call_once(method, asked).await.map_err(|failed| failed.error)
    }

    async fn call_once<Q: Serialize, A: DeserializeOwned>(&self, method: &str, asked: &Q) -> Result<A, Failed> {
        let wrong = |why: String| Failed { error: RemoteError::Answer(why), again: false };
        let url = self.http.base().join(method).map_err(|error| wrong(error.to_string()))?;
        let body = serde_json::to_vec(asked).map_err(|error| wrong(error.to_string()))?;
        let request = Request::new(Method::POST, url).json(body).secret_header("connect-protocol-version", "1")?;
        let mut answer = self.http.send(request).await?;
        let status = answer.status();
        let body = answer.body().await?;
        if status == StatusCode::OK {
            return serde_json::from_slice(&body).map_err(|_| wrong(format!("the answer to {method} cannot be read")));
        }
        let problem: Problem = serde_json::from_slice(&body).unwrap_or_default();
        let code = if problem.code.is_empty() { status.as_str().to_owned() } else { cut(&problem.code, 64) };
        let why = format!("{method} was answered with {code}: {}", cut(&problem.message, LONGEST));
        let again = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        Err(Failed { error: RemoteError::Answer(why.trim_end_matches([':', ' ']).to_owned()), again })
    }
}

/// A call that failed, and whether it may succeed if it is repeated.
struct Failed {
    error: RemoteError,
    again: bool,
}

impl From<HttpError> for Failed {
    fn from(error: HttpError) -> Self {
        let again = matches!(error, HttpError::Unreachable { .. } | HttpError::Timeout);
        Self { error: RemoteError::Connection(error), again }
    }
}

/// A text without control characters, of at most so many characters.
fn cut(text: &str, most: usize) -> String {
    printable(text, most)
}

fn given(text: &str, most: usize) -> Option<String> {
    (!text.is_empty()).then(|| cut(text, most))
}

fn name(fqdn: Fqdn) -> RemoteName {
    let mut groups: Vec<String> = Vec::new();
    for group in fqdn.groups.items.iter().map(|group| cut(group, LONGEST)) {
        if groups.len() < MOST_GROUPS && !groups.contains(&group) {
            groups.push(group);
        }
    }
    let origin = fqdn.origin_ref.map(|origin| [origin.kind, origin.namespace, origin.name]);
    RemoteName {
        name: cut(&fqdn.name, LONGEST),
        groups,
        description: given(&fqdn.description, LONGEST_DESCRIPTION),
        record_type: given(&fqdn.record_type, 16),
        targets: fqdn.targets.items.iter().map(|text| cut(text, LONGEST)).collect(),
        last_seen: fqdn.last_seen.and_then(|text| text.parse().ok()),
        sync_status: given(&fqdn.sync_status, 64),
        origin: origin.map(|parts| parts.map(|part| cut(&part, LONGEST))),
    }
}
