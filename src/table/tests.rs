//! Tests of the whole table: growth, rule changes, memory.

use super::array::{Array, Dawn, Place};
use super::memory::{self, Memory, MemoryGrant};
use super::rules::{Changed, Rules};
use super::size::Size;
use super::turnover::{LEAST_MEMORY, TRIES, Table, limit_after};
use super::*;
use crate::algorithm::Algorithm;
use crate::growth;
use crate::quota::{Enforced, Quota};
use crate::reclaim::under_guard;
use crate::rule::AnyRule;
use crate::state::Since;
use crate::time::Tick;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

fn rule() -> Enforced<AnyRule> {
    rule_of(Quota::per_second(1))
}

fn rule_of(quota: Quota) -> Enforced<AnyRule> {
    let rule = AnyRule::new(Algorithm::TokenBucket, quota, Duration::ZERO).unwrap();
    Enforced { rule, quota }
}

fn table() -> Table {
    Table::new(1_000, Duration::ZERO, rule()).unwrap()
}

fn insert(table: &Table, key: Fingerprint, now: Tick) {
    assert!(table.find_or_insert(key, now, 1).is_some_and(|(answer, _)| answer.is_allowed()));
}

/// Requests a place in the root.
fn place(table: &Table) -> Place {
    table.with_arrays(|root, _| root.place(None, Tick::ZERO))
}

/// Creates a root for `limit` keys, into which `survivors` keys were moved from the previous array.
fn root(limit: u64, survivors: u64) -> Array {
    let size = Size::first(limit);
    let permit = MemoryGrant::take(&Memory::new(LEAST_MEMORY), Array::bytes_of(size)).unwrap();
    Array::new(size, survivors, Dawn::first(), Rules::new(rule()), permit).unwrap()
}

#[test]
fn a_root_that_is_less_than_a_quarter_used_is_followed_by_a_smaller_array() {
    let root = root(80, 0);
    assert_eq!(root.chunks(), 11);
    // The next limit is twice the number of keys, but at least the number of keys plus the number
    // of chunks.
    for (used, limit) in [(0, 11), (10, 21), (11, 22), (12, 24), (19, 38), (20, 80), (79, 80)] {
        assert_eq!(limit_after(&root, used, Tick::ZERO), limit, "{used} used");
    }
}

#[test]
fn keys_stay_if_more_than_half_of_a_root_came_from_the_array_before() {
    let slowly = Tick::ZERO + Duration::from_secs(60);
    for (survivors, limit) in [(0, 80), (40, 80), (41, 160)] {
        assert_eq!(limit_after(&root(80, survivors), 80, slowly), limit, "{survivors} survivors");
    }
}

/// The change must not wait forever for a stopped thread.
#[test]
fn a_change_that_gets_no_memory_gives_up_and_changes_nothing() {
    let (table, tries) = (table(), Cell::new(0));
    let changed = table.change(Tick::ZERO, |_, _| {
        tries.set(tries.get() + 1);
        assert!(tries.get() <= TRIES, "it does not give up");
        Changed::NotPermitted
    });
    assert_eq!((changed, tries.get()), (false, TRIES));
    assert_eq!(table.with_rules(Rules::changes), 0);
    assert_eq!(place(&table), Place::Given, "the root is not closed");
}

/// Until a next array is permitted, the root stays open, even for a `clear`. (A `clear` starts a
/// turnover even if the last turnover is recent.)
#[test]
fn a_root_is_not_closed_while_no_next_array_is_permitted() {
    let table = table();
    insert(&table, Fingerprint::of_hash(1 << 40), Tick::ZERO);
    let rest = MemoryGrant::take(&table.memory, LEAST_MEMORY - table.memory.bytes()).unwrap();
    assert!(!table.begin_turnover(Tick::ZERO));
    assert_eq!(place(&table), Place::Given);
    drop(rest);
    assert!(table.begin_turnover(Tick::ZERO));
    assert_eq!(place(&table), Place::Closed);
}

/// While a `clear` visits all keys, other threads may turn the table over any number of times.
#[test]
fn a_visit_of_all_keys_keeps_few_arrays() {
    const KEYS: u64 = 500;
    let table = table();
    for hash in 1..=KEYS {
        insert(&table, Fingerprint::of_hash(hash << 40), Tick::ZERO);
    }
    let turnovers = || table.stats().turnovers;
    let before = turnovers();
    table.each(|_| {
        assert!(table.begin_turnover(Tick::ZERO), "no memory after {} turnovers", turnovers());
        while table.tend(64, Tick::ZERO) {}
        Some(())
    });
    assert!(turnovers() - before >= KEYS, "a turnover at each key");
}

/// Each time the call has looked at its key, other threads turn the table over.
#[test]
fn a_call_that_is_held_up_in_many_eras_keeps_few_arrays() {
    const TIMES: u64 = 2_000;
    let (table, key) = (table(), Fingerprint::of_hash(1 << 40));
    insert(&table, key, Tick::ZERO);
    let turnovers = || table.stats().turnovers;
    let found = table.known(key, |_| {
        (turnovers() == TIMES).then_some(()).or_else(|| {
            assert!(table.begin_turnover(Tick::ZERO), "no memory after {} turnovers", turnovers());
            while table.tend(64, Tick::ZERO) {}
            None
        })
    });
    assert_eq!(found, Some(()));
}

/// The change requests memory before it closes the root, when the final number of keys is still
/// unknown. Therefore it requests the maximum size of the next array.
#[test]
fn a_change_while_the_root_is_full_makes_it_larger() {
    let table = table();
    for hash in 0..growth::FIRST {
        insert(&table, Fingerprint::of_hash(hash << 32), Tick::ZERO);
    }
    let full = usize::try_from(growth::FIRST).unwrap();
    assert_eq!((table.len(), table.stats().room), (full, full));
    let quota = Quota::per_second(2);
    let changed =
        |rules: &Rules, memory: &Arc<Memory>| rules.changed(&Since::START, Some(rule_of(quota)), &[], memory);
    assert!(table.change(Tick::ZERO, changed));
    assert_eq!((table.len(), table.stats().room), (full, 4 * full));
}

/// An earlier array contains frozen words and sealed slots, or soon will.
#[test]
fn no_key_comes_into_a_view_of_an_earlier_array() {
    let charge = |view: View<'_>, key| {
        let found = view.first_line(key).find(key);
        view.take_or_insert(found, key, Tick::ZERO, 1).map(|(_, is_charged)| is_charged)
    };
    let [other, key] = [1, 2].map(|hash| Fingerprint::of_hash(hash << 40));
    let table = under_guard(|guard| {
        let table = table();
        insert(&table, other, Tick::ZERO);
        let view = table.view(guard)?;
        assert!(table.begin_turnover(Tick::ZERO));
        assert_eq!((charge(view, other), charge(view, key)), (Some(false), None));
        while table.tend(1, Tick::ZERO) {}
        assert_eq!((table.stats().turnovers, table.len()), (1, 1));
        assert_eq!((charge(view, other), charge(view, key)), (None, None));
        Ok(table)
    });
    under_guard(|guard| {
        let now = table.view(guard)?;
        assert_eq!((charge(now, other), charge(now, key)), (Some(false), Some(true)));
        assert_eq!((table.len(), charge(now, key)), (2, Some(false)));
        Ok(())
    });
}

#[test]
fn a_key_whose_slot_another_key_has_taken_takes_no_place_with_it() {
    under_guard(|guard| {
        let table = table();
        let view = table.view(guard)?;
        // The probe runs of both keys start in the same line.
        let [first, second] = [1, 2].map(|hash| Fingerprint::of_hash(hash << 40));
        let find = |key| view.first_line(key).find(key);
        let charge =
            |found, key| view.take_or_insert(found, key, Tick::ZERO, 1).map(|(_, is_charged)| is_charged);
        let lost = find(second);
        assert_eq!(charge(find(first), first), Some(true));
        assert_eq!((charge(lost, second), table.len()), (None, 1));
        assert_eq!(charge(find(second), second), Some(true));
        assert_eq!((charge(lost, second), table.len()), (None, 2));
        assert_eq!([first, second].map(|key| charge(find(key), key)), [Some(false); 2]);
        Ok(())
    });
}

/// Each insertion gives back a megabyte. Otherwise, a table with few new keys would retain the
/// memory allocated during a flood.
#[test]
#[cfg(target_os = "linux")]
fn new_keys_give_memory_back_before_others_come_in_at_once() {
    const LARGE: usize = 8 << 20;
    let table = table();
    let mut permit = MemoryGrant::take_up_to(&table.memory, LARGE as u64, 2 * LARGE as u64).unwrap();
    // SAFETY: the values are bytes, and they are 0.
    #[allow(unsafe_code)]
    let mut block = unsafe { memory::zeroed(LARGE, || 0_u8) }.unwrap();
    block.leave(&mut permit);
    under_guard(|guard| {
        let view = table.view(guard)?;
        let comes_at_once = |key: u64| {
            let key = Fingerprint::of_hash(key << 56);
            let found = view.first_line(key).find(key);
            view.take_or_insert(found, key, Tick::ZERO, 1).is_some() || {
                insert(&table, key, Tick::ZERO);
                false
            }
        };
        assert!((1..=8).all(|key| table.memory.is_leaving() && !comes_at_once(key)));
        assert!(!table.memory.is_leaving() && comes_at_once(9));
        Ok(())
    });
}

#[test]
fn a_table_that_is_dropped_in_a_turnover_frees_both_arrays() {
    let table = table();
    let memory = Arc::clone(&table.memory);
    let one = memory.bytes();
    assert!(under_guard(|guard| Ok(table.begin(&*table.root(guard)?, Tick::ZERO, guard))));
    assert!(memory.bytes() > one);
    drop(table);
    assert_eq!(memory.bytes(), 0);
}
