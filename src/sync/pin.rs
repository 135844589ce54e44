//! The readers of this process, and the place of each thread among them.

use super::barrier::{self, MAY_BE_THERE};
use super::readers::{Guard, Reader, Readers};
use std::cell::Cell;

static READERS: Readers = Readers::new();

thread_local! {
    static MINE: Cell<Option<&'static Reader>> = const { Cell::new(None) };
    /// Apart from it, for what is dropped with its thread takes longer to look at.
    static STAY: Stay = const { Stay };
}

/// Hands the thread's place on when the thread ends.
struct Stay;

impl Drop for Stay {
    fn drop(&mut self) {
        if let Some(reader) = MINE.take() {
            reader.leave_for_good();
            READERS.hand_over();
        }
    }
}

/// A guard for this thread. Wait-free, but for the first of a thread, which gives it a place, and where limbo is to be looked
/// after: see `readers`.
#[inline(always)]
pub(crate) fn pin() -> Guard {
    pin_at_once().unwrap_or_else(pin_slowly)
}

/// The same, if the thread has a place, and holds no other guard, and has held one in this age. (Where no thread ever has a place,
/// all guards are alike, and this is one.)
#[inline(always)]
pub(crate) fn pin_at_once() -> Option<Guard> {
    if MAY_BE_THERE { MINE.get().and_then(|reader| READERS.pin(reader)) } else { Some(pin_slowly()) }
}

#[cold]
#[inline(never)]
fn pin_slowly() -> Guard {
    let reader = MINE.get().or_else(settle);
    // (Who has no place is asked nothing: where nobody has one, the epochs look after themselves.)
    let is_first = reader.is_some_and(|reader| reader.held() == 0);
    let guard = reader.and_then(|reader| READERS.pin_slowly(reader)).unwrap_or_else(pin_epoch);
    if is_first && READERS.is_asked() {
        READERS.look_after(crossbeam_epoch::pin);
    }
    guard
}

/// A place for this thread, unless the system has no barrier for those who read there, or the thread is ending.
fn settle() -> Option<&'static Reader> {
    if !barrier::is_there() {
        return None;
    }
    STAY.try_with(|Stay| {
        let reader = READERS.place();
        MINE.set(Some(reader));
        reader
    })
    .ok()
}

fn pin_epoch() -> Guard {
    Guard::of_epoch(crossbeam_epoch::pin(), &READERS)
}

/// Frees what no guard needs any more. (The caller's own, under which something may have been retired, is one.)
pub(crate) fn collect(_guard: &Guard) {
    READERS.look_after(crossbeam_epoch::pin);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Without one, checks would be slower, and nothing else would show it.
    #[test]
    fn a_thread_that_reads_has_a_place_where_there_is_a_barrier() {
        drop(pin());
        assert_eq!(MINE.get().is_some(), barrier::is_there());
    }

    thread_local! {
        static LATE: Late = const { Late };
    }

    struct Late;

    impl Drop for Late {
        fn drop(&mut self) {
            // The thread's place is handed on already, and it may not take another.
            assert!(MINE.get().is_none());
            drop(pin());
            assert!(MINE.get().is_none());
        }
    }

    /// What was made first is dropped last.
    #[test]
    fn a_thread_that_ends_can_still_read() {
        let ends = thread::spawn(|| {
            LATE.with(|Late| ());
            let (first, second) = (pin(), pin());
            drop((first, second));
        });
        assert!(ends.join().is_ok());
    }
}
