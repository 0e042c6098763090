//! Index, schema and Pangolin as plain data. A Pangolin that does not answer is a value, not an error.

pub(crate) mod link;
pub(crate) mod schema;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use signpost_dns::Fqdn;
use signpost_engine::{Job, Touched};
use signpost_exposure::{BaseDomain, Class, Shape as DomainShape};
use signpost_provider_pangolin::{Domain, DomainKind, Listed, PangolinError, Site};

use crate::PangolinSystem;
use crate::index::{Claimant, FoundTunnel, IngressId, Key, tunnel_of};
use crate::plan::api::{ingress_mark, mark_of};
use crate::plan::{ApiView, DOUBT, Memory, Observed, View, Wanted, Wish, recheck, site};

impl PangolinSystem {
    pub(crate) async fn see(&self, job: &Job<Key, ()>, mut memory: Memory) -> Observed {
        if let Some(rate) = self.policy.rate {
            self.pace(rate).await;
        }
        self.metrics.began(&job.key);
        let full = job.touched == Touched::All;
        // The domains of the organisation decide who owns which host, so they come first.
        let lists = self.lists(&job.key, full, &memory).await;
        let (wish, claimant) = match &job.key {
            Key::Sweep => (Wish::Nothing, None),
            Key::Ingress(id) if self.index.is_unreadable(id) => (Wish::Unreadable, None),
            Key::Ingress(id) => self.wish(id),
        };
        let mut view = match (lists, &job.key) {
            (None, Key::Ingress(id)) => self.crd_view(id, claimant.as_deref()).await,
            (None, Key::Sweep) => View::Crd {
                shape: Err(String::new()),
                tunnel: FoundTunnel::None,
                children: BTreeMap::new(),
                handed_over: Vec::new(),
            },
            (Some(Ok(lists)), key) => View::Api(Box::new(self.api_view(key, claimant.as_deref(), lists))),
            (Some(Err(error)), _) => View::Down(error),
        };
        if let View::Crd { tunnel, .. } = &mut view {
            memory.remember_domains(tunnel);
        }
        let present = match &job.key {
            Key::Sweep => None,
            Key::Ingress(id) => self.index.identity(id),
        };
        let doubt = match &job.key {
            Key::Sweep => None,
            Key::Ingress(id) => self.doubt_about(&self.index.claimed(id)),
        };
        Observed { key: job.key.clone(), policy: Arc::clone(&self.policy), full, wish, present, view, memory, doubt }
    }

    /// The request of an Ingress.
    fn wish(&self, id: &IngressId) -> (Wish, Option<Arc<Claimant>>) {
        let Some(claimant) = self.index.claimant(id).filter(|claimant| claimant.is_active()) else {
            return (Wish::Nothing, None);
        };
        if let Some(class) = claimant.class_name.as_deref().filter(|_| claimant.class != Class::EmptyAlias)
            && self.index.is_missing_class(class)
        {
            tracing::warn!(class, "no IngressClass of this name exists; its Ingresses are served without it");
        }
        let wanted = Wanted {
            taken: self.index.taken(&claimant),
            class: self.index.class_to_note(&claimant),
            owned: self.index.owned(id),
            services: self.index.services(&claimant),
            reference: tunnel_of(&claimant, &self.policy),
            claimant: Arc::clone(&claimant),
        };
        (Wish::Ingress(Box::new(wanted)), Some(claimant))
    }

    async fn crd_view(&self, id: &IngressId, claimant: Option<&Claimant>) -> View {
        let children = self.index.children(id);
        let Some(claimant) = claimant else {
            // A deleted Ingress needs neither.
            let (shape, tunnel) = (Err("not needed".to_owned()), FoundTunnel::None);
            return View::Crd { shape, tunnel, children, handed_over: Vec::new() };
        };
        let taken = self.index.taken(claimant);
        let handed_over = taken
            .into_iter()
            .filter(|(host, owner)| self.index.has_child(owner, host.undotted()))
            .map(|(host, _)| host.undotted().to_owned());
        View::Crd {
            shape: self.schema.shape().await,
            tunnel: self.index.tunnel(claimant),
            handed_over: handed_over.collect(),
            children,
        }
    }

    /// What Pangolin has, in direct mode.
    async fn lists(&self, key: &Key, full: bool, memory: &Memory) -> Option<Result<Seen, PangolinError>> {
        let link = self.link.as_ref()?;
        let owner = match self.owner().await {
            Ok(owner) => owner,
            Err(error) => return Some(Err(error)),
        };
        // A comparison, and the sweep, want a list that is not older than half a period.
        let fresh = full || *key == Key::Sweep;
        let mut age = self.policy.resync.filter(|_| fresh).map_or(Duration::MAX, |resync| resync / 2);
        if memory.foreign > 0 {
            // Whether a host is free is asked again before each of these passes; Ingresses that wait share the answer.
            age = age.min(recheck(memory.foreign) / 2);
        }
        if memory.doubt.is_some() {
            age = age.min(DOUBT / 6);
        }
        let read = link.read(age).await;
        Some(read.map(|(domains, sites, resources)| {
            let domains: Arc<[BaseDomain]> = domains.iter().map(base_domain).collect();
            self.index.set_organization(&domains);
            Seen { owner, domains, sites, resources }
        }))
    }

    fn api_view(&self, key: &Key, claimant: Option<&Claimant>, seen: Seen) -> ApiView {
        let Seen { owner, domains, sites, resources } = seen;
        let reference = claimant.map(|claimant| tunnel_of(claimant, &self.policy)).unwrap_or_default();
        let named = self.policy.default_tunnel.is_some()
            || claimant.is_some_and(|claimant| {
                claimant.annotations.options.tunnel.is_some() || matches!(claimant.class, Class::Alias(_))
            });
        let ours = |listed: &&Listed| mark_of(listed, &owner).is_some();
        let owned = |host: &Fqdn| Some((host.clone(), self.index.holder(host)?));
        let owned_hosts = resources.iter().filter(ours).filter_map(|listed| owned(listed.host.as_ref()?)).collect();
        let taken = |host: &Fqdn| Some((host.clone(), self.index.taker(host)?));
        let takers = resources.iter().filter(ours).filter_map(|listed| taken(listed.host.as_ref()?)).collect();
        let marks = match key {
            Key::Sweep => self.index.known().iter().map(|id| ingress_mark(&owner, id)).collect(),
            Key::Ingress(_) => Vec::new(),
        };
        ApiView { site: site(&sites, &reference, named), domains, resources, marks, owned_hosts, takers, owner }
    }

    /// Waits for its turn among so many per second; 0 means no limit.
    pub(crate) async fn pace(&self, rate: u32) {
        let Some(every) = Duration::from_secs(1).checked_div(rate) else { return };
        let at = {
            let mut next = self.next.lock().await;
            let at = (*next).max(tokio::time::Instant::now());
            *next = at + every;
            at
        };
        tokio::time::sleep_until(at).await;
    }
}

/// What was read of Pangolin.
struct Seen {
    owner: String,
    domains: Arc<[BaseDomain]>,
    sites: Arc<[Site]>,
    resources: Arc<[Listed]>,
}

fn base_domain(domain: &Domain) -> BaseDomain {
    BaseDomain {
        name: domain.base.clone(),
        id: Some(domain.id.0.clone()),
        shape: if domain.kind == DomainKind::Cname { DomainShape::One } else { DomainShape::Tree },
        verified: domain.verified,
    }
}
