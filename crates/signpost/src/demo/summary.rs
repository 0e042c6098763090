//! The summary at the end of the demo: served names, refused objects, and commands to try.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use signpost_engine::demo::Answer;

use super::progress::Outcome;
use super::stage::Shown;
use super::{Ending, print_line};

const STOP: &str = "\nCtrl-C stops it and leaves nothing behind.";

/// Prints the results of the examples.
pub(super) fn print(outcome: &Outcome, took: Duration, ending: Ending) {
    print_line("");
    for (object, why) in &outcome.missing {
        print_line(&format!("  missing  {object}: {why}"));
    }
    let result = match ending {
        Ending::Converged => "everything converged",
        Ending::Short => "not everything converged",
    };
    print_line(&format!(
        "{result} in {:.2} s: {} names served, {} refused as expected, {} missing",
        took.as_secs_f64(),
        outcome.served.len(),
        outcome.refused.len(),
        outcome.missing.len()
    ));
}

/// Prints commands to try while the demo runs: generic ones, then those of the systems.
pub(super) fn invite(outcome: &Outcome, shows: &[Shown], plurals: &[String], names: &SocketAddr, kubeconfig: &Path) {
    let served: Vec<Answer> = outcome.served.values().cloned().collect();
    let addresses = || served.iter().filter(|answer| answer.qtype == "A" && !answer.question.starts_with('*'));
    let kubectl = format!("kubectl --kubeconfig {}", kubeconfig.display());
    let mut commands = Vec::new();
    // A web site rather than a printer: it is the name that a further command may change.
    if let Some(answer) = addresses().find(|answer| answer.question.starts_with("www.")).or_else(|| addresses().next())
    {
        commands.push(format!("dig @{} -p {} {} A", names.ip(), names.port(), answer.question));
    }
    if !plurals.is_empty() {
        commands.push(format!("{kubectl} get {} -A", plurals.join(",")));
    }
    commands.extend(shows.iter().flat_map(|(_, show)| show.commands(&kubectl, &served)));
    if !commands.is_empty() {
        print_line(&format!("\ntry\n  {}", commands.join("\n  ")));
    }
    print_line(STOP);
}
