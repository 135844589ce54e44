//! A fence in two halves: one that costs readers nothing, and one that makes up for it.
//!
//! A thread that says that it reads, and then reads, needs a fence between the two: or another thread may see neither.
//! That fence is a fifth of a check. So readers only keep the compiler from moving one past the other ([`light`]), and
//! who wants to know who reads has the system run a fence on every processor that runs a thread of this process
//! ([`heavy`]; some microseconds, seldom). One light and one heavy half together do what two fences do; two light ones do
//! nothing. No language promises that yet: the terms are those of P1202, *Asymmetric Fences*, a proposal for C++; the kernel
//! promises it of `membarrier(2)` of Linux, from 4.14 on, to threads whose compilers moved nothing.
//!
//! Whether there is such a fence is found out once, for the whole process: see [`is_there`]. A process that forbids itself the
//! call later has nothing freed from then on: tables keep to their bound on memory, but logs grow.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | barrier | `heavy`, after a value is unlinked | `light`, after a guard is made | to one of the two what the other did before: that a guard was made, or that the value is unlinked | `retire_races_a_place_and_frees_nothing_under_its_guard` |

#[cfg(tollgate_loom)]
pub(super) use model::{MISSING, heavy, is_there, light};

#[cfg(not(tollgate_loom))]
pub(super) use real::{MAY_BE_THERE, heavy, is_there, light};

/// Models have a fence on both sides, which is what the two halves are together.
#[cfg(tollgate_loom)]
mod model {
    use loom::sync::atomic::{Ordering::SeqCst, fence};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    /// Is it to be missing? The harness's own, for the models that run one at a time.
    pub(crate) static MISSING: AtomicBool = AtomicBool::new(false);

    pub(crate) fn is_there() -> bool {
        // ORDERING: relaxed; see above.
        !MISSING.load(Relaxed)
    }

    pub(crate) fn light() {
        // ORDERING: *barrier*.
        fence(SeqCst);
    }

    pub(crate) fn heavy() -> bool {
        // ORDERING: *barrier*.
        fence(SeqCst);
        true
    }
}

#[cfg(not(tollgate_loom))]
mod real {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed, compiler_fence};

    const UNKNOWN: u8 = 0;
    const THERE: u8 = 1;
    const MISSING: u8 = 2;

    /// Has this kind of system such a fence? (Miri does not know the call.)
    pub(crate) const MAY_BE_THERE: bool = cfg!(all(target_os = "linux", not(miri)));

    static FOUND: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Is there a heavy half? Always the same answer: a system may permit it to one thread and not to another, and then
    /// no thread may trust in it that another does not.
    pub(crate) fn is_there() -> bool {
        // ORDERING: relaxed; there is one answer, and whoever is first to give it decides.
        let found = match FOUND.load(Relaxed) {
            UNKNOWN => {
                let mine = if system::register() { THERE } else { MISSING };
                FOUND.compare_exchange(UNKNOWN, mine, Relaxed, Relaxed).map_or_else(|first| first, |_| mine)
            }
            found => found,
        };
        found == THERE
    }

    /// Between saying that one reads and reading.
    #[inline(always)]
    pub(crate) fn light() {
        // ORDERING: *barrier*; the processor's part is in `heavy`.
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }

    /// Between unlinking a value and looking who reads. False if the system has refused it: then nothing is known.
    pub(crate) fn heavy() -> bool {
        light();
        // Where there is none, there is no reader that relies on it.
        let is_done = !is_there() || system::fence_all() || system::register() && system::fence_all();
        light();
        is_done
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    mod system {
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
    mod system {
        pub(crate) fn register() -> bool {
            false
        }

        pub(crate) fn fence_all() -> bool {
            false
        }
    }
}
