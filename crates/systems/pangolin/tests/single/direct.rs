//! Direct mode on the strict stand-in of Pangolin's API.

use std::sync::Arc;

use k8s_openapi::api::networking::v1::IngressClass;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use signpost_provider_pangolin::{Connection, Pangolin as _, PangolinClient, Secret, parse_base_url};
use signpost_sandbox::edge::Answer;
use signpost_system_pangolin::{APPLIED_ANNOTATION, Policy};
use signpost_testkit::pangolin::{ORG, Pangolin, Version};
use signpost_testkit::{Cluster, eventually, on_both};

use crate::common::bed::{Bed, PATIENCE, Running, path, rules};

pub(crate) fn client(url: &str, org: &str, key: &str) -> PangolinClient {
    PangolinClient::new(&Connection::new(parse_base_url(url).unwrap(), org, Secret::Value(key.into()))).unwrap()
}

pub(crate) fn policy(bed: &Bed) -> Policy {
    Policy { default_tunnel: Some("cluster".to_owned()), ..bed.policy() }
}

pub(crate) fn start_with(bed: &Bed, policy: Policy, client: Arc<dyn signpost_provider_pangolin::Pangolin>) -> Running {
    Running::start(bed.cluster.client(), move |operator| {
        signpost_system_pangolin::install_api(operator, policy, client);
    })
}

pub(crate) fn start(bed: &Bed, server: &Pangolin) -> Running {
    start_with(bed, policy(bed), Arc::new(client(&server.url(), ORG, Pangolin::KEY)))
}

pub(crate) struct Direct {
    pub(crate) bed: Bed,
    pub(crate) server: Pangolin,
}

impl Direct {
    pub(crate) async fn new(cluster: Cluster) -> Self {
        Self { bed: Bed::bare(cluster).await, server: Pangolin::start().await }
    }

    pub(crate) fn served(&self, service: &str, port: u16) -> Answer<String> {
        Answer::Served(vec![format!("{service}.{}.svc.cluster.local:{port}", self.bed.namespace)])
    }

    /// Waits until a Service answers a URL.
    pub(crate) async fn answers(&self, host: &str, path: &str, service: &str, port: u16) {
        self.answers_with(host, path, self.served(service, port)).await;
    }

    pub(crate) async fn answers_with(&self, host: &str, path: &str, expected: Answer<String>) {
        eventually(&format!("{host}{path} is answered by {expected:?}"), PATIENCE, || async {
            let seen = self.server.get(host, path);
            if seen == expected { Ok(()) } else { Err((seen, self.bed.events().await)) }
        })
        .await;
    }

    /// Waits until exactly these hosts have a resource, all marked and settled.
    pub(crate) async fn has(&self, hosts: &[&str]) {
        eventually(&format!("resources for {hosts:?}"), PATIENCE, || async {
            let mut seen: Vec<String> =
                self.server.state().resources.values().map(|row| row.full_domain.clone()).collect();
            seen.sort();
            if seen == hosts { Ok(()) } else { Err((seen, self.bed.events().await)) }
        })
        .await;
    }

    /// Waits until the digest of an Ingress is noted, which is the end of a pass.
    pub(crate) async fn settled(&self, name: &str) -> String {
        use kube::ResourceExt as _;
        eventually(&format!("{name} is settled"), PATIENCE, || async {
            let ingress = self.bed.ingresses.get(name).await.unwrap();
            ingress.annotations().get(APPLIED_ANNOTATION).cloned().ok_or("no digest")
        })
        .await
    }
}

on_both! {
async fn an_ingress_becomes_a_public_endpoint_with_three_calls(cluster) {
    let direct = Direct::new(cluster).await;
    let running = start(&direct.bed, &direct.server);
    direct.bed.expose("warm", &["warm.ns.test"]).await;
    direct.answers("warm.ns.test", "/", "app", 80).await;
    direct.settled("warm").await;
    direct.server.forget_requests();
    direct.bed.expose("app", &["app.ns.test"]).await;
    direct.answers("app.ns.test", "/x", "app", 80).await;
    let writes = direct.server.writes();
    assert_eq!(writes.len(), 3, "{writes:?}");
    let row = direct.server.state().resources.values().find(|row| row.full_domain == "app.ns.test").unwrap().clone();
    assert!(row.nice_id.starts_with("sp-home-"), "{}", row.nice_id);
    assert_eq!((row.sso, row.ssl, row.enabled), (Some(false), true, true));
    assert_eq!(row.name, format!("{}/app/app.ns.test", direct.bed.namespace));
    direct.bed.event("Normal", "Created").await;
    direct.settled("app").await;
    running.stop().await;
}

async fn every_change_is_one_call_and_rest_is_none(cluster) {
    let direct = Direct::new(cluster).await;
    let running = start(&direct.bed, &direct.server);
    direct.bed.expose("app", &["app.ns.test"]).await;
    direct.answers("app.ns.test", "/", "app", 80).await;
    let mut digest = direct.settled("app").await;
    let to = |paths: serde_json::Value| json!({"spec": {"rules": [{"host": "app.ns.test", "http": {"paths": paths}}]}});
    let annotated = json!({"metadata": {"annotations": {"pangolin.ingress.k8s.io/sso": "true"}}});
    for (what, patch, most) in [
        ("backend", to(json!([path("/", "Prefix", "api", 9000)])), 1),
        ("a path more", to(json!([path("/", "Prefix", "api", 9000), path("/a", "Prefix", "app", 80)])), 1),
        ("another path", to(json!([path("/", "Prefix", "api", 9000), path("/b", "Prefix", "app", 80)])), 1),
        ("a path less", to(json!([path("/", "Prefix", "api", 9000)])), 1),
        ("annotation", annotated, 1),
    ] {
        direct.server.forget_requests();
        direct.bed.patch("app", patch).await;
        digest = eventually(what, PATIENCE, || async {
            let now = direct.settled("app").await;
            if now == digest { Err(now) } else { Ok(now) }
        }).await;
        let requests = direct.server.requests();
        assert!(requests.len() <= most, "{what}: {requests:?}");
    }
    direct.answers("app.ns.test", "/b", "api", 9000).await;
    assert_eq!(direct.server.state().resources.values().next().unwrap().sso, Some(true));
    // A restart costs one list of each kind and no write.
    running.stop().await;
    direct.server.forget_requests();
    let running = start(&direct.bed, &direct.server);
    eventually("a pass and a sweep", PATIENCE, || async {
        let done = running.metric("pic_reconcile_total{result=\"success\"}");
        if done >= 2.0 { Ok(()) } else { Err(done) }
    }).await;
    let requests = direct.server.requests();
    assert_eq!(requests.len(), 3, "{requests:?}");
    assert!(running.metric("signpost_object_writes_total{outcome=\"written\"}") < 0.5, "nothing is written");
}

async fn an_old_digest_that_is_restored_with_a_manifest_is_not_believed(cluster) {
    let direct = Direct::new(cluster).await;
    let running = start(&direct.bed, &direct.server);
    let rules = |at: &str| json!([{"host": "app.ns.test", "http": {"paths": [path("/", "Prefix", "app", 80), path(at, "Prefix", "api", 9000)]}}]);
    direct.bed.create("app", &json!({}), json!({"ingressClassName": "pangolin", "rules": rules("/one")})).await;
    let old = direct.settled("app").await;
    direct.bed.patch("app", json!({"spec": {"rules": rules("/two")}})).await;
    direct.answers("app.ns.test", "/two", "api", 9000).await;
    eventually("the new digest", PATIENCE, || async {
        let now = direct.settled("app").await;
        if now == old { Err(now) } else { Ok(()) }
    }).await;
    running.stop().await;
    // The manifest of the first state, with everything that was noted on it. The list of resources shows no path.
    let restored = json!({"metadata": {"annotations": {APPLIED_ANNOTATION: old}}, "spec": {"rules": rules("/one")}});
    let manager = kube::api::PatchParams { field_manager: Some("kubectl".to_owned()), ..Default::default() };
    direct.bed.ingresses.patch("app", &manager, &kube::api::Patch::Merge(restored)).await.unwrap();
    let running = start(&direct.bed, &direct.server);
    direct.answers("app.ns.test", "/one", "api", 9000).await;
    direct.answers("app.ns.test", "/two", "app", 80).await;
    // The digest is ours again, and a start costs three lists.
    eventually("the digest is noted again", PATIENCE, || async {
        use kube::ResourceExt as _;
        let ingress = direct.bed.ingresses.get("app").await.unwrap();
        let ours = signpost_engine::wrote_annotation(&ingress.metadata, APPLIED_ANNOTATION);
        if ours && ingress.annotations().get(APPLIED_ANNOTATION) == Some(&old) { Ok(()) } else { Err(ingress.metadata) }
    }).await;
    running.stop().await;
    direct.server.forget_requests();
    let running = start(&direct.bed, &direct.server);
    eventually("a pass and a sweep", PATIENCE, || async {
        let done = running.metric("pic_reconcile_total{result=\"success\"}");
        if done >= 2.0 { Ok(()) } else { Err(done) }
    }).await;
    assert_eq!(direct.server.requests().len(), 3, "{:?}", direct.server.requests());
}

async fn paths_are_routed_as_kubernetes_does(cluster) {
    let direct = Direct::new(cluster).await;
    let _running = start(&direct.bed, &direct.server);
    let paths = json!([
        path("/", "Prefix", "app", 80), path("/api", "Prefix", "api", 9000), path("/api/v1", "Exact", "app", 8080),
        path("/x`) || Host(`victim.ns.test", "ImplementationSpecific", "api", 9000),
    ]);
    let spec = json!({"ingressClassName": "pangolin", "rules": [{"host": "app.ns.test", "http": {"paths": paths}}]});
    direct.bed.create("app", &json!({}), spec).await;
    direct.settled("app").await;
    for (path, service, port) in [("/", "app", 80), ("/api", "api", 9000), ("/api/x", "api", 9000), ("/apiary", "app", 80), ("/api/v1", "app", 8080), ("/api/v1/", "api", 9000)] {
        assert_eq!(direct.server.get("app.ns.test", path), direct.served(service, port), "{path}");
    }
    let note = direct.bed.event("Warning", "PathNotSupported").await;
    assert!(note.contains('`'), "{note}");
    assert_eq!(direct.server.get("victim.ns.test", "/"), Answer::NoRouter);
}

async fn a_changed_host_is_served_before_the_old_one_is_deleted(cluster) {
    let direct = Direct::new(cluster).await;
    let _running = start(&direct.bed, &direct.server);
    direct.bed.expose("app", &["old.ns.test", "wild.test", "one.cname.test"]).await;
    direct.has(&["old.ns.test", "one.cname.test", "wild.test"]).await;
    direct.settled("app").await;
    direct.server.forget_requests();
    direct.bed.patch("app", json!({"spec": {"rules": rules(&["new.wild.test"])}})).await;
    direct.has(&["new.wild.test"]).await;
    direct.answers("new.wild.test", "/", "app", 80).await;
    let writes = direct.server.writes();
    let last_create = writes.iter().rposition(|write| write.starts_with("PUT")).unwrap();
    let first_delete = writes.iter().position(|write| write.starts_with("DELETE")).unwrap();
    assert!(last_create < first_delete, "{writes:?}");
}

async fn what_nobody_wants_any_more_is_deleted_even_after_a_downtime(cluster) {
    let direct = Direct::new(cluster).await;
    let running = start(&direct.bed, &direct.server);
    for name in ["deleted", "disabled", "classless", "later", "kept"] {
        direct.bed.expose(name, &[&format!("{name}.ns.test")]).await;
        direct.settled(name).await;
    }
    direct.bed.delete("deleted").await;
    direct.bed.annotate("disabled", "enabled", Some("false")).await;
    direct.bed.patch("classless", json!({"spec": {"ingressClassName": "nginx"}})).await;
    direct.has(&["kept.ns.test", "later.ns.test"]).await;
    running.crash().await;
    direct.bed.delete("later").await;
    let _running = start(&direct.bed, &direct.server);
    direct.has(&["kept.ns.test"]).await;
    direct.answers("kept.ns.test", "/", "app", 80).await;
}

async fn a_foreign_resource_is_never_changed(cluster) {
    let direct = Direct::new(cluster).await;
    let other = client(&direct.server.url(), ORG, Pangolin::KEY);
    let new = signpost_provider_pangolin::NewResource {
        name: "by hand".into(),
        domain: signpost_provider_pangolin::DomainId("d-ns".into()),
        host: signpost_dns::Fqdn::parse("app.ns.test").unwrap(),
    };
    let id = other.create_resource(&new).await.unwrap().id.0;
    let before = format!("{:?}", direct.server.state().resources[&id]);
    let _running = start(&direct.bed, &direct.server);
    direct.bed.expose("app", &["app.ns.test", "good.ns.test"]).await;
    let note = direct.bed.event("Warning", "ForeignResource").await;
    assert!(note.contains("app.ns.test"), "{note}");
    direct.answers("good.ns.test", "/", "app", 80).await;
    direct.bed.delete("app").await;
    direct.has(&["app.ns.test"]).await;
    assert_eq!(format!("{:?}", direct.server.state().resources[&id]), before);
}

async fn a_host_named_by_annotations_stays_while_its_domain_is_not_verified(cluster) {
    let direct = Direct::new(cluster).await;
    let running = start(&direct.bed, &direct.server);
    let annotations = json!({"pangolin.ingress.k8s.io/domain-name": "ns.test", "pangolin.ingress.k8s.io/subdomain": "app"});
    let spec = json!({"ingressClassName": "pangolin", "rules": rules(&["inner.example.com"])});
    direct.bed.create("app", &annotations, spec).await;
    direct.answers("app.ns.test", "/", "app", 80).await;
    direct.settled("app").await;
    running.stop().await;
    let verified = |verified: bool| {
        for domain in direct.server.state().domains.iter_mut().filter(|domain| domain.base == "ns.test") {
            domain.verified = verified;
        }
    };
    verified(false);
    let running = start(&direct.bed, &direct.server);
    direct.bed.event("Warning", "DomainNotFound").await;
    direct.has(&["app.ns.test"]).await;
    assert!(direct.server.writes().iter().all(|write| !write.starts_with("DELETE")));
    running.stop().await;
    verified(true);
    let _running = start(&direct.bed, &direct.server);
    direct.answers("app.ns.test", "/", "app", 80).await;
}

async fn a_deleted_ingress_class_withdraws_no_host(cluster) {
    let direct = Direct::new(cluster).await;
    let classes: Api<IngressClass> = Api::all(direct.bed.cluster.client());
    let (name, later) = (format!("public-{}", direct.bed.namespace), format!("later-{}", direct.bed.namespace));
    let class = async |name: &str, controller: &str| {
        let class = json!({"metadata": {"name": name}, "spec": {"controller": controller}});
        let class: IngressClass = serde_json::from_value(class).unwrap();
        classes.create(&PostParams::default(), &class).await.unwrap();
    };
    let remove = async |name: &str| {
        classes.delete(name, &DeleteParams::default()).await.unwrap();
        eventually("the class is deleted", PATIENCE, || async {
            if classes.get_opt(name).await.unwrap().is_none() { Ok(()) } else { Err("it exists") }
        }).await;
    };
    let ingress = async |name: &str, class: &str| {
        let spec = json!({"ingressClassName": class, "rules": rules(&[&format!("{name}.ns.test")])});
        direct.bed.create(name, &json!({}), spec).await;
    };
    class(&name, signpost_system_pangolin::CONTROLLER).await;
    let running = start(&direct.bed, &direct.server);
    ingress("app", &name).await;
    direct.answers("app.ns.test", "/", "app", 80).await;
    assert!(direct.settled("app").await.ends_with(&format!("@{name}")));
    remove(&name).await;
    // A class that was created later is known to the operator, and therefore the deletion is: both come from one watch.
    class(&later, signpost_system_pangolin::CONTROLLER).await;
    ingress("later", &later).await;
    direct.settled("later").await;
    // Its Ingress is still followed, and another one of that class is not ours.
    ingress("new", &name).await;
    direct.bed.patch("app", json!({"spec": {"rules": [{"host": "app.ns.test", "http": {"paths": [path("/", "Prefix", "api", 9000)]}}]}})).await;
    direct.answers("app.ns.test", "/", "api", 9000).await;
    direct.settled("app").await;
    running.stop().await;
    let _running = start(&direct.bed, &direct.server);
    direct.bed.expose("other", &["other.ns.test"]).await;
    direct.settled("other").await;
    direct.has(&["app.ns.test", "later.ns.test", "other.ns.test"]).await;
    // A class of that name for another controller is a decision.
    class(&name, "example.com/other").await;
    direct.has(&["later.ns.test", "other.ns.test"]).await;
    remove(&name).await;
    remove(&later).await;
}

async fn two_operators_on_one_organisation_leave_each_other_alone(cluster) {
    let direct = Direct::new(cluster).await;
    let second = Bed::bare(direct.bed.cluster.clone()).await;
    let _one = start(&direct.bed, &direct.server);
    direct.bed.expose("app", &["one.ns.test"]).await;
    direct.settled("app").await;
    let two = start(&second, &direct.server);
    second.expose("app", &["two.ns.test", "one.ns.test"]).await;
    direct.has(&["one.ns.test", "two.ns.test"]).await;
    two.crash().await;
    let _two = start(&second, &direct.server);
    second.event("Warning", "ForeignResource").await;
    direct.answers("one.ns.test", "/", "app", 80).await;
    second.delete("app").await;
    direct.has(&["one.ns.test"]).await;
}

async fn an_ingress_that_replaces_another_takes_the_host_over_without_a_gap(cluster) {
    let direct = Direct::new(cluster).await;
    let running = start(&direct.bed, &direct.server);
    direct.bed.expose("old", &["app.ns.test"]).await;
    direct.settled("old").await;
    running.stop().await;
    direct.bed.delete("old").await;
    let spec = json!({"ingressClassName": "pangolin", "rules": [{"host": "app.ns.test", "http": {"paths": [path("/", "Prefix", "api", 9000)]}}]});
    direct.bed.create("new", &json!({}), spec).await;
    let id = *direct.server.state().resources.keys().next().unwrap();
    let _running = start(&direct.bed, &direct.server);
    direct.answers("app.ns.test", "/", "api", 9000).await;
    direct.settled("new").await;
    assert_eq!(direct.server.state().resources.keys().copied().collect::<Vec<_>>(), [id], "the same resource");
}
}

/// The owner is made from the cluster's own id where none is given; sites and domains come from the organisation's lists alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_the_organisation_does_not_have_are_refused() {
    let direct = Direct::new(signpost_testkit::sandbox_cluster().await).await;
    let _running = start_with(
        &direct.bed,
        Policy { owner: None, ..policy(&direct.bed) },
        Arc::new(client(&direct.server.url(), ORG, Pangolin::KEY)),
    );
    direct.bed.expose("app", &["app.ns.test", "x.other.test", "x.open.test"]).await;
    direct.answers("app.ns.test", "/", "app", 80).await;
    direct.bed.event("Warning", "DomainNotFound").await;
    direct.bed.annotate("app", "tunnel-name", Some("theirs")).await;
    let note = direct.bed.event("Warning", "TunnelNotFound").await;
    assert!(note.contains("cluster, guard, home"), "{note}");
    direct.answers("app.ns.test", "/", "app", 80).await;
}

/// Every version that the stand-in plays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_versions_of_pangolin_are_served() {
    for version in Version::ALL {
        let bed = Bed::bare(signpost_testkit::sandbox_cluster().await).await;
        let direct = Direct { bed, server: Pangolin::of(version).await };
        let _running = start(&direct.bed, &direct.server);
        direct.bed.expose("app", &["app.ns.test"]).await;
        direct.answers("app.ns.test", "/", "app", 80).await;
        direct.settled("app").await;
        direct.bed.patch("app", json!({"spec": {"rules": rules(&["other.ns.test"])}})).await;
        direct.has(&["other.ns.test"]).await;
    }
}

/// A wildcard host where the server has a licence for it, and the refusals where it has none or where it overlaps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wildcard_host_is_exposed_where_the_server_allows_it() {
    use signpost_testkit::pangolin::Options;
    for licensed in [true, false] {
        let bed = Bed::bare(signpost_testkit::sandbox_cluster().await).await;
        let direct = Direct { bed, server: Pangolin::with(Options { licensed, ..Options::default() }).await };
        let mut policy = policy(&direct.bed);
        policy.hosts.wildcards = true;
        let _running = start_with(&direct.bed, policy, Arc::new(client(&direct.server.url(), ORG, Pangolin::KEY)));
        direct.bed.expose("any", &["*.apps.ns.test"]).await;
        direct.bed.expose("plain", &["plain.ns.test"]).await;
        direct.answers("plain.ns.test", "/", "app", 80).await;
        if !licensed {
            let note = direct.bed.event("Warning", "ProviderRejected").await;
            assert!(note.contains("*.apps.ns.test") && note.contains("licen"), "{note}");
            continue;
        }
        direct.answers("shop.apps.ns.test", "/x", "app", 80).await;
        direct.answers("api.apps.ns.test", "/", "app", 80).await;
        assert_eq!(direct.server.get("a.b.apps.ns.test", "/"), Answer::NoRouter, "one label");
        assert_eq!(direct.server.get("apps.ns.test", "/"), Answer::NoRouter);
        direct.settled("any").await;
        direct.server.forget_requests();
        let backend = json!([{"host": "*.apps.ns.test", "http": {"paths": [path("/", "Prefix", "api", 9000)]}}]);
        direct.bed.patch("any", json!({"spec": {"rules": backend}})).await;
        direct.answers("shop.apps.ns.test", "/", "api", 9000).await;
        assert_eq!(direct.server.writes().len(), 1, "{:?}", direct.server.writes());
        // A host below the suffix is refused by the server while the wildcard exists.
        direct.bed.expose("one", &["one.apps.ns.test"]).await;
        let note = direct.bed.event("Warning", "HostConflict").await;
        let owner = format!("*.apps.ns.test of the Ingress {}/any", direct.bed.namespace);
        assert!(note.starts_with("one.apps.ns.test") && note.contains(&owner), "{note}");
        direct.bed.delete("any").await;
        eventually("the wildcard is deleted", PATIENCE, || async {
            let seen = direct.server.get("shop.apps.ns.test", "/");
            if seen == Answer::NoRouter { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}
