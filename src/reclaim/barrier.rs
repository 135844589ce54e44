//! A fence in two halves: a light one for readers, and a heavy one that makes up for it.
//!
//! A thread that announces that it reads, and then reads, needs a fence between the two: without
//! one, another thread may see neither. That fence is a large part of a check. So readers only keep
//! the compiler from moving one past the other ([`light_where_heavy_is`]), and whoever collects has
//! the system run a fence on every processor that runs a thread of this process ([`heavy`]; some
//! microseconds, once in a collection). One light and one heavy half together do what two fences
//! do; two light ones do nothing. The terms are those of P1202, *Asymmetric Fences*, a proposal for
//! C++; Linux promises it of `membarrier(2)` from 4.14 on.
//!
//! Where the system has no such call, or refuses it, both halves are fences. Which of the two holds is found
//! out once for the whole process ([`is_there`]). A process that forbids itself the call later has nothing
//! freed from then on: tables keep to their bound on memory, but what logs retire stays.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | barrier | `heavy`, after a value is unlinked | `light`, after a guard or an age is announced | to one of the two what the other did before: the announcement, or that the value is unlinked | `nothing_is_freed_under_a_guard`, `nothing_is_freed_under_a_guard_that_goes_on` |

#[cfg(tollgate_loom)]
use model::{SeqCst, compiler_fence, fence, system};
#[cfg(not(tollgate_loom))]
use std::sync::atomic::{Ordering::SeqCst, compiler_fence, fence};

#[cfg(tollgate_loom)]
pub(super) use model::Halves;
#[cfg(tollgate_loom)]
pub(super) use model::is_there;
#[cfg(not(tollgate_loom))]
pub(super) use real::is_there;
#[cfg(not(tollgate_loom))]
use real::system;

/// Between an announcement and what is loaded then.
pub(super) fn light() {
    if is_there() {
        light_where_heavy_is();
    } else {
        // ORDERING: *barrier*.
        fence(SeqCst);
    }
}

/// The same where [`is_there`] has answered that there is a heavy half.
#[inline(always)]
pub(super) fn light_where_heavy_is() {
    // ORDERING: *barrier*; the processor's part is in `heavy`.
    compiler_fence(SeqCst);
}

/// Between unlinking a value and looking who reads. False if the system has refused it: then nothing is known
/// of who reads.
pub(super) fn heavy() -> bool {
    // ORDERING: *barrier*, for this thread, and where there is no heavy half for all.
    fence(SeqCst);
    !is_there() || system::fence_all() || system::register() && system::fence_all()
}

/// In models both halves are fences, which is what the two are together; or nothing, where what is shown must
/// not rest on them.
#[cfg(tollgate_loom)]
mod model {
    pub(super) use loom::sync::atomic::Ordering::SeqCst;
    use loom::sync::atomic::{Ordering, fence as fence_of_loom};
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// What the halves are in a model.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Halves {
        /// Fences.
        Fences,
        /// Fences, as on a system without the heavy half: no thread makes a guard at once.
        Alike,
        /// Nothing.
        Nothing,
    }

    /// The harness's own: models run one at a time.
    static HALVES: AtomicU8 = AtomicU8::new(Halves::Fences as u8);

    impl Halves {
        /// For all models of the process, from now on.
        pub(crate) fn set(self) {
            // ORDERING: relaxed; see `HALVES`.
            HALVES.store(self as u8, Relaxed);
        }

        fn are(self) -> bool {
            // ORDERING: relaxed; see `HALVES`.
            HALVES.load(Relaxed) == self as u8
        }
    }

    pub(crate) fn is_there() -> bool {
        !Halves::Alike.are()
    }

    pub(super) fn fence(order: Ordering) {
        if !Halves::Nothing.are() {
            fence_of_loom(order);
        }
    }

    /// Loom has none: what it does together with the heavy half.
    pub(super) use fence as compiler_fence;

    pub(super) mod system {
        pub(crate) fn register() -> bool {
            true
        }

        /// The caller's own fence does it here.
        pub(crate) fn fence_all() -> bool {
            true
        }
    }
}

#[cfg(not(tollgate_loom))]
mod real {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    const UNKNOWN: u8 = 0;
    const THERE: u8 = 1;
    const MISSING: u8 = 2;

    static FOUND: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Is there a heavy half? Always the same answer: a system may permit it to one thread and not to another,
    /// and then no thread may trust in it.
    pub(crate) fn is_there() -> bool {
        // ORDERING: relaxed; there is one answer, which the first thread that asks decides.
        let found = match FOUND.load(Relaxed) {
            UNKNOWN => {
                let mine = if system::register() { THERE } else { MISSING };
                // ORDERING: relaxed; as above.
                FOUND.compare_exchange(UNKNOWN, mine, Relaxed, Relaxed).map_or_else(|first| first, |_| mine)
            }
            found => found,
        };
        found == THERE
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    pub(super) mod system {
        use libc::{
            MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, SYS_membarrier,
            c_int, syscall,
        };

        /// Announces that this process wants such fences. Needed once; a child that was forked may have to do it again.
        pub(crate) fn register() -> bool {
            membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
        }

        pub(crate) fn fence_all() -> bool {
            membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        }

        fn membarrier(command: c_int) -> bool {
            const FLAGS: c_int = 0;
            const PROCESSOR: c_int = 0;
            // SAFETY: it takes three numbers, and neither reads nor writes memory of the program.
            #[allow(unsafe_code)]
            let answer = unsafe { syscall(SYS_membarrier, command, FLAGS, PROCESSOR) };
            answer == 0
        }
    }

    /// There is none, or none that was tried.
    #[cfg(any(not(target_os = "linux"), miri))]
    pub(super) mod system {
        pub(crate) fn register() -> bool {
            false
        }

        pub(crate) fn fence_all() -> bool {
            false
        }
    }
}
