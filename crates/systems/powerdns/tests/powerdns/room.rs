//! The list of DNSEndpoint records on the zone object: a long one has marks instead of names. It has a limit: what does not fit is refused by
//! name, and nothing that is published is lost.

use serde_json::{Value, json};
use signpost_testkit::{eventually, on_both};

use crate::{
    endpoints::rig_with,
    rig::{PATIENCE, Rig},
};

/// Endpoints of one object.
const EACH: usize = 20;
/// Objects whose names fit: 320 lines of 213 bytes, of 70,000.
const FIT: usize = 16;

/// How many marks there are in a list.
pub fn marks_in(lines: &[String]) -> usize {
    lines.iter().filter(|line| !line.contains(' ')).map(|line| line.len() / 16).sum()
}

impl Rig {
    /// A name of 191 bytes, so that few of them fill the list.
    fn long(object: usize, number: usize) -> String {
        let (a, b) = ("a".repeat(63), "b".repeat(63));
        format!("{:c<63}.{b}.{a}", format!("n{object:02}-{number:03}-"))
    }

    async fn publish_many(&self, object: usize) {
        let endpoint = |number| self.endpoint(&Self::long(object, number), "A", &["192.0.2.1"]);
        self.publish(&format!("many{object:02}"), Value::Array((0..EACH).map(endpoint).collect())).await;
    }

    async fn on_server(&self) -> usize {
        let contents = self.contents().await.unwrap();
        contents.sets.iter().filter(|set| set.rtype.as_str() == "A" && set.name.to_string().starts_with('n')).count()
    }

    /// How many marks of endpoints the zone object has.
    async fn marked(&self) -> usize {
        let status = self.get("Zone", &self.zone).await["status"].clone();
        let lines: Vec<String> = serde_json::from_value(status["endpoints"].clone()).unwrap_or_default();
        marks_in(&lines)
    }

    pub async fn until_marked(&self, count: usize) {
        eventually(&format!("the zone object has {count} marks"), PATIENCE, || async {
            let seen = (self.marked().await, self.listed().await);
            if seen == (count, vec![]) { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}

on_both! {
    async fn a_list_that_becomes_too_long_for_names_has_marks_and_loses_nothing(cluster) {
        let Some(mut rig) = rig_with(cluster, |_| {}).await else { return };
        // A tenth of the limit that is shipped; `scale_endpoints.rs` has fifty thousand names with that one.
        rig.stop().await;
        rig.set_pace(|pace| pace.packs_above = 70_000);
        rig.start();
        for object in 0..FIT {
            rig.publish_many(object).await;
        }
        for object in 0..FIT {
            rig.until_observed(&format!("many{object:02}")).await;
        }
        assert_eq!((rig.on_server().await, rig.listed().await.len()), (FIT * EACH, FIT * EACH));

        // A process that finds a list of names, as former releases wrote it, goes on with marks.
        rig.restart().await;
        rig.publish_many(FIT).await;
        rig.until_observed("many16").await;
        rig.until_marked((FIT + 1) * EACH).await;
        assert_eq!(rig.on_server().await, (FIT + 1) * EACH);
        rig.served("www", "www", "A", &["192.0.2.7"]).await;
        let changed = (0..EACH).map(|number| rig.endpoint(&Rig::long(0, number), "A", &["192.0.2.2"])).collect::<Vec<_>>();
        rig.publish("many00", json!(changed)).await;
        rig.until_observed("many00").await;
        rig.until_served(&Rig::long(0, 7), "A", &["192.0.2.2"]).await;
        rig.until_marked((FIT + 1) * EACH).await;

        // A new process finds everything as it was, and writes nothing.
        rig.at_rest().await;
        rig.stop().await;
        let writes = rig.proxy.writes();
        rig.start();
        assert_eq!(rig.after_a_read().await, writes);
        assert_eq!((rig.on_server().await, rig.marked().await), ((FIT + 1) * EACH, (FIT + 1) * EACH));

        // What was withdrawn while none was running is deleted, and a list that is short enough has names again.
        rig.crash().await;
        rig.withdraw("many01").await;
        rig.start();
        eventually("the names are deleted", PATIENCE, || async {
            let left = (rig.on_server().await, rig.listed().await.len());
            if left == (FIT * EACH, FIT * EACH) { Ok(()) } else { Err(left) }
        })
        .await;
        rig.until_served("www", "A", &["192.0.2.7"]).await;
    }
}
