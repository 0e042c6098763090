//! The summary at the end of the demo: served names, refused objects, and commands to try.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::progress::Outcome;
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

/// Prints commands to try while the demo runs.
pub(super) fn invite(outcome: &Outcome, names: &SocketAddr, kubeconfig: &Path) {
    let addresses = || outcome.served.keys().filter(|(name, rtype)| rtype == "A" && !name.starts_with('*'));
    // The name that the third command changes, when the examples have it.
    let Some((name, rtype)) = addresses().find(|(name, _)| name.starts_with("www.")).or_else(|| addresses().next())
    else {
        print_line(STOP);
        return;
    };
    print_line(&format!(
        "\ntry\n  dig @{} -p {} {name} {rtype}\n  kubectl --kubeconfig {k} get clusterzones,zones,rrsets,ingresses -A\n  kubectl --kubeconfig {k} -n demo patch rrset www --type merge -p '{{\"spec\":{{\"records\":[\"192.0.2.99\"]}}}}'   # then dig again",
        names.ip(),
        names.port(),
        k = kubeconfig.display()
    ));
    print_line(STOP);
}
