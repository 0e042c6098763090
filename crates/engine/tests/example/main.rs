//! The test of the example system in `greeter.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod greeter;
#[path = "../support/mod.rs"]
mod support;

use greeter::index::{Greeting, GreetingSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::DeleteParams, api::PostParams};

#[tokio::test(start_paused = true)]
async fn a_greeting_is_served_refused_and_restored() {
    let sandbox = support::sandbox(1);
    let user = sandbox.client();
    support::install_kind(&user, "Greeting").await;
    let mut operator = support::operator(sandbox.client());
    greeter::install(&mut operator, String::new());
    let _running = support::run(operator);
    let greetings: Api<Greeting> = Api::namespaced(user.clone(), "default");
    let maps: Api<ConfigMap> = Api::namespaced(user, "default");
    for (name, text) in [("hello", "world"), ("empty", "")] {
        let greeting = Greeting::new(name, GreetingSpec { text: text.into() });
        greetings.create(&PostParams::default(), &greeting).await.unwrap();
    }
    let minute = std::time::Duration::from_mins(1);
    let judged = async |name: &str, reason: &str| {
        let status = greetings.get(name).await.unwrap().status?;
        status.conditions.first().filter(|condition| condition.reason == reason).map(drop)
    };
    support::eventually("the greeting is served", minute, || judged("hello", "Greeted")).await;
    support::eventually("the empty one is refused", minute, || judged("empty", "InvalidSpec")).await;
    let text = async || maps.get_opt("hello").await.unwrap()?.data?.remove("text");
    assert_eq!(text().await.as_deref(), Some("world"));
    maps.delete("hello", &DeleteParams::default()).await.unwrap();
    assert_eq!(support::eventually("the ConfigMap is created again", minute, text).await, "world");
    greetings.delete("hello", &DeleteParams::default()).await.unwrap();
    let deleted = async || maps.get_opt("hello").await.unwrap().is_none().then_some(());
    support::eventually("the ConfigMap is deleted with its Greeting", minute, deleted).await;
}
