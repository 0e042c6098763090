//! What the demo says at its end: what is served, what was refused, what to try next.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::progress::Outcome;
use super::{Ending, say};

const STOP: &str = "\nCtrl-C stops it and leaves nothing behind.";

/// Prints what the examples came to.
pub(super) fn print(outcome: &Outcome, took: Duration, ending: Ending) {
    say("");
    for (object, why) in &outcome.missing {
        say(&format!("  missing  {object}: {why}"));
    }
    let verdict = match ending {
        Ending::Converged => "everything converged",
        Ending::Short => "not everything converged",
    };
    say(&format!(
        "{verdict} in {:.2} s: {} names served, {} refused as expected, {} missing",
        took.as_secs_f64(),
        outcome.served.len(),
        outcome.refused.len(),
        outcome.missing.len()
    ));
}

/// Prints what to try while the demo stays up.
pub(super) fn invite(outcome: &Outcome, names: &SocketAddr, kubeconfig: &Path) {
    let addresses = || outcome.served.keys().filter(|(name, rtype)| rtype == "A" && !name.starts_with('*'));
    // The name that the third command changes, when the examples have it.
    let Some((name, rtype)) = addresses().find(|(name, _)| name.starts_with("www.")).or_else(|| addresses().next())
    else {
        say(STOP);
        return;
    };
    say(&format!(
        "\ntry\n  dig @{} -p {} {name} {rtype}\n  kubectl --kubeconfig {k} get clusterzones,zones,rrsets,ingresses -A\n  kubectl --kubeconfig {k} -n demo patch rrset www --type merge -p '{{\"spec\":{{\"records\":[\"192.0.2.99\"]}}}}'   (then dig again)",
        names.ip(),
        names.port(),
        k = kubeconfig.display()
    ));
    say(STOP);
}
