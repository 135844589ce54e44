//! The sliding log: the time of every admission of one key, so that any trailing period is counted exactly.
//!
//! A request is admitted if its cost and all that was admitted in the period that ends with it are at most
//! the limit. Why not a ring of `limit` times: it holds the memory of the busiest key for every key, a request
//! of many tokens fills many places, and claiming a place and storing the time in it are two steps, so that a
//! thread stopped between them leaves a place of which nobody knows how old it is. Here both are one step, and
//! there is nothing between them to wait for, to help with, or to guess.
//!
//! # State
//!
//! A log is a chain of [`Chunk`]s, from the oldest that may still count (the *root*) to the newest (the
//! *tail*). A chunk is a row of slots. An admission is one slot, whatever it costs: its time and the *sum*
//! of all tokens admitted so far, in one word (`slot`). What a period admitted is the difference of two sums;
//! the first of its admissions is found by binary search (`view`). What was given back is noted beside the
//! slots (`refunds`).
//!
//! ```text
//! slot:   EMPTY -> admission      a charge; by compare-and-swap, in order, never changed again
//!         EMPTY -> CLOSED         the admission that comes does not fit this chunk, or a reset, or an eviction
//!                                 that leaves no large row behind
//!         EMPTY -> SEALED         the log ends: its key is evicted, or goes on under another quota
//! next:   null -> chunk           behind a full or closed row; the chunk has an admission in its first slot,
//!                                 or is empty and begins *anew* (a reset), or is sealed from the beginning
//! root:   null -> chunk           the first charge, or what is taken over from a sealed log (`carry`), or an end
//!         chunk -> next           when all admissions of a chunk are out of the window, or before a reset
//! ```
//!
//! A key's time is that of its last admission, or of a later request. A request with an older `now` (another
//! thread was quicker, or has a clock that is ahead) is judged at the key's time and counted there.
//!
//! # Invariants
//!
//! 1. A slot is written once, and only when all slots before it in its row are admissions.
//! 2. A chunk is linked only behind a row that takes no more admissions. So there is one place at which the log
//!    can go on: the first empty slot of the tail or, if there is none, its null link; before anything else
//!    the null root. Behind SEALED there is none.
//! 3. Along the chain, times never decrease and sums grow by what each admission took.
//! 4. The admissions in the window of any key's time have at most `limit` tokens that are not given back, or as
//!    many as were taken over if that is more.
//! 5. Refunds of a run of admissions are never read as more than was given back of it.
//! 6. A chunk that is retired has no admission that counts at the key's time, and the key's time stays.
//! 7. What a row needs to be read (its fields, its start) is in its chunk. No quota is.
//!
//! # Why it is right
//!
//! A charge looks for the place of invariant 2, adds up the window that ends at `max(now, last time)`, and
//! writes its admission into that very place by one compare-and-swap: of a slot, or of the link, with a chunk
//! that holds the admission. If it succeeds, nobody was admitted between, so the sum was right at that moment;
//! what was given back since then leaves more room, not less (invariants 3 and 5). If it fails, somebody
//! else was admitted, or the row was closed, and it looks again. Two requests at one instant take two slots.
//!
//! An admission is thus whole or not there. A thread that stops for good has either charged, and all see it,
//! or it has not; what it leaves undone (a hint, a chunk to be linked or retired, the sums above a refund) is
//! done by others or delays nobody.
//!
//! A period that reaches back to chunks that are retired is never asked about: the key's time has passed them
//! (invariant 6). That is why a stale `now` is raised to the key's time, instead of being judged by its own.
//!
//! Sums may overflow: only differences are used, and those are of one window.
//!
//! # The end of a log, and another quota
//!
//! Sealing is a compare-and-swap at the place of invariant 2, too. A charge comes before it, and then whoever
//! sealed an idle log looks again, and whoever goes on elsewhere finds the charge; or it finds the log sealed,
//! and so does everybody after it, for good. Who finds that is told `None` and goes where the key goes on.
//!
//! Another quota is another log, which [takes over](Log::take_over) what counts when the first one is sealed: the
//! admissions in the old window, each at its time, with what it still holds. Each helper makes a copy, and the
//! one that is installed is where the root was null. It is never null again, whatever happens to the log, so
//! a helper that comes late does nothing. An admission that is left out has left the old window by the key's
//! time in the new log, which begins there. So, for any quota that follows any other:
//!
//! - whoever could be charged under the old quota can be under a new one with no smaller limit and no longer
//!   period;
//! - in any interval as long as the shorter period (without one of its ends), the larger limit at most. For let
//!   the last admission in it be under the new quota: all others in it were in the window that it was judged by;
//! - under a limit that is less than what is held nothing is admitted until enough is out, and what was held is
//!   not forgotten if the limit is raised again.
//!
//! Under a longer period, what was taken over counts for that long; what had left the old window does not come
//! back.
//!
//! A refund finds its charge by its time, whatever the quota. A refund that finds the log unsealed and
//! gives back while others take over may be *lost*: the copy was made before. Then the key waits for these tokens
//! until they are out. It is not repeated in the new log, since the copy may have it already: then it would
//! be granted twice. Of a charge that is given back in full before the copy nothing is left, so what else is
//! asked for it may be taken from another charge of the same nanosecond, as always.
//!
//! # Bound
//!
//! In any interval as long as a period (without one of its ends) exactly the limit at most, by the times at
//! which admissions are counted. That is `now`, or the key's time where that is later.
//!
//! # Cost
//!
//! With n admissions in the window: a walk along the chunks, and a binary search in one of them for the
//! first admission that counts. A chunk has as many slots as admissions counted when it was begun, but no more
//! than twice those of the one before (8 at the least, 16,384 at the most). So there are about log2(n) chunks
//! after a burst, later 3 or 4, and n / 16,384 more: 61 for a million. A denial searches once more. Where
//! something was given back, each chunk of the window adds up its part, in log2 of its slots.
//!
//! A refund walks the chunks, and searches one of them; where many charges have one time (a coarse clock)
//! it goes down the tree of sums to one that holds something, in the square of log2 of its slots.
//!
//! A chunk also ends where a slot's time field does: 2^(63 - b) ns after its start. At first b =
//! bits(limit): that is 104 days for a limit of 1,000, 20 hours for 100,000, and 2.4 hours for
//! 1,000,000. The next one then has as many bits for tokens as its row will need, and more for the
//! time; so few admissions that come far apart share chunks.
//!
//! # Memory
//!
//! 8 bytes for each admission in the window, and about 150 for each chunk; with the slots that are
//! empty or out, three times that at the most while admissions come evenly. A row that ends early leaves
//! its other slots unused: at the most as many again as were used in the row before. 16 to 32 bytes for
//! each slot of a chunk in which something was given back. It is allocated as it is used: two blocks for each
//! chunk, so for a limit of 8 and less two for every 8 admissions. An idle log keeps what it has until it is
//! charged again, and then begins with a small chunk, or is sealed, and then has one slot or eight; all is freed
//! with its holder, in a loop, since a chain may be long.
//!
//! Another quota copies the window: 16 bytes for each admission that counts, in each thread that comes while
//! nobody is done, and as much more while it is made. The sealed log stays as it is until its holder goes.
//!
//! # Progress
//!
//! `check`, `refund`, `reset`, `seal`, `seal_if_idle` and `take_over` are lock-free: each time one begins again,
//! another has charged, reset or sealed. (The last never begins again.) A check allocates a chunk once in a
//! while, and the allocator is what it is; so do a seal, a refund, a change of quota. A denial only loads, and is
//! wait-free but for the walk along chunks that are linked meanwhile; so are `peek` and `is_idle`. They linearize
//! where they see the place of invariant 2, but for refunds: a `peek` that runs while others charge and refund
//! may count a refund and miss a charge before it. A charge can't: its compare-and-swap fails then.
//!
//! Chunks that are retired wait in the bag of the limiter until no guard may have seen them (see `reclaim`). They are counted:
//! besides what a parked thread keeps, which is no more than the log took when it stopped, 64 KiB wait for all logs of the
//! limiter together, and the chunk that came last. A log is dropped by the last who has a
//! reference to it. Others may be under a guard then, but not in a method of this log: none of them gives
//! out a chunk, so nobody looks at what is freed at once.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | row | the compare-and-swap of a slot (`chunk`) | each load of a slot | the slots before it, filled by other threads; what was done before the log was sealed | `an_admission_shows_all_before_it` |
//!
//! *link*, of `sync`, does the rest: who sees a chunk sees what it was made with, and the row before it. Hints
//! and refunds are relaxed: each says why.

mod carry;
mod chunk;
mod refunds;
mod request;
mod slot;
mod step;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod view;
mod window;

pub(crate) use window::SlidingLog;

use crate::decision::Decision;
use crate::reclaim::{Bag, Guard, Link};
use crate::time::Tick;
use carry::carry;
use chunk::{Behind, Chunk, End, Start, Write};
use request::Request;
use slot::{EMPTY, Fields, Mark};
use step::{Step, reach};
use view::View;

/// The admissions of one key. See the page of this module.
#[derive(Debug)]
pub(crate) struct Log {
    root: Link<Chunk>,
}

impl Log {
    /// A log without admissions. It holds no memory but its own 8 bytes.
    pub(crate) fn new() -> Self {
        Self { root: Link::null() }
    }

    /// Decides a request of `cost` tokens at `now`, and charges it if it is allowed; `None` if the log is sealed.
    /// Lock-free.
    #[inline]
    pub(crate) fn check(
        &self,
        rule: &SlidingLog,
        now: Tick,
        cost: u64,
        guard: &Guard,
        retired: &Bag,
    ) -> Option<Decision> {
        self.check_from(|| Tick::ZERO, rule, now, cost, guard, retired)
    }

    /// The same, where nobody has begun the log no earlier than at `mark()`. Lock-free.
    #[inline]
    pub(crate) fn check_from(
        &self,
        mark: impl Fn() -> Tick,
        rule: &SlidingLog,
        now: Tick,
        cost: u64,
        guard: &Guard,
        retired: &Bag,
    ) -> Option<Decision> {
        loop {
            let view = View::of(&self.root, rule, now, guard);
            if view.as_ref().is_some_and(View::is_sealed) {
                return None;
            }
            let at = if view.is_some() { now } else { now.max(mark()) };
            let decision = Request { now: at, cost, is_peek: false }.answer(rule, view.as_ref(), guard);
            if decision.charged() == 0 {
                return Some(decision.late_by(at.as_nanos() - now.as_nanos()));
            }
            reach(Step::Decided);
            let time = view.as_ref().map_or(at.as_nanos(), |view| view.time);
            if let Some(first) = self.admit(rule, view.as_ref(), time, cost, guard) {
                self.retire_before(first, guard, retired);
                return Some(decision.late_by(at.as_nanos() - now.as_nanos()));
            }
        }
    }

    /// Has anybody begun it?
    pub(crate) fn is_begun(&self) -> bool {
        self.root.is_linked()
    }

    /// What [`check`](Self::check) would answer, with the figures as they are before a charge; `None` if the log
    /// is sealed. Only loads.
    pub(crate) fn peek(&self, rule: &SlidingLog, now: Tick, cost: u64, guard: &Guard) -> Option<Decision> {
        let view = View::of(&self.root, rule, now, guard);
        if view.as_ref().is_some_and(View::is_sealed) {
            return None;
        }
        Some(Request { now, cost, is_peek: true }.answer(rule, view.as_ref(), guard))
    }

    /// Gives back `tokens` of what `charge` took, or what is left of it, until it is out of the window; `None`
    /// if the log is sealed. Among charges of one time it takes any, for they leave the window together.
    /// Lock-free.
    ///
    /// What a charge took is not given back after a reset. A charge that no log made gives back nothing; one that
    /// was made under another quota is known by its time, and gives back what it still holds. A charge that is not
    /// `is_current` gives back nothing; that is asked when it is known where the log begins, so after each reset that
    /// has moved this.
    pub(crate) fn refund_if(
        &self,
        charge: &Decision,
        tokens: u64,
        is_current: impl Fn() -> bool,
        guard: &Guard,
    ) -> Option<()> {
        // From the last reset on.
        let Some((first, tail)) = View::walk(&self.root, None, guard) else { return Some(()) };
        if tail.end().behind == Behind::Sealed {
            return None;
        }
        let Some((until, period)) = charge.held() else { return Some(()) };
        // None if a window began before tick 0, of the charge of another limiter.
        let Some(time) = until.checked_sub(period) else { return Some(()) };
        let mut left = tokens.min(charge.charged());
        if left == 0 || !is_current() {
            return Some(());
        }
        let chunks = std::iter::successors(Some(first), |chunk| View::next_before(chunk, tail, guard));
        let chunks: Vec<_> = chunks.take_while(|chunk| chunk.start.mark.time <= time).collect();
        // The last first, here and in a chunk: who takes from a charge that came after its own leaves as much
        // where the refund of that one comes by. Forwards, it might be in a charge that this one can't see yet.
        for chunk in chunks.into_iter().rev() {
            match chunk.give_back(time, left) {
                Some(given) if given < left => left -= given,
                _ => break,
            }
        }
        Some(())
    }

    /// The same of a charge that is current.
    #[cfg(any(test, tollgate_loom))]
    pub(crate) fn refund(&self, charge: &Decision, tokens: u64, guard: &Guard) -> Option<()> {
        self.refund_if(charge, tokens, || true, guard)
    }

    /// Makes the key as good as new, at the time it has come to; `None` if the log is sealed. Lock-free.
    pub(crate) fn reset(&self, rule: &SlidingLog, guard: &Guard, retired: &Bag) -> Option<()> {
        while let Some((_, tail)) = View::walk(&self.root, None, guard) {
            let end = tail.end();
            if end.behind == Behind::Sealed {
                return None;
            }
            if tail.start.anew && end.filled == 0 {
                return Some(());
            }
            if end.behind == Behind::Empty && tail.close(end.filled) == Write::Lost {
                continue;
            }
            let start =
                Start { anew: true, fields: rule.fields, ..Self::start_behind(tail, &end, end.last.time) };
            if let Some(chunk) = tail.next.install(Chunk::new(start, 0, EMPTY), guard) {
                reach(Step::Linked);
                self.retire_before(chunk, guard, retired);
                break;
            }
        }
        Some(())
    }

    /// Does it behave like a new log at `now` and ever after? (Or did it, when it was sealed?) Only loads.
    pub(crate) fn is_idle(&self, rule: &SlidingLog, now: Tick, guard: &Guard) -> bool {
        View::of(&self.root, rule, now, guard).is_none_or(|view| view.is_idle(now))
    }

    /// A time from which on it is idle, if nobody charges it: that of its end if all was given
    /// back, else when the last admission is out.
    fn idle_from(&self, rule: &SlidingLog, view: &View<'_>, guard: &Guard) -> Tick {
        let last = Tick::from_nanos(view.end.last.time);
        if self.is_idle(rule, last, guard) { last } else { Tick::from_nanos(last.as_nanos() + rule.period) }
    }

    /// The bytes it points to, without those that are retired.
    pub(crate) fn bytes(&self, guard: &Guard) -> usize {
        let Some((_, tail)) = View::walk(&self.root, None, guard) else { return 0 };
        // All but those that were retired meanwhile.
        let root = self.root.load(guard).filter(|root| root.start.number < tail.start.number);
        let chunks =
            std::iter::successors(root.or(Some(tail)), |chunk| View::next_before(chunk, tail, guard));
        chunks.map(Chunk::size).sum()
    }

    /// Writes an admission at the end of the log as it was seen: the first chunk that counts now. `None` if the
    /// log has gone on since.
    #[inline]
    fn admit<'g>(
        &'g self,
        rule: &SlidingLog,
        view: Option<&View<'g>>,
        time: u64,
        cost: u64,
        guard: &'g Guard,
    ) -> Option<&'g Chunk> {
        let Some(view) = view else {
            return Self::link(&self.root, Start::first(time, rule.fields), 0, cost, guard);
        };
        let (tail, end) = (view.tail.chunk, &view.end);
        if end.behind == Behind::Empty {
            let mark = Mark { time, tokens: end.last.tokens.wrapping_add(cost) };
            // After a burst, when nothing is left of it: don't keep its memory.
            let is_too_large = view.live == 0 && tail.is_larger_than_the_smallest();
            let written = match is_too_large {
                true => Write::DoesNotFit,
                false => tail.append(end.filled, mark),
            };
            match written {
                Write::Done => return Some(view.first.chunk),
                Write::Lost => return None,
                Write::DoesNotFit if tail.close(end.filled) == Write::Lost => return None,
                Write::DoesNotFit => reach(Step::Closed),
            }
        }
        let slots = Chunk::slots_behind(end, view.live);
        let fields = tail.fields_behind(end, slots, rule.fields, time, cost);
        let start = Start { fields, ..Self::start_behind(tail, end, time) };
        let linked = Self::link(&tail.next, start, slots, cost, guard)?;
        Some(if view.live == 0 { linked } else { view.first.chunk })
    }

    /// Links a chunk of so many slots with an admission in it. `None` if another thread was first.
    #[cold]
    fn link<'g>(
        link: &'g Link<Chunk>,
        start: Start,
        slots: usize,
        cost: u64,
        guard: &'g Guard,
    ) -> Option<&'g Chunk> {
        // The fields were chosen so that it fits.
        let first = start.fields.pack(Mark { time: 0, tokens: cost }).unwrap_or(EMPTY);
        let chunk = link.install(Chunk::new(start, slots, first), guard)?;
        reach(Step::Linked);
        Some(chunk)
    }

    /// Where a chunk begins that comes behind `tail`, with its fields.
    fn start_behind(tail: &Chunk, end: &End, time: u64) -> Start {
        Start {
            number: tail.start.number + 1,
            admissions: tail.start.admissions + end.filled as u64,
            mark: Mark { time, tokens: end.last.tokens },
            before: tail.last_admission(end),
            anew: false,
            fields: tail.start.fields,
        }
    }

    /// Retires the chunks before one in which nothing counts any more.
    #[inline]
    fn retire_before(&self, first: &Chunk, guard: &Guard, retired: &Bag) {
        while let Some(root) = self.root.load(guard).filter(|root| root.start.number < first.start.number) {
            if self.root.advance(root, &root.next, guard, retired) {
                reach(Step::Retired);
            }
        }
    }

    /// Ends the log, whatever it holds, so that the key goes on elsewhere; does nothing if it is sealed. Who
    /// finds it sealed sees what the thread that sealed it did before. Lock-free.
    pub(crate) fn seal(&self, guard: &Guard) {
        while !self.try_seal(guard) {}
    }

    /// Is it sealed for good?
    pub(crate) fn is_sealed(&self, guard: &Guard) -> bool {
        View::walk(&self.root, None, guard).is_some_and(|(_, tail)| tail.end().behind == Behind::Sealed)
    }

    /// Ends the log if it is idle at `judged_at`, and keeps next to nothing of its memory. True if it is sealed
    /// now, by whomever. Before it is sealed, `forget` is told a time from which on it is idle.
    /// Lock-free.
    pub(crate) fn seal_if_idle(
        &self,
        rule: &SlidingLog,
        judged_at: Tick,
        guard: &Guard,
        retired: &Bag,
        forget: impl Fn(Tick),
    ) -> bool {
        loop {
            let Some(view) = View::of(&self.root, rule, judged_at, guard) else {
                if self.try_seal(guard) {
                    return true;
                }
                continue;
            };
            if view.is_sealed() {
                return true;
            }
            if !view.is_idle(judged_at) {
                return false;
            }
            forget(self.idle_from(rule, &view, guard).min(judged_at));
            let (tail, end) = (view.tail.chunk, &view.end);
            let holds_little = tail.start.number == 0 && !tail.is_larger_than_the_smallest();
            if end.behind == Behind::Empty {
                let written = if holds_little { tail.seal(end.filled) } else { tail.close(end.filled) };
                match written {
                    Write::Done if holds_little => return true,
                    Write::Done => reach(Step::Closed),
                    _ => continue,
                }
            }
            // The key's time is that of the judgement, for what is retired is out of no earlier window.
            let sealed = Chunk::sealed(Self::start_behind(tail, end, view.time));
            if let Some(chunk) = tail.next.install(sealed, guard) {
                reach(Step::Linked);
                self.retire_before(chunk, guard, retired);
                return true;
            }
        }
    }

    /// Goes on where `sealed` has ended, under another quota: takes what counts there at the key's time, unless
    /// another thread has done that. Lock-free.
    ///
    /// Nobody may charge this log before somebody has called this. It may be called again at any time
    /// after, also when this log has been charged or sealed, and then does nothing.
    pub(crate) fn take_over(
        &self,
        sealed: &Self,
        old: &SlidingLog,
        new: &SlidingLog,
        now: Tick,
        guard: &Guard,
    ) {
        if self.root.is_linked() {
            return;
        }
        // So nothing comes after what is taken over, and there is something to look at.
        sealed.seal(guard);
        let Some(view) = View::of(&sealed.root, old, now, guard) else { return };
        if view.is_of_nothing() {
            // Nobody has begun it, so nobody has begun this one: it has no time yet. Nothing comes
            // of who comes late.
            return;
        }
        let mut own = Self { root: Link::to(carry(&view, old, new, guard)) };
        reach(Step::Carried);
        // If another thread was first, what was made here is freed with `own`.
        self.root.install_from(&mut own.root);
    }

    /// Seals the log where it ends just now; false if it has gone on since.
    fn try_seal(&self, guard: &Guard) -> bool {
        let Some((_, tail)) = View::walk(&self.root, None, guard) else {
            let start = Start::first(0, Fields::of_tokens(1));
            return self.root.install(Chunk::sealed(start), guard).is_some();
        };
        let end = tail.end();
        match end.behind {
            Behind::Sealed => true,
            Behind::Empty => tail.seal(end.filled) == Write::Done,
            Behind::Chunk => {
                let sealed = Chunk::sealed(Self::start_behind(tail, &end, end.last.time));
                tail.next.install(sealed, guard).is_some()
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let mut chunk = self.root.take();
        while let Some(mut last) = chunk {
            chunk = last.next.take();
        }
    }
}
