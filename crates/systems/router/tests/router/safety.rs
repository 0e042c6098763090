//! Causes that must never withdraw a name: a missing, replaced, doubled or not yet evaluated object. The state is a condition instead.

use serde_json::json;
use signpost_testkit::{eventually, on_both};

use crate::rig::{PATIENCE, Rig, alias, condition, configuration, identity};

impl Rig {
    /// A published route and gateway.
    async fn published(&self) {
        self.basics(&["weu", "neu"]).await;
        self.route("api").await;
        self.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        self.until_condition("Gateway", &self.infra, "gw", "DNSReady", "DNSEndpointsCreated").await;
        self.until_hosts("gw", &[&self.host("api")]).await;
    }

    /// An object that is deleted is waited for as long as the test takes.
    async fn wait_long_for_replacements(&mut self) {
        self.stop().await;
        self.config.withdraw_after = PATIENCE;
        self.start().await;
    }

    /// A DNSConfiguration that is missing is reported, and nothing is withdrawn until it is created again, nor after that.
    async fn configuration_missed(&self) {
        self.until("ServiceRoute", "api-route", "DNSConfigurationNotAvailable").await;
        self.until_condition("Gateway", &self.infra, "gw", "DNSReady", "DNSConfigurationNotAvailable").await;
        self.kept().await;
        self.configuration(&["weu", "neu"]).await;
        self.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        self.kept().await;
    }

    /// Waits until the Ready condition of an object has this text in its message.
    async fn until_message(&self, kind: &str, namespace: &str, name: &str, text: &str) {
        eventually(&format!("{kind} {name} reports: {text}"), PATIENCE, || async {
            let status = self.get(kind, namespace, name).await.unwrap()["status"].clone();
            let message = condition(&status, "Ready")["message"].to_string();
            if message.contains(text) { Ok(()) } else { Err(message) }
        })
        .await;
    }

    /// No name was withdrawn on the way, no host was taken from an Istio Gateway, and everything is there.
    async fn kept(&self) {
        self.names_kept().await;
        assert_eq!(self.losses("IstioGateway"), [], "no host is taken away");
    }

    /// No name was withdrawn on the way, not even for a moment.
    async fn names_kept(&self) {
        assert_eq!(self.deletions(), [""; 0], "nothing is withdrawn");
        assert_eq!(self.losses("DNSEndpoint"), [], "nothing is emptied");
        assert_eq!(self.endpoints(&self.app).await["api-route-external-dns-weu"], alias("api", "weu"));
        assert_eq!(self.endpoints(&self.infra).await.len(), 2);
    }
}

on_both! {
    async fn a_configuration_that_is_replaced_withdraws_nothing(cluster) {
        let rig = Rig::new(cluster).await;
        rig.published().await;
        rig.delete("DNSConfiguration", "", "dns-config").await;
        rig.configuration_missed().await;
    }

    async fn an_identity_that_is_replaced_withdraws_nothing(cluster) {
        let rig = Rig::new(cluster).await;
        rig.published().await;
        rig.delete("ClusterIdentity", "", "cluster-identity").await;
        rig.until("ServiceRoute", "api-route", "ClusterIdentityNotAvailable").await;
        rig.until("Gateway", "gw", "ClusterIdentityNotAvailable").await;
        rig.until("DNSPolicy", "policy", "ClusterIdentityNotAvailable").await;
        rig.kept().await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        rig.identity("weu", &[]).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.kept().await;
    }

    async fn a_second_singleton_changes_nothing_and_reports_which_one_is_used(cluster) {
        let rig = Rig::new(cluster).await;
        rig.published().await;
        // Creation times have a resolution of one second, and then the name decides: these come after the first ones.
        rig.put("ClusterIdentity", "", "x-second", json!({ "spec": identity("neu", &[]) })).await;
        rig.put("DNSConfiguration", "", "x-second", json!({ "spec": configuration(&["neu"]) })).await;
        let status = rig.until_refused("ClusterIdentity", "", "x-second", "Ready", "SingletonViolation").await;
        assert_eq!(status["phase"], "Failed");
        assert!(status["conditions"].to_string().contains("ClusterIdentity cluster-identity is older"), "{status}");
        rig.until_refused("DNSConfiguration", "", "x-second", "Ready", "SingletonViolation").await;
        rig.until_condition("ClusterIdentity", "", "cluster-identity", "Ready", "ValidationSucceeded").await;
        rig.settled().await;
        assert_eq!(rig.endpoints(&rig.app).await["api-route-external-dns-weu"], alias("api", "weu"));
        // The survivor takes over when the first one is deleted.
        rig.delete("ClusterIdentity", "", "cluster-identity").await;
        rig.until_condition("ClusterIdentity", "", "x-second", "Ready", "ValidationSucceeded").await;
    }

    async fn a_used_singleton_that_is_replaced_beside_a_surplus_one_withdraws_nothing(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.wait_long_for_replacements().await;
        rig.published().await;
        // The surplus ones have another region, and do not list the controllers that publish.
        rig.put("ClusterIdentity", "", "x-second", json!({ "spec": identity("neu", &[]) })).await;
        rig.put("DNSConfiguration", "", "x-second", json!({ "spec": configuration(&["frc"]) })).await;
        rig.put("DNSPolicy", &rig.app, "x-second", json!({ "spec": { "sourceRegion": "elsewhere" } })).await;
        let app = rig.app.clone();
        let kinds = [
            ("ClusterIdentity", "", "cluster-identity", "ClusterIdentityNotAvailable", "ValidationSucceeded"),
            ("DNSConfiguration", "", "dns-config", "DNSConfigurationNotAvailable", "ConfigurationValid"),
            ("DNSPolicy", &*app, "policy", "DNSPolicyNotFound", "PolicyActive"),
        ];
        for (kind, namespace, name, missing, used) in kinds {
            rig.until_refused(kind, namespace, "x-second", "Ready", "SingletonViolation").await;
            let before = rig.get(kind, namespace, name).await.unwrap()["spec"].clone();
            rig.delete(kind, namespace, name).await;
            let status = rig.until("ServiceRoute", "api-route", missing).await;
            assert!(condition(&status, "Ready")["message"].to_string().contains("x-second"), "{status}");
            rig.until_message(kind, namespace, "x-second", "was deleted. This one is used").await;
            rig.kept().await;
            // The one that is created again is younger, and used.
            rig.put(kind, namespace, name, json!({ "spec": before })).await;
            rig.until_condition(kind, namespace, name, "Ready", used).await;
            rig.until_message(kind, namespace, "x-second", &format!("{kind} {name} is ")).await;
            rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
            rig.kept().await;
        }
        // A new process finds the same ones used.
        rig.restart().await;
        rig.settled().await;
        for (kind, namespace, name, _, used) in kinds {
            rig.until_condition(kind, namespace, name, "Ready", used).await;
            rig.until_condition(kind, namespace, "x-second", "Ready", "SingletonViolation").await;
        }
        assert!(rig.deletions().iter().all(|name| name.starts_with("settled")), "{:?}", rig.deletions());
        assert_eq!(rig.endpoints(&rig.app).await["api-route-external-dns-weu"], alias("api", "weu"));
    }

    async fn a_singleton_that_is_deleted_while_the_operator_is_down_withdraws_nothing(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.wait_long_for_replacements().await;
        rig.published().await;
        rig.put("DNSConfiguration", "", "x-second", json!({ "spec": configuration(&["frc"]) })).await;
        rig.until_condition("DNSConfiguration", "", "x-second", "Ready", "SingletonViolation").await;
        rig.stop().await;
        rig.delete("DNSConfiguration", "", "dns-config").await;
        rig.start().await;
        rig.configuration_missed().await;
    }

    async fn a_surplus_singleton_takes_over_when_the_used_one_stays_away(cluster) {
        let rig = Rig::new(cluster).await;
        rig.published().await;
        rig.put("DNSConfiguration", "", "x-second", json!({ "spec": configuration(&["weu", "frc"]) })).await;
        rig.until_condition("DNSConfiguration", "", "x-second", "Ready", "SingletonViolation").await;
        rig.delete("DNSConfiguration", "", "dns-config").await;
        rig.until_condition("DNSConfiguration", "", "x-second", "Ready", "ConfigurationValid").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        eventually("the addresses are published by the controllers of the other one", PATIENCE, || async {
            let have = rig.endpoints(&rig.infra).await;
            let name = |region| format!("gateway-controller-istio-internal-internal-external-dns-{region}");
            if have.len() == 2 && have.contains_key(&name("frc")) && have.contains_key(&name("weu")) { Ok(()) } else { Err(have) }
        }).await;
        // It is the used one now: an older-named, younger object does not replace it.
        rig.configuration(&["weu", "neu"]).await;
        rig.until_refused("DNSConfiguration", "", "dns-config", "Ready", "SingletonViolation").await;
        rig.until_condition("DNSConfiguration", "", "x-second", "Ready", "ConfigurationValid").await;
        assert!(!rig.deletions().contains(&"api-route-external-dns-weu".to_owned()));
    }

    async fn a_restart_with_two_identities_keeps_the_first_one(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.published().await;
        rig.put("ClusterIdentity", "", "x-second", json!({ "spec": identity("neu", &[]) })).await;
        rig.until_condition("ClusterIdentity", "", "x-second", "Ready", "SingletonViolation").await;
        rig.restart().await;
        rig.settled().await;
        assert_eq!(rig.endpoints(&rig.app).await["api-route-external-dns-weu"], alias("api", "weu"));
        assert!(rig.deletions().iter().all(|name| name.starts_with("settled")), "{:?}", rig.deletions());
    }

    async fn a_policy_that_is_deleted_withdraws_nothing(cluster) {
        let rig = Rig::new(cluster).await;
        rig.published().await;
        rig.delete("DNSPolicy", &rig.app, "policy").await;
        rig.until("ServiceRoute", "api-route", "DNSPolicyNotFound").await;
        rig.kept().await;
        rig.policy(json!({})).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.kept().await;
    }

    async fn a_new_policy_without_a_status_withdraws_nothing_at_a_start(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.published().await;
        rig.stop().await;
        rig.delete("DNSPolicy", &rig.app, "policy").await;
        rig.policy(json!({})).await;
        rig.start().await;
        rig.until("DNSPolicy", "policy", "PolicyActive").await;
        rig.settled().await;
        assert!(rig.deletions().iter().all(|name| name.starts_with("settled")), "{:?}", rig.deletions());
    }

    async fn the_older_of_two_policies_is_used_and_the_other_takes_over(cluster) {
        let rig = Rig::new(cluster).await;
        rig.published().await;
        rig.put("DNSPolicy", &rig.app, "x-second", json!({ "spec": { "sourceRegion": "elsewhere" } })).await;
        let status = rig.until_refused("DNSPolicy", &rig.app, "x-second", "Ready", "SingletonViolation").await;
        assert_eq!((&status["phase"], &status["active"]), (&json!("Failed"), &json!(false)));
        rig.settled().await;
        assert_eq!(rig.endpoints(&rig.app).await["api-route-external-dns-weu"], alias("api", "weu"));
        rig.delete("DNSPolicy", &rig.app, "policy").await;
        rig.until("DNSPolicy", "x-second", "PolicyInactive").await;
        rig.until_endpoints(&rig.app, &[]).await;
    }

    async fn a_gateway_that_is_briefly_missing_withdraws_nothing(cluster) {
        let mut rig = Rig::new(cluster).await;
        rig.wait_long_for_replacements().await;
        rig.published().await;
        // The operator has seen its DNSEndpoint: it reports that external-dns has read it.
        rig.read_route("api-route-external-dns-weu").await;
        // The Istio Gateway is another matter: the cluster deletes it with its owner.
        rig.delete("Gateway", &rig.infra, "gw").await;
        let status = rig.until("ServiceRoute", "api-route", "GatewayNotFound").await;
        assert_eq!(status["dnsEndpoint"], "api-route-external-dns-weu", "it is still published");
        rig.names_kept().await;
        rig.gateway("gw", "internal").await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_hosts("gw", &[&rig.host("api")]).await;
        rig.names_kept().await;
    }

    async fn a_gateway_that_stays_away_loses_its_addresses_and_its_routes_keep_theirs(cluster) {
        let rig = Rig::new(cluster).await;
        rig.published().await;
        rig.delete("Gateway", &rig.infra, "gw").await;
        rig.until_endpoints(&rig.infra, &[]).await;
        assert_eq!(rig.endpoints(&rig.app).await["api-route-external-dns-weu"], alias("api", "weu"));
    }

    async fn an_address_that_vanishes_withdraws_nothing(cluster) {
        let rig = Rig::new(cluster).await;
        rig.published().await;
        rig.balancer("internal", json!([])).await;
        let status = rig.until_condition("Gateway", &rig.infra, "gw", "DNSReady", "LoadBalancerIPPending").await;
        assert_eq!(status["loadBalancerIP"], "", "an older value of another manager does not stay");
        rig.kept().await;
        rig.balancer("internal", json!([{ "ip": "10.0.0.9" }])).await;
        eventually("the new address is published", PATIENCE, || async {
            let have = rig.endpoints(&rig.infra).await;
            if have.values().all(|text| text.ends_with("A 10.0.0.9")) && have.len() == 2 { Ok(()) } else { Err(have) }
        }).await;
        rig.kept().await;
    }

    async fn a_region_without_a_controller_withdraws_nothing(cluster) {
        let rig = Rig::new(cluster).await;
        rig.published().await;
        let name = |region: &str| format!("gateway-controller-istio-internal-internal-external-dns-{region}");
        let (neu, weu) = (name("neu"), name("weu"));
        let record = |region: &str| format!("aks01-{region}-internal.example.com A 10.123.45.67");
        rig.identity("typo", &[]).await;
        let status = rig.until("ServiceRoute", "api-route", "NoControllers").await;
        assert_eq!(status["phase"], "Failed");
        // The region is a part of the gateway's name. The route points at the former name, so that one is kept.
        let both = format!("{}; {}", record("typo"), record("weu"));
        rig.until_endpoints(&rig.infra, &[(&neu, &both), (&weu, &both)]).await;
        assert!(rig.deletions().is_empty());
        rig.identity("weu", &[]).await;
        rig.until("ServiceRoute", "api-route", "ReconciliationSucceeded").await;
        rig.until_endpoints(&rig.infra, &[(&neu, &record("weu")), (&weu, &record("weu"))]).await;
        assert_eq!((rig.deletions(), rig.losses("IstioGateway")), (vec![], vec![]));
        // Nobody has pointed at the mistaken name.
        let lost = rig.losses("DNSEndpoint").into_iter().filter(|(_, name)| name != "aks01-typo-internal.example.com");
        assert_eq!(lost.collect::<Vec<_>>(), []);
        assert_eq!(rig.endpoints(&rig.app).await["api-route-external-dns-weu"], alias("api", "weu"));
    }
}
