//! Scenes that chance draws too rarely, because the order of several events matters. Some seeds end with one of them.

use super::{
    action::{Action, RecordObject, ZoneObject},
    plain_record,
};
use crate::{
    dice::Dice,
    history::{Event, Fault, Only, ProcessEvent, Side, Spell, What},
};

/// One seed of so many ends with each of the scenes. The two scenes of an outage share theirs.
const ONE_OF: u64 = 20;

/// Milliseconds until the zone of a scene is served.
const SERVED: u64 = 10_000;

/// The scene at the end of the history of a seed, if there is one. Times are counted from the start of the scene.
pub fn draw(seed: u64, dice: &mut Dice, zone: &str, endpoints: bool) -> Vec<Event<Action>> {
    match seed % ONE_OF {
        // What becomes of DNSEndpoints in such a zone has no check.
        3 if !endpoints => secondary_for_a_while(dice, zone),
        7 if (seed / ONE_OF).is_multiple_of(2) => deletion_in_an_outage(dice, zone),
        7 => retyped_before_its_status(dice, zone),
        13 => retained_zone_without_its_records(dice, zone),
        17 => start_of_authority(dice, zone),
        _ => Vec::new(),
    }
}

fn user(at: u64, action: Action) -> Event<Action> {
    Event { at, what: What::User(action) }
}

fn spell(at: u64, side: Side, on: Only, before: u64, lasts: u64) -> Event<Action> {
    faults(at, side, on, Fault::Slow { before, after: 0 }, lasts)
}

fn faults(at: u64, side: Side, on: Only, fault: Fault, lasts: u64) -> Event<Action> {
    Event { at, what: What::Spell(Spell { side, on, fault, share: 100, lasts }) }
}

/// A record is written and its status is late. A full pass begins before the status lands, and meets a server that hangs. The object is
/// deleted in that outage.
fn deletion_in_an_outage(dice: &mut Dice, zone: &str) -> Vec<Event<Action>> {
    let record = plain_record("late", zone);
    let delete = Action::DeleteRecord { namespace: record.namespace.clone(), name: record.object.clone() };
    let edited = ZoneObject { nameservers: vec!["ns2.example.org".to_owned()], ..ZoneObject::plain(zone) };
    // The ledger is a status too: the record is written after the first delay, and reported after the second.
    let late = dice.between(400, 3_000);
    let outage = SERVED + late + dice.between(100, late);
    vec![
        user(0, Action::Zone(ZoneObject::plain(zone))),
        spell(SERVED - 100, Side::Api, Only::Status, late, 2 * late + 1_000),
        user(SERVED, Action::Record(record)),
        spell(outage, Side::Provider, Only::Reads, dice.between(10_000, 30_000), 25_000),
        user(outage, Action::Zone(edited)),
        user(outage + dice.between(10_500, 22_000), delete),
    ]
}

/// A record is written and its object has its finalizer, but the process dies before the status lands. The type of the object is changed, and
/// the object is deleted while the next process cannot reach the server, or the server takes no change.
fn retyped_before_its_status(dice: &mut Dice, zone: &str) -> Vec<Event<Action>> {
    let record = plain_record("retyped", zone);
    let retyped = RecordObject { rtype: "TXT".to_owned(), records: vec!["\"retyped\"".to_owned()], ..record.clone() };
    let delete = Action::DeleteRecord { namespace: record.namespace.clone(), name: record.object.clone() };
    // The ledger is a status too: statuses fail once it is written, while the request with the record is on its way.
    let slow = dice.between(2_000, 6_000);
    let crash = SERVED + slow + dice.between(200, 3_000);
    let refused = SERVED + slow / 2;
    let down = dice.between(300, 5_000);
    let outage = dice.pick(&[Only::Any, Only::Records]);
    let edit = crash + dice.between(10, 250);
    let mut events = vec![
        user(0, Action::Zone(ZoneObject::plain(zone))),
        spell(SERVED - 100, Side::Provider, Only::Records, slow, 1_000),
        user(SERVED, Action::Record(record)),
        faults(refused, Side::Api, Only::Status, Fault::CutBefore, crash + 200 - refused),
        faults(crash, Side::Provider, outage, Fault::CutBefore, dice.between(20_000, 40_000)),
    ];
    // Of two replicas, either may lead. There is no second one in most histories.
    for replica in 0..2 {
        events.push(Event { at: crash, what: What::Process(ProcessEvent::Crash { replica, down }) });
    }
    events.push(user(edit, Action::Record(retyped)));
    events.push(user(edit + dice.between(10, 12_000), delete));
    events
}

/// Many record sets of a retained zone are deleted before they have a finalizer, so that only the ledger lists their records, and the zone
/// object is deleted with them: the guard of deletions pauses.
fn retained_zone_without_its_records(dice: &mut Dice, zone: &str) -> Vec<Event<Action>> {
    let retained = ZoneObject { retain: true, ..ZoneObject::plain(zone) };
    let after = dice.between(100, 900);
    vec![
        user(0, Action::Zone(retained)),
        spell(SERVED - 100, Side::Api, Only::Metadata, dice.between(1_000, 4_000), 2_000),
        user(SERVED, Action::BulkInPassing { count: 12, zone: zone.to_owned(), after }),
    ]
}

/// A record set is the start of authority of a zone. It is changed and deleted while requests are late, or the server loses everything.
fn start_of_authority(dice: &mut Dice, zone: &str) -> Vec<Event<Action>> {
    let record = |minimum: u64| RecordObject {
        name: "@".to_owned(),
        rtype: "SOA".to_owned(),
        ttl: 300,
        records: vec![format!("ns1.example.org. hostmaster.{zone}. 1 10800 3600 604800 {minimum}")],
        ..plain_record("soa", zone)
    };
    let edited = ZoneObject { nameservers: vec!["ns2.example.org".to_owned()], ..ZoneObject::plain(zone) };
    let slow = dice.pick(&[(Side::Api, Only::Status), (Side::Provider, Only::Records), (Side::Provider, Only::Reads)]);
    let late = dice.between(100, 20_000);
    let last = dice.pick(&[
        Action::DeleteRecord { namespace: "one".to_owned(), name: "soa".to_owned() },
        Action::Recreate(record(60)),
        Action::Record(record(60)),
        Action::Wipe,
    ]);
    let [first, second, third] = [(); 3].map(|()| dice.between(10, 8_000));
    vec![
        user(0, Action::Zone(ZoneObject::plain(zone))),
        user(SERVED, Action::Record(record(300))),
        spell(SERVED + first, slow.0, slow.1, late, 10_000),
        user(SERVED + first, Action::Record(record(600))),
        user(SERVED + first + second, Action::Zone(edited)),
        user(SERVED + first + second + third, last),
    ]
}

/// A zone becomes secondary, so that its records come from elsewhere. Its record set is changed or deleted meanwhile, and the zone may become
/// primary again.
fn secondary_for_a_while(dice: &mut Dice, zone: &str) -> Vec<Event<Action>> {
    let record = plain_record("moved", zone);
    let changed = RecordObject { records: vec!["192.0.2.10".to_owned()], ..record.clone() };
    let retyped = RecordObject { rtype: "TXT".to_owned(), records: vec!["\"moved\"".to_owned()], ..record.clone() };
    let secondary = ZoneObject { kind: "Slave".to_owned(), ..ZoneObject::plain(zone) };
    let delete = Action::DeleteRecord { namespace: record.namespace.clone(), name: record.object.clone() };
    let edit = dice.pick(&[delete.clone(), delete, Action::Record(changed), Action::Record(retyped)]);
    let (side, on) =
        dice.pick(&[(Side::Api, Only::Status), (Side::Provider, Only::Records), (Side::Provider, Only::Zones)]);
    let late = dice.between(100, 20_000);
    let [first, second, third] = [(); 3].map(|()| dice.between(10, 8_000));
    let mut events = vec![
        user(0, Action::Zone(ZoneObject::plain(zone))),
        user(SERVED, Action::Record(record)),
        // Its status has landed.
        spell(2 * SERVED, side, on, late, 10_000),
        user(2 * SERVED + first, Action::Zone(secondary)),
        user(2 * SERVED + first + second, edit),
    ];
    if dice.chance(50) {
        events.push(user(2 * SERVED + first + second + third, Action::Zone(ZoneObject::plain(zone))));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_seeds_end_with_a_scene_whose_events_are_in_order() {
        let scenes: Vec<_> = (0..100).map(|seed| draw(seed, &mut Dice::new(seed), "a.test", false)).collect();
        assert_eq!(scenes.iter().filter(|scene| !scene.is_empty()).count(), 20);
        assert!(scenes.iter().all(|scene| scene.is_sorted_by_key(|event| event.at)));
    }
}
