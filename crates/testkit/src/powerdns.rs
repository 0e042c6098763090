//! A real PowerDNS on free loopback ports, with its own database. A test can stop, kill, pause and empty it.
//!
//! Caches are off, so that a query returns the last write.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use crate::binaries::{Binary, find_binary};
use crate::process::{Process, Spec, free_port, scratch_dir};
use crate::skip;

/// The database of PowerDNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `gsqlite3`.
    Sqlite,
    /// `lmdb`.
    Lmdb,
}

/// How to start a PowerDNS.
#[derive(Clone, Debug)]
pub struct PowerDnsOptions {
    /// The key of the HTTP API.
    pub api_key: String,
    /// `default-api-rectify`: whether a zone without its own setting is rectified after each API write.
    pub rectify: bool,
    /// Further settings, as `("name", "value")`.
    pub settings: Vec<(String, String)>,
}

impl Default for PowerDnsOptions {
    fn default() -> Self {
        Self { api_key: "testkit".into(), rectify: true, settings: Vec::new() }
    }
}

/// A PowerDNS server. Dropping it stops it and removes its data.
#[derive(Debug)]
pub struct PowerDns {
    backend: Backend,
    options: PowerDnsOptions,
    program: PathBuf,
    dir: PathBuf,
    ports: Mutex<Ports>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    api: u16,
    dns: u16,
}

#[derive(Debug)]
struct State {
    process: Option<Process>,
    api_key: String,
}

/// How long a start may take before it counts as failed. Usually a fraction of a second.
const START_DEADLINE: Duration = Duration::from_mins(1);

impl PowerDns {
    /// The SQLite server that the tests of this binary share; isolate by zone name. `None` after reporting a skip.
    pub async fn shared_sqlite() -> Option<&'static Self> {
        static SHARED: OnceCell<Option<PowerDns>> = OnceCell::const_new();
        let start = || Self::start(Backend::Sqlite, PowerDnsOptions::default());
        SHARED.get_or_init(start).await.as_ref()
    }

    /// The LMDB server that the tests of this binary share; isolate by zone name. `None` after reporting a skip.
    pub async fn shared_lmdb() -> Option<&'static Self> {
        static SHARED: OnceCell<Option<PowerDns>> = OnceCell::const_new();
        let start = || Self::start(Backend::Lmdb, PowerDnsOptions::default());
        SHARED.get_or_init(start).await.as_ref()
    }

    /// A separate server. `None` after reporting a skip, when PowerDNS is not installed.
    pub async fn start(backend: Backend, options: PowerDnsOptions) -> Option<Self> {
        rustls::crypto::ring::default_provider().install_default().ok();
        let Some(program) = find_binary(Binary::PowerDns) else {
            skip("PowerDNS", "pdns_server is not installed; run dev/setup powerdns to get it");
            return None;
        };
        if backend == Backend::Sqlite && find_binary(Binary::Sqlite).is_none() {
            skip("PowerDNS on SQLite", "sqlite3 is not installed; run dev/setup powerdns to get it");
            return None;
        }
        let api_key = options.api_key.clone();
        let server = Self {
            backend,
            options,
            program,
            dir: scratch_dir("powerdns"),
            ports: Mutex::new(Ports { api: 0, dns: 0 }),
            state: Mutex::new(State { process: None, api_key }),
        };
        server.create_database();
        let mut problem = String::new();
        for _ in 0..3 {
            *server.ports.lock().unwrap_or_else(PoisonError::into_inner) = Ports { api: free_port(), dns: free_port() };
            match server.launch().await {
                Ok(()) => return Some(server),
                Err(error) => problem = error,
            }
        }
        panic!("{problem}");
    }

    /// `http://127.0.0.1:PORT`, the part before `/api/v1`.
    pub fn api_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports().api)
    }

    /// The key that the server accepts now.
    pub fn api_key(&self) -> String {
        self.state().api_key.clone()
    }

    /// The address for DNS queries.
    pub fn dns_addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports().dns))
    }

    /// Creates an empty native zone.
    pub async fn add_zone(&self, name: &str) {
        let url = format!("{}/api/v1/servers/localhost/zones", self.api_url());
        let zone = serde_json::json!({ "name": format!("{name}."), "kind": "Native", "nameservers": [] });
        let request = reqwest::Client::new().post(url).header("x-api-key", self.api_key());
        let answer = request.body(zone.to_string()).send().await.expect("PowerDNS answers");
        let status = answer.status();
        assert!(status.is_success(), "creating the zone {name} answered {status}");
    }

    /// The log file.
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Kills it, as a crash would. The data is kept.
    pub fn kill(&self) {
        if let Some(process) = self.state().process.take() {
            process.kill_for_reuse();
        }
    }

    /// Stops it in an orderly way. The data is kept.
    pub fn stop(&self) {
        let process = self.state().process.take();
        process.into_iter().for_each(Process::stop_for_reuse);
    }

    /// Restarts it on the same ports and data.
    pub async fn restart(&self) {
        self.stop();
        self.launch_again().await;
    }

    /// Suspends it: connections are accepted, nothing is answered.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Resumes it after a pause.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Deletes every zone, as an empty restored volume would, and restarts it.
    pub async fn wipe(&self) {
        self.stop();
        let data = self.dir.join("data");
        std::fs::remove_dir_all(&data).and_then(|()| std::fs::create_dir(&data)).expect("the data directory is ours");
        self.create_database();
        self.launch_again().await;
    }

    /// From now on only `key` is accepted. Restarts the server.
    pub async fn replace_api_key(&self, key: &str) {
        key.clone_into(&mut self.state().api_key);
        self.restart().await;
    }

    fn signal(&self, signal: &str) {
        self.state().process.as_ref().expect("PowerDNS runs").signal(signal);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ports(&self) -> Ports {
        *self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much it has logged so far, in bytes.
    fn logged(&self) -> usize {
        std::fs::read(self.log()).map_or(0, |log| log.len())
    }

    fn logged_since(&self, before: usize) -> String {
        let log = std::fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(log.get(before..).unwrap_or_default()).into_owned()
    }

    fn create_database(&self) {
        if self.backend == Backend::Sqlite {
            create_sqlite(&self.dir.join("data/pdns.sqlite3"));
        }
    }

    /// Starts on the same ports, which another process may use for a moment: retries until they are free.
    async fn launch_again(&self) {
        let began = Instant::now();
        while let Err(problem) = self.launch().await {
            assert!(began.elapsed() < START_DEADLINE, "{problem}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn launch(&self) -> Result<(), String> {
        let key = self.api_key();
        let before = self.logged();
        let mut process = Process::start(&Spec {
            name: "pdns_server",
            program: self.program.clone(),
            args: self.arguments(&key),
            dir: self.dir.clone(),
        });
        let url = format!("{}/api/v1/servers/localhost", self.api_url());
        let client = reqwest::Client::builder().timeout(Duration::from_secs(2)).build().map_err(|e| e.to_string())?;
        let started = Instant::now();
        let problem = loop {
            if let Some(ended) = process.ended() {
                break ended;
            }
            // It runs on without its API then.
            let logged = self.logged_since(before);
            if logged.contains("HTTP socket failed") {
                break logged;
            }
            let answered = client.get(&url).header("X-API-Key", &key).send().await;
            if answered.is_ok_and(|response| response.status().is_success()) {
                self.state().process = Some(process);
                return Ok(());
            }
            if started.elapsed() > START_DEADLINE {
                break format!("PowerDNS is not ready after {START_DEADLINE:?}; see {}", self.log().display());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        // The directory is kept for the next attempt.
        process.stop_for_reuse();
        Err(problem)
    }

    fn arguments(&self, key: &str) -> Vec<String> {
        let Ports { api, dns } = self.ports();
        let data = self.dir.join("data");
        let mut settings: Vec<(&str, String)> = vec![
            // A directory without pdns.conf: the machine's own settings must not apply.
            ("config-dir", data.display().to_string()),
            ("socket-dir", data.display().to_string()),
            ("daemon", "no".into()),
            ("guardian", "no".into()),
            ("write-pid", "no".into()),
            ("disable-syslog", "yes".into()),
            ("security-poll-suffix", String::new()),
            ("local-address", "127.0.0.1".into()),
            ("local-port", dns.to_string()),
            ("api", "yes".into()),
            ("api-key", key.to_owned()),
            ("webserver", "yes".into()),
            ("webserver-address", "127.0.0.1".into()),
            ("webserver-port", api.to_string()),
            ("webserver-allow-from", "127.0.0.0/8".into()),
            ("default-api-rectify", if self.options.rectify { "yes" } else { "no" }.into()),
            ("cache-ttl", "0".into()),
            ("query-cache-ttl", "0".into()),
            ("negquery-cache-ttl", "0".into()),
            ("zone-cache-refresh-interval", "0".into()),
        ];
        match self.backend {
            Backend::Sqlite => {
                settings.push(("launch", "gsqlite3".into()));
                settings.push(("gsqlite3-database", data.join("pdns.sqlite3").display().to_string()));
                // The data does not outlive the test, so it need not reach the disk.
                settings.push(("gsqlite3-pragma-synchronous", "0".into()));
                settings.push(("gsqlite3-dnssec", "yes".into()));
            }
            Backend::Lmdb => {
                settings.push(("launch", "lmdb".into()));
                settings.push(("lmdb-filename", data.join("pdns.lmdb").display().to_string()));
                settings.push(("lmdb-shards", "2".into()));
                settings.push(("lmdb-sync-mode", "nosync".into()));
                settings.push(("lmdb-map-size", "1024".into()));
            }
        }
        settings.extend(self.options.settings.iter().map(|(name, value)| (name.as_str(), value.clone())));
        settings.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
    }
}

impl Drop for PowerDns {
    fn drop(&mut self) {
        // A running server removes its directory at its end; a stopped one has kept it.
        drop(self.state().process.take());
        if !self.dir.join("keep").exists() {
            std::fs::remove_dir_all(&self.dir).ok();
        }
    }
}

/// The tables and indexes that the queries of the `gsqlite3` backend use. Without `records_by_zone`, a lookup would scan the whole zone.
const SQLITE_TABLES: &str = "
PRAGMA journal_mode = WAL;
CREATE TABLE domains (id INTEGER PRIMARY KEY, name VARCHAR(255) NOT NULL COLLATE NOCASE UNIQUE, master VARCHAR(128),
  last_check INTEGER, type VARCHAR(8) NOT NULL, notified_serial INTEGER, account VARCHAR(40), options VARCHAR(65535),
  catalog VARCHAR(255));
CREATE INDEX domains_by_catalog ON domains (catalog);
CREATE TABLE records (id INTEGER PRIMARY KEY, domain_id INTEGER REFERENCES domains (id) ON DELETE CASCADE,
  name VARCHAR(255), type VARCHAR(10), content VARCHAR(65535), ttl INTEGER, prio INTEGER, disabled BOOLEAN DEFAULT 0,
  ordername VARCHAR(255), auth BOOL DEFAULT 1);
CREATE INDEX records_by_name ON records (name, type);
CREATE INDEX records_by_zone ON records (domain_id, name, type);
CREATE INDEX records_by_order ON records (domain_id, ordername);
CREATE TABLE supermasters (ip VARCHAR(64) NOT NULL, nameserver VARCHAR(255) NOT NULL, account VARCHAR(40) NOT NULL,
  PRIMARY KEY (ip, nameserver));
CREATE TABLE comments (id INTEGER PRIMARY KEY, domain_id INTEGER REFERENCES domains (id) ON DELETE CASCADE,
  name VARCHAR(255) NOT NULL, type VARCHAR(10) NOT NULL, modified_at INT NOT NULL, account VARCHAR(40),
  comment VARCHAR(65535) NOT NULL);
CREATE INDEX comments_by_name ON comments (domain_id, name, type);
CREATE INDEX comments_by_time ON comments (domain_id, modified_at);
CREATE TABLE domainmetadata (id INTEGER PRIMARY KEY, domain_id INT REFERENCES domains (id) ON DELETE CASCADE,
  kind VARCHAR(32) COLLATE NOCASE, content TEXT);
CREATE INDEX domainmetadata_by_domain ON domainmetadata (domain_id);
CREATE TABLE cryptokeys (id INTEGER PRIMARY KEY, domain_id INT REFERENCES domains (id) ON DELETE CASCADE,
  flags INT NOT NULL, active BOOL, published BOOL DEFAULT 1, content TEXT);
CREATE INDEX cryptokeys_by_domain ON cryptokeys (domain_id);
CREATE TABLE tsigkeys (id INTEGER PRIMARY KEY, name VARCHAR(255) COLLATE NOCASE, algorithm VARCHAR(50) COLLATE NOCASE,
  secret VARCHAR(255), UNIQUE (name, algorithm));
";

fn create_sqlite(path: &Path) {
    let program = find_binary(Binary::Sqlite).expect("checked before the start");
    let output = Command::new(program).arg(path).arg(SQLITE_TABLES).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run sqlite3: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "sqlite3 could not create {}: {stderr}", path.display());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventually;
    use std::net::{TcpListener, UdpSocket};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_restart_waits_for_a_port_that_is_in_use() {
        let Some(server) = PowerDns::start(Backend::Sqlite, PowerDnsOptions::default()).await else { return };
        for api in [true, false] {
            server.stop();
            let Ports { api: api_port, dns } = server.ports();
            let in_use = (
                api.then(|| TcpListener::bind((Ipv4Addr::LOCALHOST, api_port)).unwrap()),
                (!api).then(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, dns)).unwrap()),
            );
            let before = server.logged();
            let freed = async {
                eventually("a start fails", START_DEADLINE, || async {
                    let logged = server.logged_since(before);
                    if logged.contains("already in use") { Ok(()) } else { Err(logged) }
                })
                .await;
                drop(in_use);
            };
            tokio::join!(server.restart(), freed);
            assert!(server.dir.join("data/pdns.sqlite3").exists(), "the data is still there");
        }
    }
}
