//! PangolinResources: what may be written into them, and which to apply and to delete.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use signpost_engine::{Identity, RetryClass};
use signpost_exposure::{BackendScheme, Matching, Names, Route, cut_label};
use signpost_planning::Reason;

use crate::index::{
    CLASS_ANNOTATION, ChildFacts, ChildState, HOST_ANNOTATION, IngressId, NAME_LABEL, NAMESPACE_LABEL, UID_LABEL,
};
use crate::plan::exposure::{Address, Exposure, Exposures};
use crate::plan::refusals::{About, HostRefusal};
use crate::plan::{Memory, Note};
use crate::settings::Policy;

/// Which fields PangolinResource has in this cluster.
#[allow(clippy::struct_excessive_bools)] // One answer for each field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// `spec.targets`; `spec.target` otherwise.
    pub targets: bool,
    /// `path`, `pathMatchType` and `priority` of a target.
    pub target_paths: bool,
    /// `spec.name`.
    pub name: bool,
    /// `spec.tunnelRef.namespace`.
    pub tunnel_namespace: bool,
    /// `spec.httpConfig.domainId`.
    pub domain_id: bool,
    /// `spec.httpConfig.sso` and `blockAccess`.
    pub access: bool,
    /// An empty `spec.httpConfig.subdomain`.
    pub apex: bool,
}

impl Shape {
    /// The shape with one target.
    pub const SINGLE: Self = Self {
        targets: false,
        target_paths: false,
        name: true,
        tunnel_namespace: false,
        domain_id: true,
        access: false,
        apex: false,
    };
    /// The shape with several targets.
    pub const MULTI: Self =
        Self { targets: true, target_paths: true, tunnel_namespace: true, access: true, ..Self::SINGLE };

    /// Reads the schema of PangolinResource, as the API server declares it.
    pub fn read(schema: &Value) -> Result<Self, String> {
        let spec = &schema["properties"]["spec"]["properties"];
        let has = |path: &[&str]| !path.iter().fold(spec, |at, name| &at[*name]).is_null();
        let (targets, target) = (has(&["targets"]), has(&["target"]));
        if !targets && !target {
            return Err("its schema has neither spec.target nor spec.targets; set PIC_CRD_DIALECT".to_owned());
        }
        let items = ["targets", "items", "properties"];
        let in_target = |name: &str| has(&[&items[..], &[name]].concat());
        let subdomain = &spec["httpConfig"]["properties"]["subdomain"];
        Ok(Self {
            targets,
            target_paths: ["path", "pathMatchType", "priority"].into_iter().all(in_target),
            name: has(&["name"]),
            tunnel_namespace: has(&["tunnelRef", "properties", "namespace"]),
            domain_id: has(&["httpConfig", "properties", "domainId"]),
            access: ["sso", "blockAccess"].iter().all(|name| has(&["httpConfig", "properties", name])),
            apex: subdomain["minLength"].as_u64().unwrap_or(0) == 0,
        })
    }
}

/// The plan for PangolinResources.
#[derive(Debug, Default)]
pub(crate) struct CrdPlan {
    /// To apply: name, host and content.
    pub(crate) apply: Vec<(String, String, Value)>,
    /// To delete, once everything is applied.
    pub(crate) delete: Vec<DoomedChild>,
    /// The reference to the Ingress.
    pub(crate) owner: Option<OwnerReference>,
    /// How many there are.
    pub(crate) managed: usize,
    /// Whether a new endpoint asks for a login although its Ingress does not ask for one.
    pub(crate) login: bool,
}

/// A PangolinResource to delete.
#[derive(Debug)]
pub(crate) struct DoomedChild {
    pub(crate) name: String,
    /// The UID of its Ingress.
    pub(crate) uid: String,
    pub(crate) host: String,
    /// Whether the Ingress still names the host, and an older one has it.
    pub(crate) handed_over: bool,
    /// What is reported when it is deleted: the deletion may be called off before.
    pub(crate) leftover: Option<Note>,
}

/// The result of the plan beside the actions.
pub(crate) struct Judged {
    pub(crate) plan: CrdPlan,
    pub(crate) notes: Vec<Note>,
    pub(crate) refusals: Vec<HostRefusal>,
    /// Hosts that pangolin-operator reports as exposed.
    pub(crate) ready: Vec<String>,
    /// When to check again.
    pub(crate) again: Option<RetryClass>,
}

/// Everything that the plan is made from.
pub(crate) struct Input<'a> {
    pub(crate) id: &'a IngressId,
    pub(crate) identity: Option<&'a Identity>,
    pub(crate) policy: &'a Policy,
    pub(crate) exposures: &'a Exposures,
    pub(crate) shape: Option<Shape>,
    /// Namespace and name of the tunnel.
    pub(crate) tunnel: Option<(&'a str, &'a str)>,
    pub(crate) options: Option<&'a signpost_exposure::Options>,
    /// The class to note.
    pub(crate) class: Option<&'a str>,
    pub(crate) children: &'a BTreeMap<String, ChildFacts>,
    pub(crate) handed_over: &'a [String],
    pub(crate) now: Timestamp,
}

/// Decides about the children of an Ingress.
pub(crate) fn plan(input: &Input<'_>, memory: &mut Memory) -> Judged {
    let Input { id, identity, exposures, shape, children, .. } = *input;
    let mut plan =
        CrdPlan { owner: identity.map(Identity::owner_reference), managed: children.len(), ..CrdPlan::default() };
    let mut keep: BTreeSet<String> = BTreeSet::new();
    let object = |host: &str| object_name(id, identity, children, host);
    if let (Some(shape), Some(tunnel), Some(options), false) = (shape, input.tunnel, input.options, exposures.blocked) {
        for exposure in &exposures.list {
            let content = content(exposure, shape, tunnel, options, input);
            let host = exposure.split.host.undotted().to_owned();
            plan.apply.push((object(&host), host, content));
        }
    }
    // pangolin-operator creates endpoints with single sign-on, and switches it off only where there is a field for it.
    plan.login = input.options.is_some_and(|options| !options.sso) && shape.is_some_and(|shape| !shape.access);
    keep.extend(plan.apply.iter().map(|(name, ..)| name.clone()));
    keep.extend(exposures.waiting.iter().map(|host| object(host)));
    // A host that an older Ingress owns stays until that one has it.
    let kept = exposures.lost.iter().filter(|host| !input.handed_over.contains(host));
    keep.extend(kept.map(|host| object(host)));
    let mut known: BTreeMap<String, String> =
        plan.apply.iter().map(|(name, host, _)| (name.clone(), host.clone())).collect();
    known.extend(exposures.waiting.iter().chain(&exposures.lost).map(|host| (object(host), host.clone())));
    // A child of a deleted Ingress of the same name is deleted first; its end touches this Ingress again.
    let uid = identity.map(|identity| &*identity.uid);
    let replaced = |name: &String| children.get(name).is_some_and(|child| uid.is_some_and(|uid| uid != child.uid));
    plan.apply.retain(|(name, ..)| !replaced(name));
    if !exposures.blocked {
        for (name, child) in children {
            if (!keep.contains(name) || replaced(name)) && !child.deleting {
                let host = child.host.clone().unwrap_or_default();
                let handed_over = exposures.lost.contains(&host) && !replaced(name);
                let (name, uid) = (name.clone(), child.uid.clone());
                plan.delete.push(DoomedChild { name, uid, host, handed_over, leftover: None });
            }
        }
    }
    let mut judged = Judged { plan, notes: Vec::new(), refusals: Vec::new(), ready: Vec::new(), again: None };
    leaving(input, &known, &mut judged);
    if let (Some(shape), Some(options)) = (shape, input.options) {
        let h2c =
            exposures.list.iter().flat_map(|one| &one.routes).any(|route| route.backend.scheme == BackendScheme::H2c);
        judged.refusals.extend(ignored(options, shape, h2c).filter(|_| !exposures.list.is_empty()));
    }
    reflect(input, &known, memory, &mut judged);
    judged
}

/// The name of the PangolinResource for a host. A child that has the host already keeps its name: pangolin-ingress-controller makes names of
/// the host in the rule, which annotations may override. pangolin-operator never changes a host, so a name of another host is not used.
fn object_name(
    id: &IngressId,
    identity: Option<&Identity>,
    children: &BTreeMap<String, ChildFacts>,
    host: &str,
) -> String {
    let namespace = id.namespace.as_deref().unwrap_or_default();
    let usual = Names::of("", namespace, &id.name, host).object;
    let is_own = |child: &ChildFacts| identity.is_none_or(|identity| *identity.uid == *child.uid);
    let has_host = |child: &ChildFacts| child.host.as_deref() == Some(host);
    if children.get(&usual).is_some_and(|child| child.host.is_none() || has_host(child)) {
        return usual;
    }
    let mut kept = children.iter().filter(|(_, child)| is_own(child) && has_host(child) && !child.deleting);
    match kept.next() {
        Some((name, _)) => name.clone(),
        None if children.contains_key(&usual) => Names::of("", namespace, &id.name, &format!("{host}/2")).object,
        None => usual,
    }
}

/// A child that is being deleted, and does not end: its host is not exposed again before.
fn leaving(input: &Input<'_>, known: &BTreeMap<String, String>, judged: &mut Judged) {
    let wait = input.policy.tunnel_wait;
    // A host that an older Ingress has is not exposed again by this one.
    for (name, host) in known.iter().filter(|(_, host)| !input.exposures.lost.contains(*host)) {
        let Some(since) = input.children.get(name).and_then(|child| child.leaving) else { continue };
        if input.now.duration_since(since).unsigned_abs() < wait {
            // As a rule it is over in a moment; an Ingress that is deleted may be seen after its child.
            judged.again = Some(RetryClass::Fixed(wait));
            continue;
        }
        let message = format!(
            "PangolinResource {name} is being deleted, so {host} is exposed again only afterwards; start pangolin-operator, or remove the finalizer of the resource"
        );
        judged.refusals.push(About::host(host).refuse(Reason::ResourceFailed, message));
    }
}

/// Annotations that a PangolinResource of this shape cannot express.
fn ignored(options: &signpost_exposure::Options, shape: Shape, h2c: bool) -> Option<HostRefusal> {
    let names = [
        ("paused", options.paused),
        ("block-access", options.block_access && !shape.access),
        ("ssl", !options.ssl),
        ("sticky-session", options.sticky_session),
        ("tls-server-name", options.tls_server_name.is_some()),
        ("set-host-header", options.set_host_header.is_some()),
        ("headers", !options.headers.is_empty()),
        ("healthcheck-enabled", options.check.is_some()),
        ("backend-scheme h2c", h2c),
    ];
    let names: Vec<&str> = names.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    let message = "have no effect, because the PangolinResource of this cluster has no field for them; set them in Pangolin, or use PIC_MODE=api";
    let text = format!("{}: they {message}", names.join(", "));
    (!names.is_empty()).then(|| About::NoHost.refuse(Reason::Unsupported, text))
}

/// Compares what pangolin-operator reports with what it reported before.
fn reflect(input: &Input<'_>, known: &BTreeMap<String, String>, memory: &mut Memory, judged: &mut Judged) {
    let multi = input.shape.is_some_and(|shape| shape.targets);
    let mut now = BTreeMap::new();
    for (name, child) in input.children {
        let host = known.get(name).or(child.host.as_ref()).cloned().unwrap_or_else(|| name.clone());
        // A child may be ready before its first pass; then it is a change if it is one that is wanted.
        let before = memory.children.get(name);
        let was_good = before.map_or(!known.contains_key(name), |(_, state, _)| is_good(state, &host, multi));
        match &child.state {
            ChildState::Failed(why) if known.contains_key(name) => {
                let message = format!("pangolin-operator cannot expose {host}: {why}; see PangolinResource {name}");
                judged.refusals.push(About::host(&host).refuse(Reason::ResourceFailed, message));
            }
            ChildState::Ready { targets: false, .. } if known.contains_key(name) => {
                let message = format!(
                    "PangolinResource {name} is Ready without a target, so {host} answers nothing: the CRD does not fit this build of pangolin-operator; apply the CRDs of that build"
                );
                judged.refusals.push(About::host(&host).refuse(Reason::ResourceWithoutTargets, message));
            }
            ChildState::Ready { host: Some(other), .. } if multi && known.contains_key(name) && *other != host => {
                let message =
                    format!("PangolinResource {name} is exposed as {other} instead of {host}; delete it in Pangolin");
                judged.refusals.push(About::host(&host).refuse(Reason::ResourceWrongHost, message));
            }
            ChildState::Ready { .. } => {
                if known.contains_key(name) {
                    judged.ready.push(host.clone());
                }
                // The state at a start is not a change.
                if memory.seen && !was_good {
                    judged.notes.push(Note::normal("Ready", format!("{host} is exposed by PangolinResource {name}")));
                }
            }
            ChildState::Waiting | ChildState::Failed(_) => {}
        }
        // A new child of the name does not end what the one before it has left in Pangolin.
        let earlier = memory.children.get(name).and_then(|(_, _, resource)| resource.clone());
        now.insert(name.clone(), (host, child.state.clone(), child.resource_id.clone().or(earlier)));
    }
    for (name, (host, _, resource)) in &memory.children {
        let wanted = known.contains_key(name) || input.exposures.blocked;
        // The endpoint of a host that was handed over has been reported.
        let reported = input.exposures.lost.contains(host) && memory.left.contains(name);
        if wanted && !reported && resource.is_some() && !now.contains_key(name) {
            now.insert(name.clone(), (host.clone(), ChildState::Waiting, resource.clone()));
        }
    }
    if !input.exposures.blocked {
        leftovers(input, known, memory, &now, judged);
    }
    memory.children = now;
    memory.seen = true;
}

/// Whether pangolin-operator reports that a host is exposed, with a target. Only one build reports the host as it is.
fn is_good(state: &ChildState, host: &str, multi: bool) -> bool {
    match state {
        ChildState::Ready { host: other, targets } => {
            *targets && (!multi || other.as_deref().is_none_or(|other| other == host))
        }
        ChildState::Waiting | ChildState::Failed(_) => false,
    }
}

/// The endpoint that pangolin-operator leaves in Pangolin after a child is deleted. It is reported once.
fn leftovers(
    input: &Input<'_>,
    known: &BTreeMap<String, String>,
    memory: &mut Memory,
    now: &BTreeMap<String, (String, ChildState, Option<String>)>,
    judged: &mut Judged,
) {
    let mut left = BTreeSet::new();
    let before = memory.children.iter().filter(|(name, _)| !now.contains_key(*name));
    for (name, (host, _, resource)) in before.chain(now) {
        let planned = judged.plan.delete.iter_mut().find(|doomed| doomed.name == *name);
        let handed_over = planned.as_ref().is_some_and(|doomed| doomed.handed_over);
        if known.contains_key(name) && !handed_over {
            // While the child of a host that was handed over is being deleted, its endpoint counts as reported.
            let leaving = input.children.get(name).is_some_and(|child| child.deleting);
            if leaving && input.exposures.lost.contains(host) && memory.left.contains(name) {
                left.insert(name.clone());
            }
            continue;
        }
        let leaving = planned.is_some() || input.children.get(name).is_none_or(|child| child.deleting);
        let Some(resource) = resource.as_ref().filter(|_| leaving) else { continue };
        if !memory.left.contains(name) {
            // pangolin-operator may have taken it over for the next owner.
            let unless = if handed_over { ", unless another PangolinResource has this id in its status" } else { "" };
            let note = format!(
                "PangolinResource {name} is deleted, but pangolin-operator leaves {host} in Pangolin as resource {resource}; delete it in the dashboard{unless}"
            );
            let note = Note::warning(Reason::StillExposed, note);
            if let Some(planned) = planned {
                planned.leftover = Some(note);
                continue;
            }
            judged.notes.push(note);
        }
        if input.children.contains_key(name) {
            left.insert(name.clone());
        }
    }
    memory.left = left;
}

fn content(
    exposure: &Exposure,
    shape: Shape,
    (tunnel_namespace, tunnel): (&str, &str),
    options: &signpost_exposure::Options,
    input: &Input<'_>,
) -> Value {
    let Exposure { split, names, routes } = exposure;
    let uid = input.identity.map(|identity| identity.uid.to_string()).unwrap_or_default();
    let namespace = input.id.namespace.as_deref().unwrap_or_default();
    let mut spec = json!({
        "enabled": true,
        "protocol": "http",
        "tunnelRef": { "name": tunnel },
        "httpConfig": { "domainName": split.domain.undotted(), "subdomain": split.subdomain },
    });
    if shape.name {
        spec["name"] = json!(names.title);
    }
    if shape.tunnel_namespace {
        spec["tunnelRef"]["namespace"] = json!(tunnel_namespace);
    }
    if shape.domain_id
        && let Some(id) = &split.domain_id
    {
        spec["httpConfig"]["domainId"] = json!(id);
    }
    if shape.access {
        spec["httpConfig"]["sso"] = json!(options.sso);
        spec["httpConfig"]["blockAccess"] = json!(options.block_access);
    }
    let paths = shape.target_paths && input.policy.crd_paths;
    if shape.targets {
        spec["targets"] = routes.iter().map(|route| target(route, paths)).collect();
    } else if let Some(root) = routes.iter().find(|route| route.path.is_none()) {
        spec["target"] = target(root, false);
    }
    let mut annotations = json!({ HOST_ANNOTATION: split.host.undotted() });
    if let Some(class) = input.class {
        annotations[CLASS_ANNOTATION] = json!(class);
    }
    json!({
        "metadata": {
            "labels": {
                UID_LABEL: uid,
                NAME_LABEL: cut_label(&input.id.name),
                NAMESPACE_LABEL: namespace,
            },
            "annotations": annotations,
        },
        "spec": spec,
    })
}

fn target(route: &Route<Address>, paths: bool) -> Value {
    let Address { host, port, scheme } = &route.backend;
    // The field has no value for HTTP/2 without TLS.
    let scheme = if *scheme == BackendScheme::H2c { BackendScheme::Http } else { *scheme };
    let mut target = json!({ "ip": host, "port": port, "method": scheme.as_str() });
    if paths && let Some((matching, path)) = &route.path {
        target["path"] = json!(path);
        target["pathMatchType"] = json!(match matching {
            Matching::Exact => "exact",
            Matching::Regex => "regex",
        });
        target["priority"] = json!(route.priority);
    }
    target
}
