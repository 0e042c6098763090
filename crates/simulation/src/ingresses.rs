//! What users do with Ingresses, whatever the system: shared by the beds of `pihole` and `pangolin`.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, ListParams};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

/// An action of a user on Ingresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IngressAction<I> {
    /// Creates or changes an Ingress.
    Ingress(I),
    /// Deletes an Ingress.
    Delete {
        /// Its name.
        name: String,
    },
    /// Deletes an Ingress and creates this one as soon as it is deleted.
    Recreate(I),
    /// Creates many Ingresses, `bulk-0` and so on.
    Bulk {
        /// How many.
        count: usize,
    },
    /// Deletes all that `bulk` created.
    DeleteBulk,
}

/// A bed whose users make Ingresses.
pub trait IngressBed: Send + Sync + 'static {
    /// What users know of an Ingress.
    type Object: Clone + Send + Sync + 'static;

    /// The name of an Ingress.
    fn name(ingress: &Self::Object) -> &str;
    /// An Ingress with one host and without anything special.
    fn plain(name: String) -> Self::Object;
    /// The Ingresses of the cluster.
    fn api(&self) -> Api<Ingress>;
    /// Creates or changes one.
    fn put(&self, ingress: &Self::Object) -> impl Future<Output = ()> + Send;
    /// Deletes one.
    fn delete(&self, name: &str) -> impl Future<Output = ()> + Send;
}

/// A user acts.
pub async fn act<B: IngressBed>(bed: &Arc<B>, action: &IngressAction<B::Object>) {
    match action {
        IngressAction::Ingress(ingress) => bed.put(ingress).await,
        IngressAction::Delete { name } => bed.delete(name).await,
        IngressAction::Recreate(ingress) => recreate(bed, ingress).await,
        IngressAction::Bulk { count } => {
            for number in 0..*count {
                bed.put(&B::plain(format!("bulk-{number}"))).await;
            }
        }
        IngressAction::DeleteBulk => {
            let listed = bed.api().list(&ListParams::default()).await;
            let names = listed.into_iter().flatten().filter_map(|ingress| ingress.metadata.name);
            for name in names.filter(|name| name.starts_with("bulk-")) {
                bed.delete(&name).await;
            }
        }
    }
}

/// Deletes an Ingress, and creates it again as soon as it is deleted.
async fn recreate<B: IngressBed>(bed: &Arc<B>, ingress: &B::Object) {
    bed.delete(B::name(ingress)).await;
    if let Ok(None) = bed.api().get_opt(B::name(ingress)).await {
        bed.put(ingress).await;
        return;
    }
    let (bed, ingress) = (bed.clone(), ingress.clone());
    tokio::spawn(async move {
        for _ in 0..200 {
            sleep(Duration::from_millis(300)).await;
            if let Ok(None) = bed.api().get_opt(B::name(&ingress)).await {
                bed.put(&ingress).await;
                return;
            }
        }
    });
}

/// Creates 40 Ingresses whose names no other round has, or deletes those of the round.
pub async fn churn<B: IngressBed>(bed: &Arc<B>, round: usize, delete: bool) {
    for name in (0..40).map(|number| format!("r{round}-{number}")) {
        if delete {
            bed.delete(&name).await;
        } else {
            bed.put(&B::plain(name)).await;
        }
    }
}

/// The hosts of an Ingress.
pub fn hosts(ingress: Ingress) -> Vec<String> {
    let rules = ingress.spec.and_then(|spec| spec.rules).unwrap_or_default();
    rules.into_iter().filter_map(|rule| rule.host).collect()
}
