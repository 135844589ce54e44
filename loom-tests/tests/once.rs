//! A pointer that is set once, using the real code of `src/reclaim/once.rs`. Any thread that finds
//! the value sees all of it. If two threads set a value, both receive the first one.

#[cfg(not(crossbeam_loom))]
compile_error!("run cargo from `loom-tests/` and without RUSTFLAGS: see `.cargo/config.toml`");

mod model;

// The module of its crate that `src/reclaim/once.rs` uses.
use tollgate::sync;

#[path = "../../src/reclaim/once.rs"]
mod once;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use model::{Atomics, Bound, Seen, explore};
use once::OnceLink;

/// A value that is written after its creation. Loom reports a read that may happen before the
/// write.
struct Value(UnsafeCell<u64>);

// SAFETY: loom checks each access to the cell.
#[allow(unsafe_code)]
unsafe impl Send for Value {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Value {}

impl Value {
    fn new(number: u64) -> Self {
        let value = Self(UnsafeCell::new(0));
        // SAFETY: no other thread has the value.
        #[allow(unsafe_code)]
        value.0.with_mut(|cell| unsafe { *cell = number });
        value
    }

    fn look(&self) -> u64 {
        // SAFETY: loom checks that no thread writes to the cell meanwhile.
        #[allow(unsafe_code)]
        self.0.with(|cell| unsafe { *cell })
    }
}

#[test]
fn a_value_that_is_found_is_seen_whole() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
        let link = Arc::new(OnceLink::null());
        let other = threads.spawn({
            let link = Arc::clone(&link);
            move || link.get_or(|| Value::new(1)).look()
        });
        note.note(link.get().map(Value::look));
        assert_eq!(other.join().unwrap(), 1);
        assert_eq!(link.get().map(Value::look), Some(1));
    });
    seen.expect(&["None", "Some(1)"]);
}

#[test]
fn two_set_a_value_and_both_get_the_first() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
        let link = Arc::new(OnceLink::null());
        let other = threads.spawn({
            let link = Arc::clone(&link);
            move || link.get_or(|| Value::new(1)).look()
        });
        let mine = link.get_or(|| Value::new(2)).look();
        assert_eq!(other.join().unwrap(), mine);
        note.note(mine);
    });
    seen.expect(&["1", "2"]);
}
