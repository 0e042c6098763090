//! The two strategies that the operator is compared with, on the same servers in the same run.
//!
//! `per_record`: one worker, and for each record set one GET and one PATCH to PowerDNS and four writes to Kubernetes. `bare`: the cost
//! without an operator: one finalizer patch and one status patch per object at full concurrency, and one PATCH per 5,000 record sets.

use std::time::{Duration, Instant};

use anyhow::Context;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use signpost_testkit::PowerDns;

use crate::servers::{address, at_full_speed, host, rrsets};

/// Plain calls to the PowerDNS API.
pub(crate) struct Direct {
    http: reqwest::Client,
    base: String,
    key: String,
}

impl Direct {
    /// Calls to this server.
    pub(crate) fn new(server: &PowerDns) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder().timeout(Duration::from_mins(1)).build()?;
        Ok(Self { http, base: format!("{}/api/v1/servers/localhost/zones", server.api_url()), key: server.api_key() })
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> anyhow::Result<reqwest::Response> {
        let answer = request.header("X-API-Key", &self.key).header("Accept", "application/json").send().await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        anyhow::bail!("PowerDNS answered {status}: {}", answer.text().await.unwrap_or_default())
    }

    /// Creates a zone as the operator does: serial plus one per PATCH, no rectify.
    pub(crate) async fn create_zone(&self, zone: &str) -> anyhow::Result<()> {
        let body = json!({"name": format!("{zone}."), "kind": "Native", "nameservers": [format!("ns1.{zone}.")],
            "soa_edit_api": "INCREASE", "api_rectify": false});
        self.send(self.http.post(&self.base).json(&body)).await?;
        Ok(())
    }

    /// The zone's serial.
    pub(crate) async fn serial(&self, zone: &str) -> anyhow::Result<u64> {
        let answer = self.send(self.http.get(format!("{}/{zone}.?rrsets=false", self.base))).await?;
        let zone: Value = answer.json().await?;
        zone["serial"].as_u64().context("the zone has no serial")
    }

    /// The REPLACE of the nth record set.
    pub(crate) fn replace(zone: &str, n: usize, edition: u8) -> Value {
        json!({"name": format!("{}.{zone}.", host(n)), "type": "A", "ttl": 300, "changetype": "REPLACE",
            "records": [{"content": address(n, edition), "disabled": false}]})
    }

    /// One PATCH.
    pub(crate) async fn patch(&self, zone: &str, rrsets: &[Value]) -> anyhow::Result<()> {
        self.send(self.http.patch(format!("{}/{zone}.", self.base)).json(&json!({"rrsets": rrsets}))).await?;
        Ok(())
    }

    async fn read(&self, zone: &str, n: usize) -> anyhow::Result<Value> {
        let url = format!("{}/{zone}.?rrset_name={}.{zone}.&rrset_type=A", self.base, host(n));
        Ok(self.send(self.http.get(url)).await?.json().await?)
    }

    /// Removes a zone, if it is there.
    pub(crate) async fn delete_zone(&self, zone: &str) -> anyhow::Result<()> {
        match self.send(self.http.delete(format!("{}/{zone}.", self.base))).await {
            Err(error) if error.to_string().contains("answered 404") => Ok(()),
            answer => answer.map(drop),
        }
    }
}

/// The status that the operator writes, field by field, so that the end state is the same.
fn status(zone: &str, n: usize) -> Value {
    let name = format!("{}.{zone}.", host(n));
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "Succeeded", "message": "Succeeded", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({"status": {"dnsEntryName": name, "syncStatus": "Succeeded", "observedGeneration": 1, "serial": 1,
        "lastUpdateTime": "2026-01-01T00:00:00Z", "conditions": [condition("Available"), condition("Ready")],
        "applied": {"zone": format!("{zone}."), "name": name, "type": "A", "hash": format!("{n:032x}")}}})
}

/// The per-record strategy over record sets that exist already; returns when the last name is served (its last PATCH is answered).
pub(crate) async fn per_record(
    client: &Client,
    direct: &Direct,
    namespace: &str,
    zone: &str,
    count: usize,
) -> anyhow::Result<Duration> {
    let api = rrsets(client, namespace);
    let start = Instant::now();
    let mut served = start;
    for n in 0..count {
        let name = format!("{}.{zone}", host(n));
        let merge = PatchParams::default();
        for finalizers in
            [json!(["bench.signpost/metrics"]), json!(["bench.signpost/metrics", "bench.signpost/external"])]
        {
            api.patch_metadata(&name, &merge, &Patch::Merge(json!({"metadata": {"finalizers": finalizers}}))).await?;
        }
        api.patch_metadata(
            &name,
            &merge,
            &Patch::Merge(json!({"metadata": {"annotations": {"bench.signpost/owner": zone}}})),
        )
        .await?;
        direct.read(zone, n).await?;
        direct.patch(zone, &[Direct::replace(zone, n, 0)]).await?;
        served = Instant::now();
        api.patch_status(&name, &merge, &Patch::Merge(status(zone, n))).await?;
    }
    Ok(served - start)
}

/// The bare cost of the same end state.
pub(crate) async fn bare(
    client: &Client,
    direct: &Direct,
    namespace: &str,
    zone: &str,
    count: usize,
) -> anyhow::Result<Duration> {
    let api = &rrsets(client, namespace);
    let merge = &PatchParams::default();
    let name = |n| format!("{}.{zone}", host(n));
    let start = Instant::now();
    at_full_speed(0..count, async |n| {
        let finalizer = json!({"metadata": {"finalizers": ["bench.signpost/external"]}});
        api.patch_metadata(&name(n), merge, &Patch::Merge(finalizer)).await?;
        Ok(())
    })
    .await?;
    let changes: Vec<Value> = (0..count).map(|n| Direct::replace(zone, n, 0)).collect();
    for chunk in changes.chunks(5000) {
        direct.patch(zone, chunk).await?;
    }
    at_full_speed(0..count, async |n| {
        api.patch_status(&name(n), merge, &Patch::Merge(status(zone, n))).await?;
        Ok(())
    })
    .await?;
    Ok(start.elapsed())
}
