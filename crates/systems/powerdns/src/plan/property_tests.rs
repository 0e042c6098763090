//! Properties of every plan.

use super::*;
use proptest::prelude::*;

proptest! {
    /// Applying a plan and planning again finds nothing to do, and nothing foreign was touched, whatever the world.
    #[test]
    fn a_plan_that_was_applied_leaves_nothing_to_do(
        objects in prop::collection::vec((0..5_u8, 0..3_usize, 0..4_u8, any::<bool>(), any::<bool>()), 0..8),
        foreign in prop::collection::vec((0..5_u8, 0..3_usize), 0..4),
    ) {
        const TYPES: [(&str, &str); 3] = [("A", "192.0.2."), ("TXT", "\"t"), ("CNAME", "h")];
        let record = |rtype: usize, n: u8| match TYPES[rtype].0 {
            "A" => format!("192.0.2.{n}"),
            "TXT" => format!("\"t{n}\""),
            _ => format!("h{n}.example.org."),
        };
        let mut scene = Scene::new();
        let mut foreign_keys = std::collections::BTreeSet::new();
        for (name, rtype) in foreign {
            let key = RecordKey::new(zone().resolve(&format!("n{name}")).unwrap(), TYPES[rtype].0.parse().unwrap());
            let alone = !foreign_keys.iter().any(|other: &RecordKey| other.name == key.name);
            if alone && foreign_keys.insert(key) {
                scene = scene.on_server(&format!("n{name}"), TYPES[rtype].0, &record(rtype, 200));
            }
        }
        for (at, (name, rtype, n, gone, had)) in objects.iter().enumerate() {
            let name = format!("n{name}");
            let mut more = if *had { wrote(&name, TYPES[*rtype].0, &record(*rtype, 100)) } else { json!({ "metadata": {} }) };
            if *gone {
                more = deleting(more);
            }
            scene = scene.object(&format!("o{at}"), u8::try_from(at).unwrap(), &name, TYPES[*rtype].0, &record(*rtype, *n), more);
        }
        let first = scene.plan();
        let wanted: std::collections::BTreeSet<RecordKey> =
            first.atoms.iter().filter_map(|atom| atom.write.as_ref().map(|write| write.key.clone())).collect();
        for atom in &first.atoms {
            for key in &atom.deletes {
                let owned = objects.iter().any(|(name, rtype, _, _, had)| {
                    *had && *key == RecordKey::new(zone().resolve(&format!("n{name}")).unwrap(), TYPES[*rtype].0.parse().unwrap())
                });
                prop_assert!(owned, "{key} was deleted and is not ours");
                prop_assert!(!wanted.contains(key) , "{key} is deleted and written");
            }
        }
        // Applied, as the server and the statuses would have it.
        let mut sets: BTreeMap<RecordKey, ServerSet> = scene.sets.iter().map(|set| (RecordKey::new(set.name.clone(), set.rtype), set.clone())).collect();
        for atom in &first.atoms {
            for key in &atom.deletes {
                sets.remove(key);
            }
            if let Some(write) = &atom.write {
                let set = ServerSet {
                    name: write.key.name.clone(), rtype: write.key.rtype, ttl: write.content.ttl,
                    contents: write.content.records.to_vec(), disabled: false, comments: vec![],
                };
                sets.insert(write.key.clone(), set);
            }
        }
        for (at, set) in sets.keys().enumerate() {
            let clash = sets.keys().enumerate().any(|(other, key)| other != at && key.name == set.name && (key.rtype == RecordType::Cname || set.rtype == RecordType::Cname));
            prop_assert!(!clash, "an alias beside something else at {}", set.name);
        }
        scene.sets = sets.into_values().collect();
        let second = scene.plan();
        prop_assert!(second.atoms.iter().all(|atom| atom.write.is_none()), "{:?}", second.atoms);
    }
}
