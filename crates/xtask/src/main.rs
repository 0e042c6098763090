//! `cargo xtask generate` writes the checked-in files that are generated from code: CRDs, RBAC and the command-line reference.
//!
//! `cargo xtask check` (and this crate's test) fails when a checked-in file is stale.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::CommandFactory as _;

const NOTE: &str = "# Written by `make generate`; edit the code it comes from instead.\n";

fn main() -> anyhow::Result<()> {
    let task = std::env::args().nth(1).unwrap_or_default();
    match task.as_str() {
        "generate" => generate(),
        "check" => check(),
        other => bail!("{other:?} is not a task: use `generate` or `check`"),
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn generate() -> anyhow::Result<()> {
    for (path, text) in files()? {
        let path = root().join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn check() -> anyhow::Result<()> {
    for (path, text) in files()? {
        let found = std::fs::read_to_string(root().join(path)).unwrap_or_default();
        if found != text {
            bail!("{path} is stale: run `make generate`");
        }
    }
    Ok(())
}

fn files() -> anyhow::Result<Vec<(&'static str, String)>> {
    let rbac = signpost::manifest::to_stream(&signpost::rbac::manifests("signpost", signpost::systems::SYSTEMS))?;
    // The two modes of one system need different permissions. They have names of their own: applying one replaces no other role.
    let only = |name: &str, rules: &'static [signpost_engine::Rule]| {
        let spec = signpost_engine::SystemSpec { rules, ..signpost_system_pangolin::SPEC };
        signpost::manifest::to_stream(&signpost::rbac::manifests_named(name, "signpost", &[spec]))
    };
    let crd = only("signpost-pangolin-crd", signpost_system_pangolin::CRD_RULES)?;
    let api = only("signpost-pangolin-api", signpost_system_pangolin::API_RULES)?;
    Ok(vec![
        ("deploy/rbac-pangolin-crd.yaml", format!("{NOTE}{crd}")),
        ("deploy/rbac-pangolin-api.yaml", format!("{NOTE}{api}")),
        ("deploy/crds.yaml", format!("{NOTE}{}", signpost::crds::yaml(signpost::systems::SYSTEMS)?)),
        ("deploy/rbac.yaml", format!("{NOTE}{rbac}")),
        ("docs/command-line.md", reference()),
    ])
}

fn reference() -> String {
    let mut text =
        String::from("<!-- Written by `make generate`; edit crates/signpost/src/cli.rs instead. -->\n# Command line\n");
    // The values of this machine's environment are not part of the reference.
    let plain = |command: clap::Command| command.mut_args(|argument| argument.hide_env_values(true)).term_width(100);
    let mut command = plain(signpost::cli::Cli::command()).mut_subcommands(plain);
    command.build();
    let mut section = |name: &str, help: String| {
        let help = help.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        let _ = write!(text, "\n## {name}\n\n```text\n{help}\n```\n");
    };
    section("signpost", command.render_long_help().to_string());
    for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
        section(&format!("signpost {}", sub.get_name()), sub.render_long_help().to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checked_in_files_are_current() {
        super::check().unwrap();
    }
}
