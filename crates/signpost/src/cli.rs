//! The command line: every flag, its environment variable and its help text.
//!
//! The flags of the systems come from their specs. Values are text here. [`crate::config`] turns them into types and reports every problem
//! at once. An empty value, as a template may leave it, counts as not given.

use std::path::PathBuf;

use clap::{Arg, Args, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use signpost_engine::settings::Form;
use signpost_engine::{Setting, Settings};

use crate::systems::SYSTEMS;

/// Makes names point at the right place, and can prove it.
#[derive(Debug, Parser)]
#[command(
    name = "signpost",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "New here? `signpost demo` runs everything without a cluster.\nDocumentation: README.md and docs/ in the source."
)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything embedded on this machine: a Kubernetes API, a name server, the systems that have a demo, and their examples
    Demo(DemoArgs),
    /// Run the operator against a cluster
    Run(Box<RunArgs>),
    /// Print the CustomResourceDefinitions, ready for `kubectl apply --server-side -f -`
    Crds(CrdsArgs),
    /// Print the ServiceAccount and the roles that the operator needs, ready for `kubectl apply -f -`
    Rbac(RbacArgs),
    /// Print the shell completion script
    Completions {
        /// The shell to complete for
        shell: Shell,
    },
}

/// Flags of `signpost crds`.
#[derive(Debug, Args)]
pub struct CrdsArgs {
    /// Only for these systems, separated by commas; all when empty
    #[arg(long, value_name = "LIST", env = "SIGNPOST_SYSTEMS", default_value = "")]
    pub systems: String,
}

/// Flags of `signpost rbac`.
#[derive(Debug, Args)]
pub struct RbacArgs {
    /// Only for these systems, separated by commas; all when empty
    #[arg(long, value_name = "LIST", env = "SIGNPOST_SYSTEMS", default_value = "")]
    pub systems: String,
    /// Namespace that the operator runs in
    #[arg(long, value_name = "NAMESPACE", default_value = "signpost")]
    pub namespace: String,
    /// Roles in these namespaces instead of a ClusterRole, separated by commas: those of WATCH_NAMESPACE or PIC_WATCH_NAMESPACES
    #[arg(long, value_name = "LIST", default_value = "")]
    pub watch_namespaces: String,
    /// With --watch-namespaces: Roles that read tunnels in these namespaces, separated by commas: PIC_TUNNEL_NAMESPACE, and those that tunnels are named with
    #[arg(long, value_name = "LIST", requires = "watch_namespaces")]
    pub tunnel_namespace: Option<String>,
    /// Secrets that a system may read, such as certificates for remote servers, separated by commas: NAME in the operator's namespace, or NAMESPACE/NAME
    #[arg(long, value_name = "LIST", default_value = "")]
    pub secrets: String,
    /// Only the permissions of one way of running a system, by the name that its documentation gives, such as crd or api
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
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
    /// Port of the name server on 127.0.0.1; a free port is used when it is in use
    #[arg(long, value_name = "PORT", env = "SIGNPOST_DEMO_DNS_PORT", default_value_t = 5300)]
    pub dns_port: u16,
    /// Port of the Kubernetes API on 127.0.0.1; a free port is used when it is in use
    #[arg(long, value_name = "PORT", env = "SIGNPOST_DEMO_API_PORT", default_value_t = 8001)]
    pub api_port: u16,
    /// Port of health and metrics on 127.0.0.1; a free port is used when it is in use
    #[arg(long, value_name = "PORT", env = "SIGNPOST_DEMO_HEALTH_PORT", default_value_t = 8081)]
    pub health_port: u16,
    /// File for the kubeconfig of the demo; it must not exist, and is removed at the end
    #[arg(long, value_name = "FILE", env = "SIGNPOST_DEMO_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Stop waiting for the examples after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub timeout: u64,
}

/// Flags of `signpost run`.
#[derive(Debug, Args, Default)]
pub struct RunArgs {
    /// Flags of the process itself.
    #[command(flatten)]
    pub process: ProcessArgs,
    /// Flags of the systems.
    #[command(flatten)]
    pub systems: SystemArgs,
}

/// How the process runs, independent of the systems.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Process")]
pub struct ProcessArgs {
    /// Kubeconfig to use; otherwise KUBECONFIG, ~/.kube/config or the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Systems to run, separated by commas; when empty, every system that has a server configured
    #[arg(long, value_name = "LIST", env = "SIGNPOST_SYSTEMS", default_value = "")]
    pub systems: String,
    /// Watch this namespace only; empty watches all
    #[arg(long, value_name = "NAMESPACE", env = "WATCH_NAMESPACE", default_value = "")]
    pub watch_namespace: String,
    /// debug, info, warn or error
    #[arg(long, value_name = "LEVEL", env = "LOG_LEVEL", default_value = "info")]
    pub log_level: String,
    /// json, text, or auto (text on a terminal)
    #[arg(long, value_name = "FORMAT", env = "LOG_FORMAT", default_value = "auto")]
    pub log_format: String,
    /// Address of /healthz, /readyz and /metrics, or several, separated by commas
    #[arg(long, value_name = "ADDRESS", env = "HEALTH_ADDRESS", default_value = "0.0.0.0:8081")]
    pub health_address: String,
    /// Let only one of several replicas write, with a Lease: true or false
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
    /// Deployment that events about a whole server are attached to; when empty, that of the pod, by its name, or else signpost
    #[arg(long, value_name = "NAME", env = "DEPLOYMENT_NAME", default_value = "")]
    pub deployment_name: String,
}

/// The settings of every system, as their specs list them: a flag and an environment variable each.
#[derive(Clone, Debug, Default)]
pub struct SystemArgs {
    values: Vec<(&'static str, String)>,
}

impl SystemArgs {
    /// The given values, for the systems to read.
    pub fn settings(&self) -> Settings {
        Settings::new(self.values.iter().cloned())
    }
}

/// The flag of a setting.
fn argument(setting: &'static Setting, heading: &str) -> Arg {
    let argument = Arg::new(setting.name)
        .long(setting.flag())
        .env(setting.name)
        .value_name(setting.value)
        .help(setting.help)
        .help_heading(heading.to_owned())
        .value_parser(clap::value_parser!(String))
        .hide_env_values(setting.form == Form::Secret);
    let argument = if setting.default.is_empty() { argument } else { argument.default_value(setting.default) };
    match setting.form {
        Form::Switch => argument.num_args(0..=1).default_missing_value("true"),
        Form::Text | Form::Secret => argument,
    }
}

impl Args for SystemArgs {
    fn augment_args(mut command: clap::Command) -> clap::Command {
        for spec in SYSTEMS {
            let flags: Vec<String> = spec
                .settings
                .iter()
                .filter(|setting| spec.servers.contains(&setting.name))
                .map(Setting::flag)
                .collect();
            let heading = match flags.as_slice() {
                [] => format!("{} (on when --systems names {})", spec.title, spec.name),
                flags => format!("{} (on when --{} is given)", spec.title, flags.join(" or --")),
            };
            command = command.args(spec.settings.iter().map(|setting| argument(setting, &heading)));
        }
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SystemArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        for setting in SYSTEMS.iter().flat_map(|spec| spec.settings) {
            if let Some(value) = matches.get_one::<String>(setting.name) {
                self.values.push((setting.name, value.clone()));
            }
        }
        Ok(())
    }
}
