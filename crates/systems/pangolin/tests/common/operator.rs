//! A model of pangolin-operator, in the two builds that exist: what each does in Pangolin with a PangolinResource, and what it leaves undone.
//!
//! Both create a resource once and never change or delete it, add targets and keep the old ones, and remove their finalizer without a word to
//! Pangolin. They differ in the field of the target, in where the tunnel is, and in how a domain is found.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use signpost_dns::Fqdn;
use signpost_provider_pangolin::{
    Connection, DomainId, NewResource, Pangolin as _, PangolinClient, ResourceId, Secret, SiteId, Target,
    TargetSettings, parse_base_url,
};
use signpost_sandbox::edge::Answer;
use signpost_system_pangolin::Policy;
use signpost_testkit::eventually;
use signpost_testkit::pangolin::{ORG, Pangolin};
use tokio_util::task::AbortOnDropHandle;

use super::bed::{Bed, PATIENCE, rules};
use super::crds::Kind;

const FINALIZER: &str = "resource.pangolin.io/finalizer";

/// Which build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// The first one: `spec.target`, a tunnel beside the resource, a domain by its id alone.
    Upstream,
    /// The other one: `spec.targets`, a tunnel anywhere, a domain that its organisation has.
    Fork,
}

impl Build {
    /// The build that reads objects of this shape.
    pub(crate) fn of(kind: Kind) -> Self {
        match kind {
            Kind::Single => Self::Upstream,
            Kind::Multi => Self::Fork,
        }
    }

    /// The build that finds no target in objects of this shape.
    pub(crate) fn other_than(kind: Kind) -> Self {
        match kind {
            Kind::Single => Self::Fork,
            Kind::Multi => Self::Upstream,
        }
    }
}

struct Model {
    build: Build,
    resources: Api<DynamicObject>,
    tunnels: Api<DynamicObject>,
    organizations: Api<DynamicObject>,
    pangolin: Arc<PangolinClient>,
}

/// Runs the model until the handle is dropped, with an organisation that has the domain `ns.test`, and the tunnel `default`.
pub(crate) async fn run(bed: &Bed, build: Build, server: &Pangolin) -> AbortOnDropHandle<()> {
    organization(bed).await;
    let base = parse_base_url(&server.url()).unwrap();
    let pangolin = PangolinClient::new(&Connection::new(base, ORG, Secret::Value(Pangolin::KEY.into()))).unwrap();
    let model = Model {
        build,
        resources: bed.dynamic("PangolinResource"),
        tunnels: bed.dynamic("PangolinTunnel"),
        organizations: bed.dynamic("PangolinOrganization"),
        pangolin: Arc::new(pangolin),
    };
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            for object in model.resources.list(&ListParams::default()).await.unwrap().items {
                if let Err(why) = model.reconcile(&object).await {
                    let ready =
                        json!([{"type": "Ready", "status": "False", "reason": "ReconcileError", "message": why}]);
                    model.report(&object, json!({"status": "Error", "conditions": ready})).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }))
}

impl Model {
    async fn patch(&self, object: &DynamicObject, patch: Value) {
        // The object may be deleted at any moment.
        let _ = self.resources.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    }

    async fn report(&self, object: &DynamicObject, mut status: Value) {
        status["observedGeneration"] = json!(object.metadata.generation);
        if object.data["status"]["status"] == status["status"]
            && object.data["status"]["observedGeneration"] == status["observedGeneration"]
        {
            return;
        }
        let patch = json!({ "status": status });
        let _ = self.resources.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    }

    async fn reconcile(&self, object: &DynamicObject) -> Result<(), String> {
        if object.metadata.deletion_timestamp.is_some() {
            self.patch(object, json!({"metadata": {"finalizers": null}})).await;
            return Ok(());
        }
        if !object.finalizers().iter().any(|name| name == FINALIZER) {
            self.patch(object, json!({"metadata": {"finalizers": [FINALIZER]}})).await;
            return Ok(());
        }
        let spec = &object.data["spec"];
        if spec["protocol"] != "http" {
            return Err("proxyConfig is missing".to_owned());
        }
        let site = self.site(&spec["tunnelRef"]).await?;
        let mut status = json!({});
        let id = if let Some(id) = object.data["status"]["resourceId"].as_str() {
            ResourceId(id.parse().map_err(|_| "resourceId is not a number")?)
        } else {
            let (domain, full) = self.domain(&spec["httpConfig"]).await?;
            let host = self.host(&domain, spec["httpConfig"]["subdomain"].as_str().unwrap_or_default()).await?;
            let name = spec["name"].as_str().filter(|name| !name.is_empty()).ok_or("name: too small")?.to_owned();
            let new = NewResource { name, domain, host };
            let made = self.pangolin.create_resource(&new).await.map_err(|error| error.to_string())?;
            status["fullDomain"] = json!(full);
            made.id
        };
        status["targetIds"] =
            self.targets(id, site, spec).await?.iter().map(|target| json!(target.id.to_string())).collect();
        status["resourceId"] = json!(id.to_string());
        status["status"] = json!("Ready");
        status["conditions"] = json!([{"type": "Ready", "status": "True", "reason": "ReconcileSuccess"}]);
        self.report(object, status).await;
        Ok(())
    }

    async fn site(&self, reference: &Value) -> Result<SiteId, String> {
        let name = reference["name"].as_str().unwrap_or_default();
        let tunnel = self.tunnels.get(name).await.map_err(|error| error.to_string())?;
        let status = &tunnel.data["status"];
        if status["status"] != "Ready" {
            return Err("the tunnel is not ready".to_owned());
        }
        status["siteId"].as_i64().map(SiteId).ok_or_else(|| "the tunnel has no site".to_owned())
    }

    /// The domain, and the host in the status.
    async fn domain(&self, http: &Value) -> Result<(DomainId, String), String> {
        let subdomain = http["subdomain"].as_str().unwrap_or_default();
        match self.build {
            // Whatever the name of the domain is; and the host in the status is made with a domain of its author.
            Build::Upstream => {
                let id = http["domainId"].as_str().unwrap_or("domain1");
                Ok((DomainId(id.to_owned()), format!("{subdomain}.author.example")))
            }
            Build::Fork => {
                let organization = self.organizations.get("org").await.map_err(|error| error.to_string())?;
                let domains = organization.data["status"]["domains"].as_array().cloned().unwrap_or_default();
                let fits = |domain: &&Value| match http["domainId"].as_str() {
                    Some(id) => domain["domainId"] == id,
                    None => domain["baseDomain"] == http["domainName"],
                };
                let domain = domains.iter().find(fits).ok_or("domain not found in organization")?;
                let (id, base) = (domain["domainId"].as_str().unwrap(), domain["baseDomain"].as_str().unwrap());
                Ok((DomainId(id.to_owned()), format!("{subdomain}.{base}")))
            }
        }
    }

    async fn host(&self, domain: &DomainId, subdomain: &str) -> Result<Fqdn, String> {
        let domains = self.pangolin.domains().await.map_err(|error| error.to_string())?;
        let known =
            domains.iter().find(|known| known.id == *domain).ok_or(format!("Domain with ID {} not found", domain.0))?;
        Ok(known.base.prepend(subdomain).unwrap())
    }

    /// Adds the targets that are missing, by address and port alone: a path is not sent, and an old target is kept.
    async fn targets(&self, id: ResourceId, site: SiteId, spec: &Value) -> Result<Vec<Target>, String> {
        let wanted = match self.build {
            Build::Upstream => vec![spec["target"].clone()],
            Build::Fork => spec["targets"].as_array().cloned().unwrap_or_default(),
        };
        let mut have = self.pangolin.targets(id).await.map_err(|error| error.to_string())?;
        for target in wanted.iter().filter(|target| target.is_object()) {
            let settings = TargetSettings {
                site,
                host: target["ip"].as_str().unwrap().to_owned(),
                port: u16::try_from(target["port"].as_u64().unwrap()).unwrap(),
                method: target["method"].as_str().unwrap().to_owned(),
                enabled: true,
                path: None,
                priority: 100,
                health: None,
            };
            if !have.iter().any(|known| (&known.host, known.port) == (&settings.host, settings.port)) {
                have.push(self.pangolin.create_target(id, &settings).await.map_err(|error| error.to_string())?);
            }
        }
        Ok(have)
    }
}

async fn organization(bed: &Bed) {
    let domains = json!({"domains": [{"domainId": "d-ns", "baseDomain": "ns.test", "verified": true, "type": "ns"}]});
    bed.put("PangolinOrganization", "org", &json!({}), Some(&domains)).await;
    let ready = json!({"status": "Ready", "siteId": 2});
    bed.put("PangolinTunnel", "default", &json!({"organizationRef": {"name": "org"}}), Some(&ready)).await;
}

/// An exposure with a build of pangolin-operator: it is served, a changed host is served, and what is left behind is reported.
pub(crate) async fn operated(bed: &Bed, build: Build) {
    let server = Pangolin::start().await;
    let _operator = run(bed, build, &server).await;
    let _running = bed.start_with(Policy { tunnel_wait: Policy::default().tunnel_wait, ..bed.policy() });
    bed.expose("app", &["app.ns.test"]).await;
    let served = async |host: &str| {
        let expected = Answer::Served(vec![format!("app.{}.svc.cluster.local:80", bed.namespace)]);
        eventually(&format!("{host} is served"), PATIENCE, || async {
            let seen = server.get(host, "/");
            if seen == expected { Ok(()) } else { Err((seen, bed.resources().await, bed.events().await)) }
        })
        .await;
    };
    served("app.ns.test").await;
    let note = bed.event("Normal", "Ready").await;
    assert!(note.contains("app.ns.test"), "{note}");
    let row = server.state().resources.values().next().unwrap().clone();
    assert_eq!((row.name, row.domain.as_str()), (format!("{}/app/app.ns.test", bed.namespace), "d-ns"));
    bed.patch("app", json!({"spec": {"rules": rules(&["new.ns.test"])}})).await;
    served("new.ns.test").await;
    bed.exposes(&["new.ns.test"]).await;
    let note = bed.event("Warning", "StillExposed").await;
    assert!(note.contains(&format!("resource {}", row.id)), "{note}");
    bed.delete("app").await;
    bed.exposes(&[]).await;
    let warnings: Vec<_> = bed.events().await.into_iter().filter(|event| event.0 == "Warning").collect();
    // The first build leaves the login on.
    let login = |reason: &str| build == Build::Upstream && reason == "Unsupported";
    assert!(warnings.iter().all(|event| event.1 == "StillExposed" || login(&event.1)), "{warnings:?}");
}
