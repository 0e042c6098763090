//! The command line: every flag, its environment variable and its help text.
//!
//! Values stay text here. They become types in [`crate::config`], which reports every problem at once instead of the first one, and takes an
//! empty value for one that was not given, as templates leave it.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

/// A path that may be empty, unlike what clap takes for one.
fn path() -> impl clap::builder::TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Makes names point at the right place, and can prove it.
#[derive(Debug, Parser)]
#[command(
    name = "signpost",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "New here? `signpost demo` shows everything at work without a cluster.\nDocumentation: README.md and docs/ in the source."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything embedded on this machine: a Kubernetes API, a name server, every system, and the examples
    Demo(DemoArgs),
    /// Run the operator against a cluster
    Run(Box<RunArgs>),
    /// Print the CustomResourceDefinitions, ready for `kubectl apply --server-side -f -`
    Crds,
    /// Print the shell completion script
    Completions {
        /// The shell to complete for
        shell: Shell,
    },
}

/// Flags of `signpost demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Check and exit: 0 when everything converged, 1 when it did not
    #[arg(long)]
    pub once: bool,
    /// Apply the YAML files of this folder instead of the built-in examples
    #[arg(long, value_name = "DIR")]
    pub examples: Option<PathBuf>,
    /// Port of the name server on 127.0.0.1; another is taken when it is in use
    #[arg(long, value_name = "PORT", env = "SIGNPOST_DEMO_DNS_PORT", default_value_t = 5300)]
    pub dns_port: u16,
    /// Port of the Kubernetes API on 127.0.0.1; another is taken when it is in use
    #[arg(long, value_name = "PORT", env = "SIGNPOST_DEMO_API_PORT", default_value_t = 8001)]
    pub api_port: u16,
    /// Port of health and metrics on 127.0.0.1; another is taken when it is in use
    #[arg(long, value_name = "PORT", env = "SIGNPOST_DEMO_HEALTH_PORT", default_value_t = 8081)]
    pub health_port: u16,
    /// Where the kubeconfig of the demo is written: a new file, removed again at the end
    #[arg(long, value_name = "FILE", env = "SIGNPOST_DEMO_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Give up waiting for the examples after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
}

/// Flags of `signpost run`.
#[derive(Debug, Args, Default)]
pub struct RunArgs {
    /// Flags of the process itself.
    #[command(flatten)]
    pub process: ProcessArgs,
    /// Flags of the powerdns system.
    #[command(flatten)]
    pub powerdns: PowerDnsArgs,
    /// Flags of the pihole system.
    #[command(flatten)]
    pub pihole: PiholeArgs,
}

/// How the process runs, whatever systems are on.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Process")]
pub struct ProcessArgs {
    /// Kubeconfig to use; otherwise KUBECONFIG, ~/.kube/config or the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Watch this namespace only; empty watches all
    #[arg(long, value_name = "NAMESPACE", env = "WATCH_NAMESPACE", default_value = "")]
    pub watch_namespace: String,
    /// debug, info, warn or error
    #[arg(long, value_name = "LEVEL", env = "LOG_LEVEL", default_value = "info")]
    pub log_level: String,
    /// json, text, or auto (text on a terminal)
    #[arg(long, value_name = "FORMAT", env = "LOG_FORMAT", default_value = "auto")]
    pub log_format: String,
    /// Address of /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS", env = "HEALTH_ADDRESS", default_value = "0.0.0.0:8081")]
    pub health_address: String,
    /// Let only one of several replicas write, by a Lease: true or false
    #[arg(long, value_name = "BOOL", env = "LEADER_ELECT", default_value = "true", num_args = 0..=1, default_missing_value = "true")]
    pub leader_elect: String,
    /// Namespace of the Lease and of the ledger; when empty, that of the pod's service account, or else default
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE", default_value = "")]
    pub own_namespace: String,
    /// Name of the Lease; when empty, signpost, followed by the watched namespace where there is one
    #[arg(long, value_name = "NAME", env = "LEASE_NAME", default_value = "")]
    pub lease_name: String,
    /// Name of this replica in the Lease; the host name when empty
    #[arg(long, value_name = "NAME", env = "POD_NAME", default_value = "")]
    pub identity: String,
}

/// The powerdns system: on when the URL is given.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "PowerDNS (on when --pdns-api-url is given)")]
pub struct PowerDnsArgs {
    /// Base URL of the PowerDNS API, such as http://pdns.dns.svc:8081; a path prefix is kept
    #[arg(long, value_name = "URL", env = "PDNS_API_URL")]
    pub pdns_api_url: Option<String>,
    /// API key; prefer the environment or a file, since flags are visible to others
    #[arg(long, value_name = "KEY", env = "PDNS_API_KEY", hide_env_values = true)]
    pub pdns_api_key: Option<String>,
    /// File with the API key, read again when it changes
    #[arg(long, value_name = "FILE", env = "PDNS_API_KEY_FILE", value_parser = path())]
    pub pdns_api_key_file: Option<PathBuf>,
    /// Server id in the API's paths
    #[arg(long, value_name = "ID", env = "PDNS_API_VHOST", default_value = "localhost")]
    pub pdns_api_vhost: String,
    /// Seconds that any one call may take
    #[arg(long, value_name = "SECONDS", env = "PDNS_API_TIMEOUT", default_value = "10")]
    pub pdns_api_timeout: String,
    /// Accept any TLS certificate: true or false
    #[arg(long, value_name = "BOOL", env = "PDNS_API_INSECURE", default_value = "false", num_args = 0..=1, default_missing_value = "true")]
    pub pdns_api_insecure: String,
    /// PEM file of the certificate authority to trust
    #[arg(long, value_name = "FILE", env = "PDNS_API_CA_PATH", value_parser = path())]
    pub pdns_api_ca_path: Option<PathBuf>,
    /// Seconds between two looks at each zone's serial, to find changes made by others
    #[arg(long, value_name = "SECONDS", env = "PDNS_RESYNC", default_value = "60")]
    pub pdns_resync: String,
}

/// The pihole system: on when a URL or an instances file is given.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Pi-hole (on when --pihole-url or --pihole-instances-file is given)")]
pub struct PiholeArgs {
    /// Base URL of the Pi-hole, such as http://192.168.1.2
    #[arg(long, value_name = "URL", env = "PIHOLE_URL")]
    pub pihole_url: Option<String>,
    /// Application password (v6) or API token; prefer the environment or a file
    #[arg(long, value_name = "TOKEN", env = "PIHOLE_API_TOKEN", hide_env_values = true)]
    pub pihole_api_token: Option<String>,
    /// File with the token, read again when it changes
    #[arg(long, value_name = "FILE", env = "PIHOLE_API_TOKEN_FILE", value_parser = path())]
    pub pihole_api_token_file: Option<PathBuf>,
    /// IPv4 address that names point at unless an Ingress says otherwise
    #[arg(long, value_name = "IP", env = "DEFAULT_TARGET_IP")]
    pub default_target_ip: Option<String>,
    /// auto, spec or v6
    #[arg(long, value_name = "DIALECT", env = "PIHOLE_API_DIALECT", default_value = "auto")]
    pub pihole_api_dialect: String,
    /// YAML file with several Pi-holes: name, url, token or tokenFile, dialect, caFile, serverName
    #[arg(long, value_name = "FILE", env = "PIHOLE_INSTANCES_FILE", value_parser = path())]
    pub pihole_instances_file: Option<PathBuf>,
    /// PEM file of the certificate authority of the Pi-hole
    #[arg(long, value_name = "FILE", env = "PIHOLE_CA_FILE", value_parser = path())]
    pub pihole_ca_file: Option<PathBuf>,
    /// Name that the Pi-hole's certificate is made out to, such as pi.hole
    #[arg(long, value_name = "NAME", env = "PIHOLE_SERVER_NAME")]
    pub pihole_server_name: Option<String>,
    /// Marks the lines of this cluster; must differ between clusters that share a Pi-hole
    #[arg(long, value_name = "ID", env = "OWNER_ID", default_value = "default")]
    pub owner_id: String,
    /// What to do with a user's own record for a wanted host: skip or overwrite
    #[arg(long, value_name = "POLICY", env = "CONFLICT_POLICY", default_value = "skip")]
    pub conflict_policy: String,
    /// Hold deleted Ingresses until their records are gone: true or false
    #[arg(long, value_name = "BOOL", env = "USE_FINALIZER", default_value = "false", num_args = 0..=1, default_missing_value = "true")]
    pub use_finalizer: String,
    /// Remove own lines that no Ingress claims after a start: on or off
    #[arg(long, value_name = "on|off", env = "GC", default_value = "on")]
    pub gc: String,
    /// Time between two looks at each Pi-hole, to repair what others changed: 300, 90s, 5m, 1h; 0 is never
    #[arg(long, value_name = "TIME", env = "PIHOLE_RESYNC", default_value = "5m")]
    pub pihole_resync: String,
}
