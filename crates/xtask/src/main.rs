//! `cargo xtask generate` writes the checked-in files that are generated from code: CRDs, RBAC and the command-line reference.
//!
//! `cargo xtask check` (and this crate's test) fails when a checked-in file is stale.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::CommandFactory as _;
use signpost::systems::SYSTEMS;

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
        let path = root().join(&path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn check() -> anyhow::Result<()> {
    for (path, text) in files()? {
        let found = std::fs::read_to_string(root().join(&path)).unwrap_or_default();
        if found != text {
            bail!("{path} is stale: run `make generate`");
        }
    }
    Ok(())
}

fn files() -> anyhow::Result<Vec<(String, String)>> {
    let rbac = |name: &str, systems: &[_]| {
        signpost::manifest::to_stream(&signpost::rbac::manifests_named(name, "signpost", systems))
    };
    let mut files = vec![
        ("deploy/crds.yaml".to_owned(), format!("{NOTE}{}", signpost::crds::yaml(SYSTEMS)?)),
        ("deploy/rbac.yaml".to_owned(), format!("{NOTE}{}", rbac("signpost", SYSTEMS)?)),
        ("docs/command-line.md".to_owned(), reference()),
    ];
    for spec in SYSTEMS {
        for (variant, rules) in spec.variants {
            let mut only = *spec;
            only.rules = rules;
            // They have names of their own: applying one replaces no other role.
            let name = format!("{}-{variant}", spec.name);
            let manifests = rbac(&format!("signpost-{name}"), &[only])?;
            files.push((format!("deploy/rbac-{name}.yaml"), format!("{NOTE}{manifests}")));
        }
    }
    Ok(files)
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
