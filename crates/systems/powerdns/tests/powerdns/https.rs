//! The operator and a PowerDNS behind HTTPS.

use signpost_testkit::{TlsFront, eventually, on_both};

use crate::rig::{PATIENCE, Rig, condition, zone_spec};

on_both! {
    async fn the_certificate_is_checked_against_the_authority_in_the_settings(cluster) {
        let Some(mut rig) = Rig::new(cluster).await else { return };
        eventually("the server was asked who it is", PATIENCE, || async {
            let said = rig.readiness();
            if said == Some(signpost_engine::health::Check::Ok) { Ok(()) } else { Err(said) }
        })
        .await;
        rig.stop().await;
        let plain = rig.proxy.url().strip_prefix("http://").unwrap().parse().unwrap();
        let front = TlsFront::open_by_address(plain).await;
        let stranger = TlsFront::open(plain).await;
        let (url, right, wrong) = (front.url(), front.ca_file().to_owned(), stranger.ca_file().to_owned());

        // A foreign authority: nothing is sent, and the message names the setting to check.
        rig.proxy.forget();
        let to = url.clone();
        rig.tune(move |config| {
            config.url.clone_from(&to);
            config.ca_path = Some(wrong.clone());
        });
        rig.start();
        rig.put("Zone", &rig.zone, zone_spec()).await;
        let status = rig.until("Zone", &rig.zone, "Failed").await;
        let ready = condition(&status, "Ready");
        assert_eq!(ready["reason"], "ProviderUnreachable");
        assert!(ready["message"].as_str().unwrap().contains("PDNS_API_CA_PATH"), "{ready}");
        eventually("readiness says so", PATIENCE, || async {
            let said = format!("{:?}", rig.readiness());
            if said.contains("PDNS_API_CA_PATH") && said.contains(&url) { Ok(()) } else { Err(said) }
        })
        .await;
        assert_eq!(rig.proxy.seen(), []);

        // The right one.
        rig.stop().await;
        let to = url.clone();
        rig.tune(move |config| {
            config.url.clone_from(&to);
            config.ca_path = Some(right.clone());
        });
        rig.start();
        rig.until("Zone", &rig.zone, "Succeeded").await;
        rig.served("www", "www", "A", &["192.0.2.1"]).await;
        rig.until_served("www", "A", &["192.0.2.1"]).await;
        rig.until_ready().await;

        // No authority at all, on request.
        rig.stop().await;
        rig.tune(move |config| {
            config.url.clone_from(&url);
            config.insecure = true;
        });
        rig.start();
        rig.served("more", "more", "A", &["192.0.2.2"]).await;
        rig.until_served("more", "A", &["192.0.2.2"]).await;
    }
}
