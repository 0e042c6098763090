//! The client against the strict stand-in: every version, every way to be refused, and what must never happen.

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faults;
mod lists;
mod safety;
mod twin;
mod writes;

use std::time::Duration;

use signpost_dns::Fqdn;
use signpost_provider_pangolin::{
    Connection, DomainId, NewResource, NiceId, Pangolin as _, PangolinClient, Resource, ResourceSettings, Secret,
    SiteId, TargetSettings, parse_base_url,
};
use signpost_testkit::pangolin::{ORG, Options, Pangolin, Version};

fn name(text: &str) -> Fqdn {
    Fqdn::parse(text).unwrap()
}

fn client_for(url: &str, org: &str, key: &str) -> PangolinClient {
    PangolinClient::new(&Connection::new(parse_base_url(url).unwrap(), org, Secret::Value(key.into()))).unwrap()
}

fn client_of(server: &Pangolin, key: &str) -> PangolinClient {
    client_for(&server.url(), ORG, key)
}

async fn of(version: Version) -> (Pangolin, PangolinClient) {
    with(Options { version, ..Options::default() }).await
}

async fn with(options: Options) -> (Pangolin, PangolinClient) {
    let server = Pangolin::with(options).await;
    let client = client_of(&server, Pangolin::KEY);
    (server, client)
}

async fn start() -> (Pangolin, PangolinClient) {
    of(Version::V1_22).await
}

fn new(host: &str) -> NewResource {
    NewResource { name: format!("demo/app {host}"), domain: DomainId("d-ns".into()), host: name(host) }
}

fn settings(host: &str) -> ResourceSettings {
    ResourceSettings {
        nice_id: NiceId::parse("sp-home-1").unwrap(),
        name: format!("demo/app {host}"),
        domain: DomainId("d-ns".into()),
        host: name(host),
        enabled: true,
        ssl: true,
        sso: false,
        block_access: false,
        sticky_session: false,
        tls_server_name: None,
        set_host_header: None,
        headers: Vec::new(),
    }
}

fn target(host: &str, port: u16) -> TargetSettings {
    TargetSettings {
        site: SiteId(2),
        host: host.to_owned(),
        port,
        method: "http".to_owned(),
        enabled: true,
        path: None,
        priority: 100,
        health: None,
    }
}

/// A resource that is marked and has one target.
async fn exposed(client: &PangolinClient, host: &str) -> Resource {
    let made = client.create_resource(&new(host)).await.unwrap();
    let marked = client.update_resource(&made, &settings(host)).await.unwrap();
    client.create_target(marked.id, &target("app.demo.svc", 80)).await.unwrap();
    marked
}

/// A list of any age will do.
const ANY_AGE: Duration = Duration::MAX;
