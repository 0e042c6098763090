//! Writes to Pangolin, in an order that never routes a request to a Service that neither the old nor the new Ingress names.
//!
//! New routes come first, the most specific one before the others. Then changed ones, in place. Then the old ones are deleted, the least
//! specific one first. A resource that becomes public does so after its targets are right; one that becomes protected, before.
//! New headers come after the targets that they are for.

use std::sync::PoisonError;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use signpost_dns::Fqdn;
use signpost_engine::{ObjectWrite, RetryClass};
use signpost_planning::Reason;
use signpost_provider_pangolin::{
    Deleted, ErrorClass, NiceId, Pangolin, PangolinError, ResourceId, ResourceSettings, Stored, Target, TargetSettings,
};

use super::{ApplyResult, What};
use crate::index::{APPLIED_ANNOTATION, Claimant, Key};
use crate::plan::DOUBT;
use crate::plan::api::{ApiPlan, Doomed, Ensure, Protect};
use crate::{NAME, PangolinSystem};

/// The longest time for the writes of one pass, which is less than the deadline of the whole pass: what is done is remembered.
const LONGEST: Duration = Duration::from_mins(4);
/// No digest is empty: the next pass compares everything.
const NOTHING: Option<(String, Timestamp)> = Some((String::new(), Timestamp::UNIX_EPOCH));

/// What became of a resource that is not wanted.
enum Removed {
    /// It is deleted.
    Done,
    /// There is nothing of ours to delete.
    Absent,
    /// Another Ingress takes it over.
    HandedOver,
    /// Its own Ingress wants it again.
    WantedAgain,
}

/// The changes of the targets of a resource.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TargetChanges {
    /// To create, in order.
    pub(crate) create: Vec<TargetSettings>,
    /// To change in place.
    pub(crate) update: Vec<(Target, TargetSettings)>,
    /// To delete, in order.
    pub(crate) delete: Vec<Target>,
    /// As they should be.
    pub(crate) keep: Vec<Target>,
}

/// Compares targets with what is wanted.
pub(crate) fn target_changes(current: &[Target], wanted: &[TargetSettings]) -> TargetChanges {
    let mut rest: Vec<Target> = current.to_vec();
    let mut changes = TargetChanges::default();
    let mut open = Vec::new();
    for settings in wanted {
        match rest.iter().position(|target| settings.match_target(target)) {
            Some(at) => changes.keep.push(rest.remove(at)),
            None => open.push(settings.clone()),
        }
    }
    for settings in open {
        match rest.iter().position(|target| same_route(&settings, target)) {
            Some(at) => changes.update.push((rest.remove(at), settings)),
            None => changes.create.push(settings),
        }
    }
    if let ([only], [_], true) = (&rest[..], &changes.create[..], changes.update.is_empty()) {
        // One path instead of another: one change in place.
        let settings = changes.create.remove(0);
        changes.update.push((only.clone(), settings));
        rest.clear();
    }
    changes.create.sort_by_key(|settings| std::cmp::Reverse(settings.priority));
    rest.sort_by_key(|target| target.priority.unwrap_or(100));
    changes.delete = rest;
    changes
}

/// Whether there is a target that is changed or deleted.
fn has_unwanted(current: &[Target], wanted: &[TargetSettings]) -> bool {
    target_changes(current, wanted).keep.len() < current.len()
}

/// Whether a target is for the path that is wanted.
fn same_route(settings: &TargetSettings, target: &Target) -> bool {
    let wanted = settings.path.as_ref().map_or(("", ""), |path| (path.text(), path.matching().as_str()));
    wanted == (target.path.as_deref().unwrap_or_default(), target.matching.as_deref().unwrap_or_default())
}

impl PangolinSystem {
    /// Returns the hosts that Pangolin does not let it have.
    pub(super) async fn apply_resources(&self, plan: ApiPlan, blocked: bool, applied: &mut ApplyResult) -> Vec<Fqdn> {
        let ApiPlan { ensure, delete, protect, digest, noted, restored, managed, paused, left } = plan;
        let Some(link) = &self.link else { return Vec::new() };
        for host in &left {
            self.index.leave(host, &applied.key);
        }
        let until = tokio::time::Instant::now() + LONGEST;
        let pangolin = &*link.pangolin;
        (applied.paused, applied.noted) = (paused > 0, noted);
        if !blocked {
            applied.managed = managed;
        }
        // The digest of a refused Ingress is not written again at the end.
        if blocked && !protect.is_empty() && applied.noted.is_some() && !self.erase_digest(applied).await {
            return Vec::new();
        }
        if !self.protect_all(pangolin, protect, applied).await {
            applied.forget_unmade(&ensure);
            return Vec::new();
        }
        // A digest that is the wanted one already stays true while what it names is compared and repaired.
        let changes =
            applied.noted.as_deref() != Some(&*digest) && ensure.iter().any(|ensure| ensure.current.is_some());
        if (changes || restored) && applied.noted.is_some() && !self.erase_digest(applied).await {
            applied.forget_unmade(&ensure);
            return Vec::new();
        }
        applied.read = !ensure.is_empty();
        let before = applied.refusals.len();
        let (complete, refused) = self.ensure_all(pangolin, ensure, until, applied).await;
        if !complete || !refused.is_empty() {
            applied.memory.applied = NOTHING;
        }
        if !complete {
            // Not when the pass only ends early: the next one follows at once.
            if applied.refusals.len() - before > refused.len() {
                applied.stay_public(&delete);
            }
            return refused;
        }
        if !blocked && refused.is_empty() && !digest.is_empty() {
            applied.digest = Some(digest);
        }
        self.remove_all(pangolin, delete, until, applied).await;
        refused
    }

    /// Makes resources stricter, until the server itself fails. Returns whether all were tried.
    async fn protect_all(&self, pangolin: &dyn Pangolin, protect: Vec<Protect>, applied: &mut ApplyResult) -> bool {
        for protect in protect {
            applied.memory.known.remove(&protect.id);
            applied.memory.applied = NOTHING;
            if let Err(error) = self.protect(pangolin, &protect).await {
                self.failed(&protect.host, &error, applied);
                if error.concerns_server() {
                    return false;
                }
            }
        }
        true
    }

    /// Makes sure of resources, one after the other, until the server itself fails. Returns whether each was tried to its end, and the hosts
    /// that Pangolin refuses; these do not delay the deletion of unwanted resources.
    async fn ensure_all(
        &self,
        pangolin: &dyn Pangolin,
        ensure: Vec<Ensure>,
        until: tokio::time::Instant,
        applied: &mut ApplyResult,
    ) -> (bool, Vec<Fqdn>) {
        let (mut complete, mut refused) = (true, Vec::new());
        let (all, mut rest) = (ensure.len(), ensure.into_iter());
        while let Some(ensure) = rest.next() {
            // The first one is always made, so that an Ingress that changes all the time is exposed.
            let changed = rest.len() + 1 < all && self.has_changed(applied);
            if changed || tokio::time::Instant::now() > until {
                // What is done so far is remembered; the rest is done in the next pass.
                applied.again = Some(RetryClass::Now);
                applied.forget_unmade(&[ensure]);
                applied.forget_unmade(rest.as_slice());
                return (false, refused);
            }
            let host = ensure.settings.host.clone();
            let (current, served, overlap) = (ensure.current, ensure.served, ensure.overlap.clone());
            let ensured = self.ensure(pangolin, ensure, applied).await;
            if self.is_handed_over(&applied.key, host.undotted()) {
                // Its owner may have found it as wanted before this pass wrote to it.
                self.index.overwritten(&host, &applied.key);
            }
            let Err(error) = ensured else { continue };
            let name = host.undotted();
            if let Some(id) = current {
                // The known state may be wrong.
                applied.memory.known.remove(&id);
            }
            if !served {
                applied.drop_host(name);
            }
            if matches!(
                error,
                PangolinError::NotFound { .. } | PangolinError::NiceIdTaken { .. } | PangolinError::HostTaken { .. }
            ) {
                pangolin.forget();
            }
            self.failed(name, &error, applied);
            if let (PangolinError::HostTaken { .. }, Some((other, owner))) = (&error, overlap) {
                applied.overlapping(name, &other, &owner);
            }
            match error.class() {
                ErrorClass::Object => refused.push(host),
                ErrorClass::Transient | ErrorClass::Throttled(_) | ErrorClass::Settings => complete = false,
            }
            if error.concerns_server() {
                applied.forget_unmade(rest.as_slice());
                break;
            }
        }
        (complete, refused)
    }

    async fn remove_all(
        &self,
        pangolin: &dyn Pangolin,
        delete: Vec<Doomed>,
        until: tokio::time::Instant,
        applied: &mut ApplyResult,
    ) {
        let mut down = None;
        for doomed in delete {
            if tokio::time::Instant::now() > until {
                applied.again = Some(RetryClass::Now);
                return;
            }
            applied.memory.known.remove(&doomed.id);
            let removed = match &down {
                None => self.remove(pangolin, &applied.key, applied.asked.as_deref(), &doomed).await,
                // The server is not asked again; each host that stays public is reported.
                Some(error) => Err(PangolinError::clone(error)),
            };
            match removed {
                Ok(Removed::WantedAgain) => applied.again = Some(RetryClass::Now),
                Ok(removed) => {
                    applied.memory.exposed.remove(&doomed.host);
                    match (removed, Fqdn::parse(&doomed.host)) {
                        (Removed::Done, _) => applied.changed(What::Deleted, &doomed.host, doomed.id.to_string()),
                        (Removed::HandedOver, Ok(host)) => self.index.leave(&host, &applied.key),
                        _ => {}
                    }
                }
                Err(error) => {
                    let before = applied.refusals.len();
                    if down.is_none() {
                        self.failed(&doomed.host, &error, applied);
                        if !self.writer.may_write() {
                            return;
                        }
                    } else {
                        applied.refused_by_pangolin(&doomed.host, &error);
                    }
                    let refused = applied.refusals.get_mut(before).filter(|_| !doomed.twice);
                    if let Some(refusal) = refused.map(|refused| &mut refused.refusal) {
                        refusal.reason = Reason::StillExposed;
                        refusal.message = format!("{} stays public until it can be deleted: {error}", doomed.host);
                        applied.memory.left.insert(doomed.host);
                    }
                    down = down.or_else(|| Some(error).filter(PangolinError::concerns_server));
                }
            }
        }
    }

    /// Notes a write that failed. Whoever owns its host looks at it again, if it may still have its effect.
    fn failed(&self, host: &str, error: &PangolinError, applied: &mut ApplyResult) {
        if error.is_ambiguous() {
            applied.unsure = true;
            let now = tokio::time::Instant::now();
            let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
            doubts.retain(|_, at| now.duration_since(*at) < DOUBT);
            doubts.insert(host.to_owned(), now);
            drop(doubts);
            if let Ok(host) = Fqdn::parse(host) {
                self.index.touch_holder(&host, &applied.key);
            }
        }
        if !self.writer.may_write() {
            // Another replica goes on; nothing is wrong with Pangolin.
            applied.again = Some(RetryClass::Transient);
            return;
        }
        if let Some(link) = self.link.as_ref().filter(|_| error.concerns_server()) {
            link.note(error);
        }
        applied.refused_by_pangolin(host, error);
    }

    /// How long ago a write to one of these hosts was sent whose effect is not known; [`DOUBT`] where everything is to be read now.
    pub(crate) fn doubt_about(&self, hosts: &[Fqdn]) -> Option<Duration> {
        let overwritten = self.index.take_overwritten(hosts).then_some(DOUBT);
        let doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        let ages = hosts.iter().filter_map(|host| doubts.get(host.undotted())).map(tokio::time::Instant::elapsed);
        ages.min().filter(|age| *age < DOUBT).or(overwritten)
    }

    /// Removes the digest from the Ingress before something is changed that the list does not show: after a crash, what is there is read.
    async fn erase_digest(&self, applied: &mut ApplyResult) -> bool {
        let Some(identity) = &applied.identity else { return true };
        // The class that is noted beside it stays: it may be all that makes the Ingress ours.
        let class = applied.classes.as_ref().and_then(|(class, _)| class.as_ref());
        let erased = json!({ "annotations": { APPLIED_ANNOTATION: class.map(|class| format!("@{class}")) } });
        match self.writer.write(&ObjectWrite::metadata(identity, erased).by_system(NAME)).await {
            Ok(_) => {
                applied.noted = None;
                true
            }
            Err(error) => {
                applied.fail(error.to_string(), (&error).into());
                false
            }
        }
    }

    /// Makes a resource stricter, and leaves everything else of it as it is.
    async fn protect(&self, pangolin: &dyn Pangolin, protect: &Protect) -> Result<(), PangolinError> {
        let _turn = self.turn(&protect.host).await;
        let resource = pangolin.resource(protect.id).await?;
        let missing = || PangolinError::NotFound { what: format!("resource {} with a mark of ours", protect.id) };
        if ![&resource.nice_id, &resource.name].contains(&&protect.mark) {
            return Err(missing());
        }
        let settings = ResourceSettings {
            nice_id: NiceId::parse(&resource.nice_id).map_err(|_| missing())?,
            name: resource.name.clone(),
            domain: resource.domain.clone().ok_or_else(missing)?,
            host: resource.host.clone().ok_or_else(missing)?,
            enabled: resource.enabled && !protect.paused,
            ssl: resource.ssl,
            sso: protect.sso || resource.sso.unwrap_or(true),
            block_access: protect.block_access || resource.block_access,
            sticky_session: resource.sticky_session,
            tls_server_name: resource.tls_server_name.clone(),
            set_host_header: resource.set_host_header.clone(),
            headers: resource.headers.clone(),
        };
        self.may_write()?;
        pangolin.update_resource(&resource, &settings).await.map(drop)
    }

    /// Waits until nobody else works on a host: one Ingress may hand it over to another.
    async fn turn(&self, host: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            turns.retain(|_, turn| std::sync::Arc::strong_count(turn) > 1);
            std::sync::Arc::clone(turns.entry(host.to_owned()).or_default())
        };
        turn.lock_owned().await
    }

    /// Whether a host is another Ingress's by now.
    fn is_handed_over(&self, key: &Key, host: &str) -> bool {
        let taker = signpost_dns::Fqdn::parse(host).ok().and_then(|host| self.index.taker(&host));
        taker.is_some_and(|taker| *key != Key::Ingress(taker))
    }

    /// Whether the Ingress asks for something else than this pass does: perhaps for stricter access, which does not wait for slow answers.
    fn has_changed(&self, applied: &ApplyResult) -> bool {
        let (Key::Ingress(id), Some(asked)) = (&applied.key, &applied.asked) else { return false };
        self.index.claimant(id).is_none_or(|now| !asked.asks_the_same(&now))
    }

    /// Why a resource is not deleted although that was planned: the Ingresses may have changed since.
    fn kept(&self, key: &Key, asked: Option<&Claimant>, doomed: &Doomed) -> Option<Removed> {
        if let Key::Ingress(id) = key
            && self.index.is_wanted_again(id, &doomed.host, asked)
        {
            return Some(Removed::WantedAgain);
        }
        (!doomed.twice && self.is_handed_over(key, &doomed.host)).then_some(Removed::HandedOver)
    }

    /// Deletes a resource, if it still carries the mark and its host is nobody's by now.
    async fn remove(
        &self,
        pangolin: &dyn Pangolin,
        key: &Key,
        asked: Option<&Claimant>,
        doomed: &Doomed,
    ) -> Result<Removed, PangolinError> {
        let _turn = self.turn(&doomed.host).await;
        if let Some(kept) = self.kept(key, asked, doomed) {
            return Ok(kept);
        }
        let resource = match pangolin.resource(doomed.id).await {
            Ok(resource) => resource,
            Err(PangolinError::NotFound { .. }) => {
                // Deleted by another one: the list is not current.
                pangolin.forget();
                return Ok(Removed::Absent);
            }
            Err(error) => return Err(error),
        };
        if ![&resource.nice_id, &resource.name].contains(&&doomed.mark) {
            pangolin.forget();
            return Ok(Removed::Absent);
        }
        // The answer may have taken long.
        if let Some(kept) = self.kept(key, asked, doomed) {
            return Ok(kept);
        }
        self.may_write()?;
        let deleted = pangolin.delete_resource(doomed.id).await?;
        Ok(if deleted == Deleted::Done { Removed::Done } else { Removed::Absent })
    }

    fn may_write(&self) -> Result<(), PangolinError> {
        if self.writer.may_write() {
            return Ok(());
        }
        let what = "this replica is not the leader, or is stopping".to_owned();
        Err(PangolinError::Unreachable { what, dropped: true })
    }

    /// Makes sure of one resource with its targets.
    async fn ensure(
        &self,
        pangolin: &dyn Pangolin,
        ensure: Ensure,
        applied: &mut ApplyResult,
    ) -> Result<(), PangolinError> {
        let Ensure { new, settings, targets, current, known, mark, served: _, stricter: _, overlap: _ } = ensure;
        let created = current.is_none();
        let _turn = self.turn(settings.host.undotted()).await;
        if self.is_handed_over(&applied.key, settings.host.undotted()) {
            let what = format!("{} of this Ingress, which another one owns by now,", settings.host.undotted());
            return Err(PangolinError::NotFound { what });
        }
        let (mut resource, mut have) = match (current, known) {
            (Some(_), Some(known)) => known,
            (Some(id), None) => {
                let resource = pangolin.resource(id).await?;
                // Between the list and now it may have become a foreign one, or one of another Ingress.
                let marks = [mark.as_deref(), Some(settings.nice_id.as_str())];
                let texts = [Some(resource.nice_id.as_str()), Some(resource.name.as_str())];
                if !texts.iter().any(|text| marks.contains(text)) {
                    return Err(PangolinError::NotFound { what: format!("resource {id} with a mark of ours") });
                }
                (resource, pangolin.targets(id).await?)
            }
            (None, _) => {
                self.may_write()?;
                (pangolin.create_resource(&new).await?, Vec::new())
            }
        };
        let id = resource.id;
        let before = (resource.clone(), have.clone());
        // The Service of another Ingress does not get the headers of the one before it: they may hold credentials.
        let of = |mark: &str| mark.rsplit_once('-').map(|(ingress, _)| ingress.to_owned());
        let handed_over = mark.as_deref().is_some_and(|mark| of(mark) != of(settings.nice_id.as_str()));
        if handed_over && !resource.headers.is_empty() {
            self.may_write()?;
            let bare = ResourceSettings {
                sso: settings.sso || resource.sso.unwrap_or(true),
                block_access: settings.block_access || resource.block_access,
                headers: Vec::new(),
                ..settings.clone()
            };
            resource = pangolin.update_resource(&resource, &bare).await?;
        }
        // A created resource has no target, and is marked at once.
        let protect = created || settings.sso || settings.block_access || !settings.enabled;
        // A Service that is not wanted any more does not get the new headers: it keeps those that it has until its target is gone.
        let headers_last = resource.headers != settings.headers && has_unwanted(&have, &targets);
        if protect {
            self.may_write()?;
            let headers = if headers_last { resource.headers.clone() } else { settings.headers.clone() };
            let strict = ResourceSettings { headers, ..settings.clone() };
            resource = pangolin.update_resource(&resource, &strict).await?;
        }
        have = self.set_targets(pangolin, id, have, &targets).await?;
        if !protect || headers_last {
            self.may_write()?;
            resource = pangolin.update_resource(&resource, &settings).await?;
        }
        let after: Stored = (resource, have);
        // Neither settings nor targets are shown: their headers may hold credentials.
        if let Key::Ingress(key) = &applied.key {
            let (namespace, ingress, tunnel) = (key.namespace.as_deref(), &key.name, &applied.tunnel);
            let (host, settings_changed, targets_changed) =
                (settings.host.undotted(), before.0 != after.0, before.1 != after.1);
            tracing::debug!(namespace, ingress, host, tunnel, "pangolinResource" = %id, created, settings_changed, targets_changed, "resource compared");
        }
        if created {
            applied.managed += 1;
            applied.changed(What::Created, settings.host.undotted(), id.to_string());
        } else if before != after {
            applied.changed(What::Updated, settings.host.undotted(), id.to_string());
        }
        applied.know(id, after);
        self.index.take_over(&settings.host);
        Ok(())
    }

    async fn set_targets(
        &self,
        pangolin: &dyn Pangolin,
        id: ResourceId,
        have: Vec<Target>,
        wanted: &[TargetSettings],
    ) -> Result<Vec<Target>, PangolinError> {
        let TargetChanges { create, update, delete, keep } = target_changes(&have, wanted);
        let mut now = keep;
        for settings in create {
            self.may_write()?;
            now.push(pangolin.create_target(id, &settings).await?);
        }
        for (target, settings) in update {
            self.may_write()?;
            now.push(pangolin.update_target(&target, &settings).await?);
        }
        for target in delete {
            self.may_write()?;
            pangolin.delete_target(id, target.id).await?;
        }
        now.sort_by_key(|target| target.id);
        Ok(now)
    }
}

#[cfg(test)]
mod tests;
