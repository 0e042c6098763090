//! The list of DNSEndpoint records on the zone object has a limit: what does not fit is refused by name, and nothing that is published is lost.

use serde_json::{Value, json};
use signpost_testkit::{eventually, on_both};

use crate::{
    endpoints::rig_with,
    rig::{PATIENCE, Rig},
};

/// Endpoints of one object.
const EACH: usize = 200;
/// Objects that fit: 3,200 lines of 213 bytes, of 700,000.
const FIT: usize = 16;

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

    /// Waits until so many of the names are on the server.
    async fn until_on_server(&self, wanted: impl Fn(usize) -> bool) -> usize {
        eventually("the names are on the server", PATIENCE, || async {
            let count = self.on_server().await;
            if wanted(count) { Ok(count) } else { Err(count) }
        })
        .await
    }
}

on_both! {
    async fn endpoints_beyond_the_room_of_the_zone_object_are_refused_by_name(cluster) {
        let Some(mut rig) = rig_with(cluster, |_| {}).await else { return };
        for object in 0..FIT {
            rig.publish_many(object).await;
        }
        for object in 0..FIT {
            rig.until_observed(&format!("many{object:02}")).await;
        }
        assert_eq!(rig.on_server().await, FIT * EACH);

        // The next object fits in part: the rest of it is refused, by name, in an event and in the metric.
        rig.publish_many(FIT).await;
        rig.until_told("many16", "Unsupported", &["n16-", "is full", "What is published is kept"]).await;
        let full = rig.until_on_server(|count| count > FIT * EACH).await;
        assert!(full < (FIT + 1) * EACH, "{full} names are published");
        assert_eq!(rig.listed().await.len(), full, "everything that is published is listed");
        let metrics = rig.metrics();
        assert!(metrics.lines().any(|line| line.starts_with("signpost_refusals_total") && line.contains("Unsupported")), "{metrics}");
        let observed = rig.endpoints().get("many16").await.unwrap();
        assert!(!observed.is_observed(), "{:?}", observed.status);

        // Neighbours are not concerned: an RRset is served, and so is a changed address.
        rig.served("www", "www", "A", &["192.0.2.7"]).await;
        let changed = (0..EACH).map(|number| rig.endpoint(&Rig::long(0, number), "A", &["192.0.2.2"])).collect::<Vec<_>>();
        rig.publish("many00", json!(changed)).await;
        rig.until_served(&Rig::long(0, 7), "A", &["192.0.2.2"]).await;

        // A new process finds everything as it was, and deletes nothing.
        rig.restart().await;
        rig.after_a_resync().await;
        assert_eq!((rig.on_server().await, rig.listed().await.len()), (full, full));

        // Where names are withdrawn, the others follow.
        rig.withdraw("many01").await;
        rig.until_observed("many16").await;
        assert_eq!(rig.until_on_server(|count| count == FIT * EACH).await, FIT * EACH);
    }
}
