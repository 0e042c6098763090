//! Row 1: all namespaces are watched unless one is named. In a binary of its own, because such an operator sees, and
//! would write to, the Ingresses of every other test on a shared API server.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use common::{Bed, Both, Running, TARGET};
use signpost_testkit::on_both;

on_both! {
    async fn row_01_and_29_ingresses_of_all_namespaces_or_of_one_are_registered(cluster) {
        let one = Bed::new(cluster.clone()).await;
        let two = Bed::new(cluster.clone()).await;
        one.register("app", &["one.lan"]).await;
        two.register("app", &["two.lan"]).await;
        let piholes = Both::start().await;
        let narrow = one.start(piholes.instances());
        piholes.serve("one.lan", &[TARGET]).await;
        narrow.stop().await;
        piholes.serve("two.lan", &[]).await;
        let _everywhere = Running::start(cluster.client(), None, one.policy(), piholes.instances());
        piholes.serve("two.lan", &[TARGET]).await;
        piholes.serve("one.lan", &[TARGET]).await;
    }
}
