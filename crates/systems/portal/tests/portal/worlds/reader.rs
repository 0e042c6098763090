//! A thread that reads the inventory all the time: the views of an owner are always of one state of its object, and all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use signpost_inventory::{Inventory, Owner, View};

use super::model::{GENERATION, shown};

/// The names of each state of an object, by the name of the state.
type Wholes = BTreeMap<String, BTreeSet<String>>;

pub struct Reader {
    inventory: Arc<Mutex<Arc<Inventory>>>,
    wholes: Arc<Mutex<Wholes>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
}

/// A view in a word: name, type and targets.
pub fn word(view: &View) -> String {
    let targets = view.targets().iter().collect::<Vec<_>>().join(",");
    format!("{} {} {targets}", view.name().undotted(), shown(view.rtype()))
}

impl Reader {
    pub fn start() -> Self {
        let (inventory, wholes) = (Arc::new(Mutex::new(Arc::new(Inventory::new()))), Arc::<Mutex<Wholes>>::default());
        let stop = Arc::new(AtomicBool::new(false));
        let (read, known, stopped) = (inventory.clone(), wholes.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut checked = 0;
            while !stopped.load(Ordering::Relaxed) {
                let inventory = read.lock().unwrap().clone();
                check(&inventory, &known);
                checked += 1;
                std::thread::yield_now();
            }
            checked
        });
        Self { inventory, wholes, stop, thread: Some(thread) }
    }

    pub fn reads(&self, inventory: &Arc<Inventory>) {
        *self.inventory.lock().unwrap() = inventory.clone();
    }

    /// The next state of an object, before anybody can see it.
    pub fn expects(&self, whole: Option<(String, BTreeSet<String>)>) {
        self.wholes.lock().unwrap().extend(whole);
    }

    /// Fails the test when the thread has failed.
    pub fn finish(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let checked = self.thread.take().unwrap().join().expect("a reader saw half an owner");
        assert!(checked > 0);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn check(inventory: &Inventory, wholes: &Mutex<Wholes>) {
    let mut seen: BTreeMap<Owner, (BTreeSet<String>, BTreeSet<String>)> = BTreeMap::new();
    for view in inventory.snapshot().iter() {
        let (states, names) = seen.entry(view.owner().clone()).or_default();
        let state = view.provenance().groups.iter().find(|group| group.starts_with(GENERATION));
        states.insert(state.map(ToString::to_string).unwrap_or_default());
        names.insert(word(view));
    }
    let wholes = wholes.lock().unwrap();
    for (owner, (states, names)) in seen {
        assert_eq!(states.len(), 1, "{owner} is seen in several states");
        // Discovered names may be hidden one by one, when another system publishes them.
        if let Some(whole) = states.first().and_then(|state| wholes.get(state)) {
            assert_eq!(names, *whole, "{owner} is not whole");
        }
    }
}
