//! All configured resolvers: each is asked, with one limit for how many questions are open at once.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use signpost_dns::{Fqdn, Rdata, RecordType};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::Lookup;
use crate::answer::{Answer, LookupError, Rcode, Reply};
use crate::server::{PROBE, Server, ZoneOf};
use crate::system;
use crate::transport::Transport;
use crate::upstream::{PORT, Upstream};

/// Most name servers of a zone that are asked.
const MOST_AUTHORITATIVE: usize = 8;
/// Most name servers of zones whose state is remembered.
const MOST_REMEMBERED: usize = 1024;

/// Which resolvers to ask, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The resolvers; each is asked for every name.
    pub resolvers: Vec<Upstream>,
    /// Most questions at once, over all resolvers.
    pub concurrency: usize,
    /// How long a resolver may take for a name.
    pub deadline: Duration,
    /// The file with the servers of `system`.
    pub system: PathBuf,
    /// The port of the name servers of a zone.
    pub authoritative_port: u16,
    /// The file with the authorities of resolvers behind TLS and HTTPS, instead of those of the system.
    pub ca: Option<PathBuf>,
    /// Whether the servers ask others: then one that fails for every name is a resolver that does not work, and not a failure of the names.
    pub forwards: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            resolvers: vec![Upstream::System],
            concurrency: 10,
            deadline: Duration::from_secs(5),
            system: "/etc/resolv.conf".into(),
            authoritative_port: PORT,
            ca: None,
            forwards: true,
        }
    }
}

impl Options {
    /// The longest time that a lookup takes, once it has its turn.
    pub fn longest(&self) -> Duration {
        longest(self.deadline)
    }

    /// The most questions of one lookup at once: one at each resolver, and both addresses of every name server of a zone.
    pub fn questions_at_once(&self) -> usize {
        let questions = |upstream: &Upstream| match upstream {
            Upstream::System | Upstream::Server(_) | Upstream::Tls { .. } | Upstream::Https(_) => 1,
            Upstream::Authoritative => 2 * MOST_AUTHORITATIVE,
        };
        self.resolvers.iter().map(questions).sum()
    }
}

/// Every server of `system` is slow: each question is followed by two short ones, which tell whether the server works.
fn longest(deadline: Duration) -> Duration {
    let servers = u32::try_from(system::MOST).unwrap_or(u32::MAX);
    (deadline + PROBE * 2).saturating_mul(servers)
}

/// Whether a resolver answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The resolver as it is configured.
    pub resolver: Arc<str>,
    /// The last failure, while its servers do not answer.
    pub failure: Option<String>,
}

/// The configured resolvers.
#[derive(Debug)]
pub struct Resolvers {
    configured: Vec<(Arc<str>, Kind)>,
    /// Who is asked where the name servers of a zone are.
    guide: Vec<Arc<Server>>,
    /// The name servers of zones that were asked before.
    authoritative: Mutex<BTreeMap<SocketAddr, Arc<Server>>>,
    open: Semaphore,
    /// The turns of lookups at resolvers. Beside `authoritative` they are one less than the questions at once: a lookup there has a time limit, and must
    /// not spend its time behind lookups at a slow resolver.
    plain: Semaphore,
    /// The turns of lookups at the name servers of zones, which take several questions each.
    of_zones: Semaphore,
    deadline: Duration,
    authoritative_port: u16,
    forwards: bool,
}

/// The name servers of a zone, or the failure of whoever knows them.
enum NameServers {
    Servers(Vec<Arc<Server>>),
    Failed(Answer),
}

#[derive(Debug)]
enum Kind {
    /// The next one is asked when one does not answer.
    Servers(Vec<Arc<Server>>),
    Authoritative,
}

impl Resolvers {
    /// Reads the servers of `system` from its file; a file that cannot be read has none.
    pub fn new(options: &Options) -> Self {
        let server = |address: &SocketAddr| Arc::new(Server::new(*address, &address.to_string(), options.deadline));
        let ca = options.ca.as_deref();
        let over = |upstream: &Upstream, transport: Transport| {
            Kind::Servers(vec![Arc::new(Server::over(transport, &upstream.to_string(), options.deadline))])
        };
        let kind = |upstream: &Upstream| match upstream {
            Upstream::Server(address) => Kind::Servers(vec![server(address)]),
            Upstream::Tls { address, name } => over(upstream, Transport::tls(*address, name.as_deref(), ca)),
            Upstream::Https(url) => over(upstream, Transport::https(url, ca, options.deadline)),
            Upstream::System => {
                let text = std::fs::read_to_string(&options.system).unwrap_or_default();
                Kind::Servers(system::servers(&text).iter().map(server).collect())
            }
            Upstream::Authoritative => Kind::Authoritative,
        };
        let resolvers: Vec<(Arc<str>, Kind)> =
            options.resolvers.iter().map(|upstream| (upstream.to_string().into(), kind(upstream))).collect();
        let first = resolvers.iter().find_map(|(_, kind)| match kind {
            Kind::Servers(servers) => Some(servers.clone()),
            Kind::Authoritative => None,
        });
        let guide = first.unwrap_or_else(|| match kind(&Upstream::System) {
            Kind::Servers(servers) => servers,
            Kind::Authoritative => Vec::new(),
        });
        let concurrency = options.concurrency.max(1);
        let shared = options.resolvers.contains(&Upstream::Authoritative);
        Self {
            configured: resolvers,
            guide,
            authoritative: Mutex::default(),
            open: Semaphore::new(concurrency),
            plain: Semaphore::new(if shared { (concurrency - 1).max(1) } else { concurrency }),
            of_zones: Semaphore::new(concurrency),
            deadline: options.deadline,
            authoritative_port: options.authoritative_port,
            forwards: options.forwards,
        }
    }

    /// Whether the resolvers answer. The name servers of zones are not part of it.
    pub fn health(&self) -> Vec<Health> {
        let servers = |kind: &Kind| match kind {
            Kind::Servers(servers) => servers.clone(),
            Kind::Authoritative => self.guide.clone(),
        };
        let health = |(resolver, kind): &(Arc<str>, Kind)| {
            let failures: Vec<String> = servers(kind).iter().filter_map(|server| server.last_failure()).collect();
            let down = failures.len() == servers(kind).len();
            Health { resolver: resolver.clone(), failure: failures.into_iter().next().filter(|_| down) }
        };
        self.configured.iter().map(health).collect()
    }

    async fn replies(&self, resolver: &Arc<str>, kind: &Kind, name: &Fqdn, rtype: RecordType) -> Vec<Reply> {
        let results = match kind {
            Kind::Servers(servers) => {
                // The semaphore is never closed.
                let _turn = self.plain.acquire().await;
                vec![self.first_answer(resolver, servers, name, rtype).await]
            }
            Kind::Authoritative => {
                // Several questions, one after another: without a limit, a slow guide would take longer than a caller waits. The time begins with the
                // turn of the lookup. Otherwise many lookups at once would all be late, each because of the others. The semaphore is never closed.
                let _turn = self.of_zones.acquire().await;
                let limit = longest(self.deadline);
                let late = |_| {
                    let why = format!("the name servers of {name} did not answer within {limit:?}");
                    vec![Err(LookupError::NoServer { resolver: resolver.clone(), why })]
                };
                timeout(limit, self.of_zone(resolver, name, rtype)).await.unwrap_or_else(late)
            }
        };
        results.into_iter().map(|result| Reply { resolver: resolver.clone(), result }).collect()
    }

    /// What the name servers of the zone answer, or why they cannot be asked.
    async fn of_zone(&self, resolver: &Arc<str>, name: &Fqdn, rtype: RecordType) -> Vec<Result<Answer, LookupError>> {
        match self.name_servers(resolver, name).await {
            Ok(NameServers::Servers(servers)) => self.ask_authoritative(&servers, name, rtype).await,
            Ok(NameServers::Failed(answer)) => vec![Ok(answer)],
            Err(error) => vec![Err(error)],
        }
    }

    /// The answer of the first server that has one. What a server answers counts, also a failure; only silence does not.
    async fn first_answer(
        &self,
        resolver: &Arc<str>,
        servers: &[Arc<Server>],
        name: &Fqdn,
        rtype: RecordType,
    ) -> Result<Answer, LookupError> {
        let why = "the file has no nameserver line".to_owned();
        let mut last = LookupError::NoServer { resolver: resolver.clone(), why };
        // One turn for all of them: who waits for a slow server does not wait for a turn again. The semaphore is never closed.
        let _open = self.open.acquire().await;
        for server in servers {
            let asked = Instant::now();
            match server.ask(name, rtype, true).await {
                Err(error) if error.is_outage() => last = error,
                Err(LookupError::Timeout { .. }) if server.knows_domains() && self.is_down(server, asked).await => {
                    last = everything(server);
                }
                Err(error @ LookupError::Timeout { .. }) => last = error,
                Ok(answer) if failed(answer.rcode) && self.is_down(server, asked).await => last = everything(server),
                result => return result,
            }
        }
        Err(last)
    }

    /// Whether a server that failed for a name, when it was asked at that time, fails for nearly every name.
    async fn is_down(&self, server: &Server, asked: Instant) -> bool {
        self.forwards && !server.works(asked).await
    }

    /// Asks a name server of a zone, which does not ask others.
    async fn ask(&self, server: &Server, name: &Fqdn, rtype: RecordType) -> Result<Answer, LookupError> {
        // The semaphore is never closed.
        let _open = self.open.acquire().await;
        server.ask(name, rtype, false).await
    }

    /// The name servers of the zone that a name is in.
    async fn name_servers(&self, resolver: &Arc<str>, name: &Fqdn) -> Result<NameServers, LookupError> {
        let missing = |why: String| LookupError::NoServer { resolver: resolver.clone(), why };
        let mut zone = Err(missing("no resolver knows the zones".into()));
        for guide in &self.guide {
            let _open = self.open.acquire().await;
            let started = Instant::now();
            zone = match guide.zone_of(name).await {
                Ok(ZoneOf::Zone(zone)) => Ok(zone),
                Ok(ZoneOf::None) => Err(missing(format!("{name} is in no zone"))),
                Ok(ZoneOf::Failed(rcode)) if failed(rcode) && self.is_down(guide, started).await => {
                    Err(everything(guide))
                }
                // The servers of the zone do not work, or are wrong: that is the answer for its names.
                Ok(ZoneOf::Failed(rcode)) => {
                    let (server, took) = (guide.label().clone(), started.elapsed());
                    let (chain, values) = (Vec::new(), Vec::new());
                    return Ok(NameServers::Failed(Answer { rcode, chain, values, ttl: None, server, took }));
                }
                Err(error) => Err(error),
            };
            if zone.is_ok() {
                break;
            }
        }
        let zone = zone?;
        let servers = self.first_answer(resolver, &self.guide, &zone, RecordType::Ns).await?;
        if failed(servers.rcode) {
            return Ok(NameServers::Failed(servers));
        }
        let hosts = servers.values.iter().filter_map(Rdata::target).take(MOST_AUTHORITATIVE);
        let addresses = join_all(hosts.map(|host| async move {
            let ask = |rtype| Box::pin(self.first_answer(resolver, &self.guide, host, rtype));
            let (four, six) = futures::future::join(ask(RecordType::A), ask(RecordType::Aaaa)).await;
            let answered = [&four, &six].into_iter().all(|reply| reply.as_ref().is_ok_and(|it| !failed(it.rcode)));
            let values = [four, six].into_iter().flatten().flat_map(|answer| answer.values);
            let found = values.filter_map(|value| address(&value)).map(|ip| (ip, host.clone()));
            (found.collect::<Vec<_>>(), answered)
        }))
        .await;
        let answered = addresses.iter().all(|(_, answered)| *answered);
        let found = addresses.into_iter().flat_map(|(found, _)| found);
        let found: BTreeMap<IpAddr, Fqdn> = found.take(MOST_AUTHORITATIVE).collect();
        if found.is_empty() {
            // Every lookup was answered and no name server has an address: the zone does not work.
            let unknown = || missing(format!("the addresses of the name servers of {zone} are not known"));
            return Err(if answered { self.no_name_server() } else { unknown() });
        }
        let mut known = self.authoritative.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > MOST_REMEMBERED {
            known.clear();
        }
        let server = |(ip, host): (IpAddr, Fqdn)| {
            let address = SocketAddr::new(ip, self.authoritative_port);
            let new = || Arc::new(Server::new(address, &format!("{} ({ip})", host.undotted()), self.deadline));
            known.entry(address).or_insert_with(new).clone()
        };
        Ok(NameServers::Servers(found.into_iter().map(server).collect()))
    }

    /// Asks the name servers of the zone. When none of them can be reached, it is the zone that does not work, and no resolver.
    async fn ask_authoritative(
        &self,
        servers: &[Arc<Server>],
        name: &Fqdn,
        rtype: RecordType,
    ) -> Vec<Result<Answer, LookupError>> {
        let asked = join_all(servers.iter().map(|server| self.ask(server, name, rtype))).await;
        if asked.iter().all(|result| result.as_ref().is_err_and(LookupError::is_outage)) {
            return vec![Err(self.no_name_server())];
        }
        join_all(asked.into_iter().map(|result| self.followed(result, name, rtype))).await
    }

    /// The error of names in a zone without a name server that can be reached.
    fn no_name_server(&self) -> LookupError {
        LookupError::Timeout { server: "the name servers of the zone".into(), after: self.deadline }
    }

    /// An answer of a name server of the zone. Where it leads out of the zone, the guide continues.
    async fn followed(
        &self,
        result: Result<Answer, LookupError>,
        name: &Fqdn,
        rtype: RecordType,
    ) -> Result<Answer, LookupError> {
        let mut answer = result?;
        if answer.values.is_empty()
            && let Some(last) = answer.chain.last().cloned()
        {
            let rest = self.first_answer(&answer.server, &self.guide, &last, rtype).await?;
            if rest.chain.iter().any(|hop| hop == name || answer.chain.contains(hop)) {
                return Err(LookupError::CnameLoop { server: answer.server, last });
            }
            answer.rcode = rest.rcode;
            answer.ttl = [answer.ttl, rest.ttl].into_iter().flatten().min();
            answer.took += rest.took;
            answer.chain.extend(rest.chain);
            answer.values = rest.values;
        }
        Ok(answer)
    }
}

/// The error of a server that fails for nearly every name; in the same words from try to try.
fn everything(server: &Server) -> LookupError {
    LookupError::Unreachable { server: server.label().clone(), why: "it fails for every name".to_owned() }
}

/// Whether a server answers like this when it cannot find out.
fn failed(rcode: Rcode) -> bool {
    matches!(rcode, Rcode::ServFail | Rcode::Refused)
}

fn address(value: &Rdata) -> Option<IpAddr> {
    match value {
        Rdata::A(address) => Some((*address).into()),
        Rdata::Aaaa(address) => Some((*address).into()),
        _ => None,
    }
}

impl Lookup for Resolvers {
    fn lookup<'a>(&'a self, name: &'a Fqdn, rtype: RecordType) -> BoxFuture<'a, Vec<Reply>> {
        Box::pin(async move {
            let all = self.configured.iter().map(|(resolver, kind)| self.replies(resolver, kind, name, rtype));
            join_all(all).await.into_iter().flatten().collect()
        })
    }
}
