use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use signpost_engine::{ObjectId, Outcome, RetryClass, Touch, Touched};

use super::report;
use crate::apply::ApplyResult;
use crate::index::Key;
use crate::plan::Memory;
use crate::settings::{Mode, Policy};

fn applied() -> ApplyResult {
    ApplyResult {
        key: Key::Sweep,
        policy: Arc::new(Policy { mode: Mode::Api, ..Policy::default() }),
        memory: Memory::default(),
        identity: None,
        tunnel: String::new(),
        refusals: Vec::new(),
        judged: true,
        notes: Vec::new(),
        again: None,
        changes: Vec::new(),
        errors: Vec::new(),
        hosts: None,
        digest: None,
        noted: None,
        read: false,
        managed: 0,
        present: false,
        ours: false,
        paused: false,
        classes: None,
        unsure: false,
        asked: None,
    }
}

#[tokio::test]
async fn r030_what_is_done_is_compared_again_after_the_resync_period() {
    let outcome = |change: &dyn Fn(&mut ApplyResult)| {
        let mut applied = applied();
        change(&mut applied);
        report(applied, Timestamp::UNIX_EPOCH).outcome
    };
    assert_eq!(outcome(&|_| {}), Outcome::Check { after: Duration::from_mins(5) });
    let never = |applied: &mut ApplyResult| applied.policy = Arc::new(Policy { resync: None, ..Policy::default() });
    assert_eq!(outcome(&never), Outcome::Done);
    let retry = |class| Outcome::Retry { class, objects: Touched::Some([()].into()) };
    assert_eq!(outcome(&|applied| applied.again = Some(RetryClass::Slow)), retry(RetryClass::Slow));
    // An Ingress that waits for something is compared all the same.
    let mut waits = ApplyResult { again: Some(RetryClass::Slow), ours: true, ..applied() };
    waits.key = Key::Ingress(Arc::new(ObjectId::new::<signpost_apis::ingress::Ingress>(Some("prod"), "app")));
    let touches = report(waits, Timestamp::UNIX_EPOCH).touches;
    assert!(
        matches!(&touches[..], [(Key::Ingress(_), Touch::All, after)] if *after == Duration::from_mins(5)),
        "{touches:?}"
    );
    let brake = RetryClass::Fixed(Policy::default().brake);
    assert_eq!(outcome(&|applied| applied.paused = true), retry(brake));
}
