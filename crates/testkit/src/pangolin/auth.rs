//! Who is calling, and what the key may do.

use super::reply::Reply;
use super::state::{Key, State};
use super::{ORG, OTHER_ORG};

/// The actions that a client of this project needs, by the names of the dashboard.
pub const MINIMUM: &[&str] = &[
    "listOrgDomains",
    "listSites",
    "listResources",
    "getResource",
    "createResource",
    "updateResource",
    "deleteResource",
    "listTargets",
    "createTarget",
    "updateTarget",
    "deleteTarget",
];
const MORE: &[&str] = &["getSite", "getTarget", "getOrg", "listOrgs", "applyBlueprint"];

/// The keys of every stand-in, each `id.secret`.
pub(super) fn keys() -> Vec<Key> {
    let key = |id: &str, orgs: &[&str], root, actions: &[&[&str]]| Key {
        id: id.to_owned(),
        secret: "secret".to_owned(),
        orgs: orgs.iter().map(|org| (*org).to_owned()).collect(),
        root,
        actions: actions.concat().into_iter().map(str::to_owned).collect(),
    };
    vec![
        key("minimum", &[ORG], false, &[MINIMUM]),
        key("all", &[ORG], false, &[MINIMUM, MORE]),
        key("none", &[ORG], false, &[]),
        key("other", &[OTHER_ORG], false, &[MINIMUM, MORE]),
        key("root", &[], true, &[MINIMUM, MORE]),
        key("powerless", &[], true, &[]),
    ]
}

/// The key of a request.
pub(super) fn caller(state: &State, authorization: Option<&str>) -> Result<Key, Reply> {
    let token = authorization.and_then(|value| value.strip_prefix("Bearer ")).filter(|token| !token.is_empty());
    let Some(token) = token else { return Err(Reply::error(401, "API key required")) };
    let mut parts = token.split('.');
    let (Some(id), Some(secret)) = (parts.next(), parts.next()) else {
        return Err(Reply::error(500, "An error occurred checking API key"));
    };
    let known = state.keys.iter().find(|key| key.id == id && key.secret == secret);
    known.cloned().ok_or_else(|| Reply::error(401, "Invalid API key"))
}

impl Key {
    /// Whether the key reaches an organisation.
    pub(super) fn reaches(&self, org: &str) -> Result<(), Reply> {
        if self.root || self.orgs.iter().any(|own| own == org) {
            return Ok(());
        }
        Err(Reply::error(403, "Key does not have access to this organization"))
    }

    /// Whether the key has an action.
    pub(super) fn may(&self, action: &str) -> Result<(), Reply> {
        if self.actions.contains(action) {
            return Ok(());
        }
        Err(Reply::error(403, "Key does not have permission perform this action"))
    }
}
