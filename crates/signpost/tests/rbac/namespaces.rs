//! Roles in single namespaces instead of a ClusterRole, as `signpost rbac --watch-namespaces` prints them.

use std::sync::Arc;
use std::time::Duration;

use signpost::rbac;
use signpost::systems::SYSTEMS;
use signpost_apis::externaldns;
use signpost_engine::lease::LeaseOptions;
use signpost_engine::{Operator, OperatorOptions};
use signpost_testkit::eventually;
use tokio_util::sync::CancellationToken;

use super::{api, grant, make_shop, pangolin, pangolin_crds};

/// Roles in the watched namespaces suffice for both modes, without a ClusterRole that reads Ingresses or Services anywhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_modes_of_pangolin_work_with_roles_in_their_namespaces_alone() {
    use signpost_system_pangolin::{SPEC, install_api, install_crd};
    let Some(cluster) = signpost_testkit::real_cluster().await else { return };
    cluster.install(&pangolin_crds::crds(pangolin_crds::Kind::Single)).await;
    let client = cluster.client();
    for (variant, rules) in SPEC.variants {
        let (name, direct) = (&format!("signpost-pangolin-{variant}"), *variant == "api");
        let [own, one, two, other] = ["rbac-own", "rbac-one", "rbac-two", "rbac-other"];
        let (own, one) = (cluster.namespace(own).await, cluster.namespace(one).await);
        let (two, other) = (cluster.namespace(two).await, cluster.namespace(other).await);
        // A name of its own: the ClusterRole of another test has the same.
        let account_name = format!("{name}-{own}");
        let spec = signpost_engine::SystemSpec { rules, ..SPEC };
        let places = rbac::Places {
            watched: [one.clone(), two.clone()].into(),
            tunnels: Some(own.clone()).filter(|_| !direct).into_iter().collect(),
        };
        let granted = rbac::manifests_in(&account_name, &own, &places, &[spec]);
        for role in granted.iter().filter(|object| object["kind"] == "ClusterRole") {
            let resources =
                role["rules"].as_array().unwrap().iter().flat_map(|rule| rule["resources"].as_array().unwrap());
            let cluster_scoped = rbac::cluster_scoped(SYSTEMS);
            assert!(resources.clone().all(|one| cluster_scoped.contains(one.as_str().unwrap())), "{role}");
        }
        grant(&client, granted).await;
        for namespace in [&one, &two, &other] {
            make_shop(&client, namespace, &account_name, &format!("{namespace}.rbac.example")).await;
        }
        let user = format!("system:serviceaccount:{own}:{account_name}");
        let account = cluster.client_as(&user, &["system:serviceaccounts", "system:authenticated"]).await;
        let elsewhere = api(&account, &other, "networking.k8s.io", "v1", "Ingress", "ingresses");
        let denied = elsewhere.list(&kube::api::ListParams::default()).await.unwrap_err();
        assert!(matches!(&denied, kube::Error::Api(status) if status.code == 403), "{denied}");
        let lease = LeaseOptions::new(&own, &account_name);
        let mut operator = Operator::new(account, OperatorOptions { lease: Some(lease), ..OperatorOptions::default() });
        let (health, server) = (operator.health(), pangolin());
        let mut policy = signpost_system_pangolin::Policy {
            namespaces: vec![one.clone(), two.clone()],
            tunnel_namespace: Some(own.clone()).filter(|_| !direct),
            namespace: own.clone(),
            ..signpost_system_pangolin::Policy::default()
        };
        account_name.clone_into(&mut policy.class.class);
        policy.hosts.unlisted = true;
        if direct {
            install_api(&mut operator, policy, Arc::new(server.clone()));
        } else {
            install_crd(&mut operator, policy);
        }
        let stop = CancellationToken::new();
        let ended = stop.clone();
        let running = tokio::spawn(async move { operator.run(ended).await.unwrap() });
        for namespace in [&one, &two] {
            let made =
                api(&client, namespace, "tunnel.pangolin.io", "v1alpha1", "PangolinResource", "pangolinresources");
            let host = format!("{namespace}.rbac.example");
            eventually(&format!("{host} is exposed with {name}"), Duration::from_mins(1), || async {
                let children = made.list(&kube::api::ListParams::default()).await.unwrap().items.len();
                let stored = server.stored();
                let served = stored.iter().any(|(row, _)| row.host.as_ref().is_some_and(|of| of.undotted() == host));
                if if direct { served } else { children == 1 } { Ok(()) } else { Err((children, health.checks())) }
            })
            .await;
            let events = api(&client, namespace, "", "v1", "Event", "events");
            eventually("an event", Duration::from_mins(1), || async {
                events.list(&kube::api::ListParams::default()).await.unwrap().items.pop().ok_or("no event")
            })
            .await;
        }
        assert!(health.is_ready(), "{:?}", health.checks());
        assert_eq!(server.stored().len(), if direct { 2 } else { 0 }, "nothing of the third namespace");
        let leases = api(&client, &own, "coordination.k8s.io", "v1", "Lease", "leases");
        assert!(leases.get(&account_name).await.unwrap().data["spec"]["holderIdentity"].is_string());
        stop.cancel();
        running.await.unwrap();
    }
}

/// The resources without a namespace are the ones that the API server reports as such.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scope_of_every_resource_is_the_one_that_the_api_server_reports() {
    let cluster = signpost_testkit::sandbox_cluster().await;
    cluster.install(&signpost::crds::all()).await;
    cluster.install(&[externaldns::crd(), signpost_apis::istio::crd()]).await;
    cluster.install(&pangolin_crds::crds(pangolin_crds::Kind::Single)).await;
    let found = kube::discovery::Discovery::new(cluster.client()).run().await.unwrap();
    let (mut checked, cluster_scoped) = (0, rbac::cluster_scoped(SYSTEMS));
    for rule in rbac::rules(SYSTEMS) {
        for resource in rule.resources.iter().filter_map(|resource| resource.split('/').next()) {
            let group = found.groups().find(|group| group.name() == rule.group);
            let known = group
                .and_then(|group| group.resources_by_stability().into_iter().find(|(kind, _)| kind.plural == resource));
            // Kinds of others are not installed here; all of them have a namespace.
            let Some((_, capabilities)) = known else {
                assert!(!cluster_scoped.contains(resource), "{resource}");
                continue;
            };
            let cluster = capabilities.scope == kube::discovery::Scope::Cluster;
            assert_eq!(cluster_scoped.contains(resource), cluster, "{resource} of {}", rule.group);
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
}
