//! Under random schedules, four threads reserve, hold permits, charge several limits at once, force
//! charges, give back and change quotas. In the end the state of every limit agrees with the
//! answers, as with real threads (`tests/conservation.rs`). `tests/schedules.rs` describes what
//! shuttle can show.

#[path = "../../accounts/mod.rs"]
mod accounts;
mod runner;

use accounts::{Account, Built, Dice, EVENTS, Events, Scale, World, add};
use loom as shuttle;
use shuttle::rand::{Rng, thread_rng};
use std::fmt;
use std::sync::{Arc, Mutex};
use tollgate::Algorithm;
use tollgate::store::{ExactKeys, Fingerprints};

/// There are few keys, so that all threads use the same keys, and small limits, which are soon
/// reached.
const SCALE: Scale =
    Scale { threads: 4, operations: 18, keys: 3, caps: &[4, 64], limit: 5, cost: 2, debt: 2, places: 2 };

/// The random numbers, which follow from the seed of a schedule.
struct OfSchedule;

impl Dice for OfSchedule {
    fn below(&mut self, n: u64) -> u64 {
        thread_rng().gen_range(0..n)
    }
}

/// One execution.
fn schedule<S: Built>(algorithm: Algorithm) -> Events {
    let world = Arc::new(World::<S>::new(algorithm, SCALE, &mut OfSchedule));
    let threads = (0..SCALE.threads).map(|number| {
        let world = Arc::clone(&world);
        shuttle::thread::spawn(move || world.work(number, OfSchedule))
    });
    let threads: Vec<_> = threads.collect();
    let mut sum = Account::default();
    threads.into_iter().for_each(|thread| sum.add(thread.join().unwrap()));
    world.balance(sum)
}

fn every_token_is_where_the_answers_say<S: Built>(store: impl fmt::Display) {
    for (index, &algorithm) in (0..).zip(S::ALGORITHMS) {
        let events = Arc::new(Mutex::new(Events::new()));
        let counted = Arc::clone(&events);
        let what = format_args!("{store}, {algorithm}");
        // Each algorithm has its own seeds.
        runner::run(what, index, move || add(&mut counted.lock().unwrap(), schedule::<S>(algorithm)));
        let events = events.lock().unwrap();
        println!("{what}: {events:?}");
        let is_missing = |event: &&str| !events.contains_key(event);
        let missing = EVENTS.iter().copied().find(is_missing);
        assert!(runner::repeated().is_some() || missing.is_none(), "nothing was {missing:?}");
    }
}

#[test]
fn a_table_at_random_schedules_keeps_what_it_is_told() {
    every_token_is_where_the_answers_say::<Fingerprints>("fingerprints");
}

#[test]
fn exact_keys_at_random_schedules_keep_what_they_are_told() {
    every_token_is_where_the_answers_say::<ExactKeys<u64>>("exact keys");
}
