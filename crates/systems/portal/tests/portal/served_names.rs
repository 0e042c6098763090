//! DNS objects against a real PowerDNS behind the resolver, on the sandbox and on the real API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use signpost_dns::{Fqdn, ZoneName};
use signpost_provider_powerdns::{
    Action, Change, ClientOptions, CommentChange, NewZone, PowerDnsClient, Secret, SetContent, ZoneServer, ZoneSettings,
};
use signpost_provider_resolver::{Options, Resolvers, Upstream};
use signpost_testkit::{Backend, PowerDns, PowerDnsOptions, eventually, on_both};

use crate::bed::{Bed, PATIENCE};

pub struct Server {
    pub powerdns: PowerDns,
    client: PowerDnsClient,
    zone: ZoneName,
}

impl Server {
    pub async fn start() -> Option<Self> {
        let powerdns = PowerDns::start(Backend::Sqlite, PowerDnsOptions::default()).await?;
        let options = ClientOptions {
            url: powerdns.api_url().parse().unwrap(),
            key: Secret::Value(powerdns.api_key()),
            vhost: "localhost".into(),
            timeout: PATIENCE,
            insecure: false,
            ca_path: None,
            concurrency: 4,
        };
        let (client, zone) = (PowerDnsClient::new(options).unwrap(), ZoneName::parse("names.example").unwrap());
        let nameservers = vec![Fqdn::parse("ns1.names.example").unwrap()];
        let settings = ZoneSettings::default();
        client.create(&NewZone { name: zone.clone(), kind: "Native".into(), nameservers, settings }).await.unwrap();
        Some(Self { powerdns, client, zone })
    }

    pub async fn publish(&self, name: &str, rtype: &str, records: &[&str]) {
        let records = records.iter().map(|record| Box::from(*record)).collect();
        let content = Arc::new(SetContent { ttl: 1, records, comment: None });
        let action = Action::Replace { content, comment: CommentChange::Keep };
        let change = Change { name: self.zone.resolve(name).unwrap(), rtype: rtype.parse().unwrap(), action };
        self.client.patch(&self.zone, &[change]).await.unwrap();
    }
}

on_both! {
    async fn names_are_judged_by_what_the_server_answers(cluster) {
        let Some(server) = Server::start().await else { return };
        server.publish("dual", "A", &["192.0.2.1"]).await;
        server.publish("dual", "AAAA", &["2001:db8::1"]).await;
        server.publish("one", "CNAME", &["two.names.example."]).await;
        server.publish("two", "CNAME", &["dual.names.example."]).await;
        server.publish("text", "TXT", &["\"v=spf1 -all\""]).await;
        server.publish("mail", "MX", &["10 mx.example.net."]).await;
        server.publish("loop", "CNAME", &["loop.names.example."]).await;
        let bed = Bed::without_operator(cluster).await;
        let upstream = Upstream::Server(server.powerdns.dns_addr());
        let resolvers = Options { resolvers: vec![upstream], deadline: Duration::from_secs(2), ..Options::default() };
        bed.start_with(bed.cluster.client(), bed.options(), Arc::new(Resolvers::new(&resolvers)));
        let entry = |name: &str, rtype: &str, targets: &[&str]| {
            json!({ "fqdn": format!("{name}.names.example"), "recordType": rtype, "targets": targets })
        };
        let entries = json!([
            entry("dual", "A", &["192.0.2.1"]), entry("dual", "AAAA", &["2001:DB8:0::1"]),
            entry("one", "CNAME", &["Two.names.example"]), entry("text", "TXT", &["v=spf1 -all"]),
            entry("mail", "MX", &["10 mx.example.net"]), entry("missing", "A", &["192.0.2.1"]),
            entry("text", "A", &["192.0.2.1"]), entry("loop", "A", &["192.0.2.1"]),
            entry("outside", "A", &[]), { "fqdn": "www.other.example" },
        ]);
        bed.dns("team", json!([{ "name": "all", "entries": entries }]), json!({})).await;
        let status = async || bed.status("team").await;
        let shows = async |missing: &str| {
            let expected: BTreeMap<String, String> = [
                ("dual A", "sync/Match"), ("dual AAAA", "sync/Match"), ("one CNAME", "sync/Match"), ("text TXT", "sync/Match"),
                ("mail MX", "sync/Match"), ("missing A", missing), ("text A", "notFound/NoData"),
                ("loop A", "error/ServFail"), ("outside A", "notFound/NoSuchName"), ("www.other.example ", "error/Refused"),
            ].iter().map(|(name, result)| ((*name).to_owned(), (*result).to_owned())).collect();
            eventually("the results", PATIENCE, || async {
                let fqdns = status().await.groups.into_iter().flat_map(|group| group.fqdns);
                let seen: BTreeMap<String, String> = fqdns.map(|fqdn| {
                    let name = fqdn.fqdn.trim_end_matches(".names.example").to_owned();
                    let result = format!("{}/{}", fqdn.sync_status.unwrap_or_default(), fqdn.reason.unwrap_or_default());
                    (format!("{name} {}", fqdn.record_type.unwrap_or_default()), result)
                }).collect();
                if seen == expected { Ok(()) } else { Err(seen) }
            }).await;
        };
        shows("notFound/NoSuchName").await;
        server.publish("missing", "A", &["192.0.2.1"]).await;
        shows("sync/Match").await;
        server.powerdns.pause();
        bed.condition("team", "Resolved", "ResolverUnavailable").await;
        shows("sync/Match").await;
        server.powerdns.resume();
        bed.condition("team", "Resolved", "Answered").await;
        shows("sync/Match").await;
    }
}
