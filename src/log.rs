//! The sliding log: it keeps the time of every admission of a key, so any trailing period is
//! counted exactly.
//!
//! A request is admitted if its cost and all that was admitted in the period that ends with it are
//! at most the limit.
//!
//! Why not a ring of `limit` times: every key would hold the memory of the busiest one, and a
//! request of many tokens would fill many places. And claiming a place and storing the time in it
//! would be two steps; a thread stopped between them would leave a place of unknown age. In a log
//! both are one step, so there is no half-done admission to wait for, to help with, or to guess
//! about.
//!
//! # State
//!
//! A log is a chain of [`Chunk`]s, from the oldest that may still count (the *root*) to the newest
//! (the *tail*). A chunk is a row of slots. An admission is one slot, whatever it costs: its time
//! and the *sum* of all tokens admitted so far, in one word (`slot`). The tokens that a period
//! admitted are the difference of two sums; binary search finds the first of its admissions
//! (`view`). Refunds are noted beside the slots (`refunds`).
//!
//! ```text
//! slot:   EMPTY -> admission   a charge; by compare-and-swap, in order, never changed again
//!         EMPTY -> EMPTY'      a change of quota
//!         EMPTY -> CLOSED      the next admission does not fit this chunk; or a reset; or an
//!                              eviction that keeps no large row
//!         EMPTY -> SEALED      the log ends: its key is evicted
//! next:   null -> chunk        behind a full or closed row; the chunk has an admission in its
//!                              first slot, or is empty and begins *anew* (a reset), or is empty
//!                              (a change of quota), or is sealed from the beginning
//! root:   null -> chunk        the first charge, or an end; a log that no store evicts has begun
//!         chunk -> next        all its admissions are out of the window or before a reset
//! ```
//!
//! A key's time is the time of its last admission, or of a later request. A request with an older
//! `now` (another thread was faster, or has a clock that is ahead) is judged and counted at the
//! key's time.
//!
//! # Invariants
//!
//! 1. A slot is written once, and only when all slots before it in its row are admissions.
//! 2. A chunk is linked only behind a row that takes no more admissions. So a log can grow at one
//!    place only: the first empty slot of the tail or, if there is none, its null link; before the
//!    first chunk, the null root. Behind SEALED there is no such place.
//! 3. Along the chain, times never decrease and sums grow by what each admission took.
//! 4. The admissions in the window of any key's time hold at most `limit` tokens that are not given
//!    back, or as many as they held when the quota changed if that is more.
//! 5. The refunds of a run of admissions are never read as more than was given back of it.
//! 6. A chunk that is retired has no admission that counts at the key's time, and the key's time
//!    stays.
//! 7. All that reading a row needs (its fields, its start) is in its chunk. No quota is.
//!
//! # Why it is right
//!
//! A charge looks for the place of invariant 2, adds up the window that ends at `max(now, last
//! time)`, and writes its admission into that very place by one compare-and-swap: of a slot, or of
//! the link, with a chunk that holds the admission. If that succeeds, there was no admission in
//! between, so the sum was right at that moment; refunds since then leave more room, not less
//! (invariants 3 and 5). If it fails, another request was admitted, or the row was closed, and the
//! charge looks again. Two requests at one instant take two slots.
//!
//! So an admission is whole or absent. A thread that stops for good has either charged, and all
//! threads see that, or has not. What it leaves undone (a hint, a chunk to link or retire, the sums
//! above a refund) is done by other threads or delays none.
//!
//! A period that reaches back to retired chunks is never asked about: the key's time has passed
//! them (invariant 6). That is why a stale `now` is raised to the key's time.
//!
//! Sums may overflow: only differences within one window are used.
//!
//! # The end of a log
//!
//! Sealing is a compare-and-swap at the place of invariant 2, too. Either a charge comes before it:
//! then the eviction looks again. Or the charge finds the log sealed, and so does every later one.
//! It then gets `None`.
//!
//! # Another quota
//!
//! The log keeps its chunks when its quota changes. A slot is a time and a sum, and each chunk
//! has fields of its own. The rule is beside the log, in the versions of its state (see `state`).
//!
//! Why the rule is not simply exchanged: a thread that still holds the old rule would write by it,
//! and retire or evict by it. If the new period is longer, that forgets admissions which count,
//! also long after the change. So a change is two steps. First the next version is linked. Then any
//! thread that needs that version changes the place of invariant 2, before it decides by the new
//! rule: it writes another empty value into the empty slot, or links an empty chunk. A thread that
//! is about to write asks, after it has seen that place, whether its rule is the latest:
//!
//! - If it has seen the place as the change left it, or anything later, it sees that the next
//!   version is linked (edge *row*), and gives up with `None`.
//! - If not, its compare-and-swap fails once the place is changed. If it succeeds, it comes before
//!   the change.
//!
//! So each admission, retirement and eviction under the old rule comes before the change, and each
//! decision under the new rule comes after it. (A denial or a `peek` under the old rule may come
//! later if it began earlier. It writes nothing.) Several threads may change the place, which only
//! makes others look again.
//!
//! A change seals a log that has not begun, as it does with a word. It has nothing to lose, and a
//! charge under the old rule could begin it at any later time.
//!
//! What has left the old window when the quota changes does not come back: each version knows from
//! when on admissions count, and when the last of the others was out, which is the least key's time
//! of that version. So the window of a stale `now` lacks none of them. Therefore, for any quota
//! that follows any other:
//!
//! - a request that the old quota admits is also admitted by a new quota with no smaller limit and
//!   no longer period;
//! - in any interval as long as the shorter period (without one of its ends), at most the larger
//!   limit is admitted. If the last admission in it is under the new quota, the window that
//!   judged it held all others;
//! - under a limit below what is held, no request is admitted until enough is out, and what was
//!   held is not forgotten if the limit is raised again.
//!
//! Under a longer period, what is held at the change counts for that long. (A charge under the old
//! rule may come between the look at the past and the change. What has left the window by that
//! charge may still count, until the charge has retired it: this delays, and never admits more.)
//!
//! A refund finds its charge by its time, whatever the quota, and needs no rule.
//!
//! # Bound
//!
//! In any interval as long as a period (without one of its ends), exactly the limit at most, by the
//! times at which admissions are counted: `now`, or the key's time where that is later.
//!
//! # Cost
//!
//! With n admissions in the window, a check walks the chunks, and searches one of them for the
//! first admission that counts. A chunk has as many slots as admissions counted when it was begun,
//! but no more than twice those of the one before (at least 8, at most 16,384). So there are about
//! log2(n) chunks after a burst, later 3 or 4, and n / 16,384 more: 61 for a million. A denial
//! searches once more. After refunds, each chunk of the window adds up its part, in log2 of its
//! slots.
//!
//! A refund walks the chunks, and searches one of them. Where many charges have one time (a coarse
//! clock), it descends the tree of sums to a charge that holds something, in the square of log2 of
//! its slots.
//!
//! The walk begins again at the root when a collection of any limiter has ended the era of its
//! guard. Collections are so rare (one for 32 KiB that are retired) that this matters only to
//! chains of hundreds of chunks.
//!
//! A chunk also ends where a slot's time field does: 2^(63 - b) ns after its start. At first b =
//! bits(limit): that is 104 days for a limit of 1,000, 20 hours for 100,000, and 2.4 hours for
//! 1,000,000. The next chunk then has as many bits for tokens as its row will need, and more for
//! the time; so few admissions that come far apart share chunks.
//!
//! # Memory
//!
//! A log takes 8 bytes for each admission in the window, and about 150 for each chunk; with the
//! slots that are empty or out, at most three times that while admissions come evenly. A row that
//! ends early leaves its other slots unused: at most as many again as were used in the row before.
//! A refund adds 16 to 32 bytes for each slot of its chunk. Memory is allocated as it is used: two
//! blocks for each chunk, so for a limit of 8 or less two for every 8 admissions. An idle log keeps
//! its memory until it is charged again, and then begins with a small chunk; or until it is sealed,
//! and then has one slot or eight. All of it is freed with its holder, in a loop, since a chain may
//! be long.
//!
//! A change of quota takes no memory in the log, or that of a chunk of eight slots once for each
//! full row.
//!
//! # Progress
//!
//! `check`, `refund`, `reset`, `seal_if_idle` and `change` are lock-free: each retry means that
//! another thread has charged, reset or sealed, or has begun a collection. A check sometimes
//! allocates a chunk, and then takes as long as the allocator does; so do a seal, a refund and a
//! change of quota. A denial only loads; so do `peek` and `is_idle`. They linearize
//! where they see the place of invariant 2, except for refunds: a `peek` that runs while others
//! charge and refund may count a refund and miss a charge before it. A charge cannot: its
//! compare-and-swap then fails.
//!
//! Retired chunks wait in the bag of the limiter until no guard may have seen them (see `reclaim`).
//! They are counted. A parked thread keeps no more than the log took when its guard was made, for
//! each guard that it holds; besides that, 64 KiB wait for all logs of the limiter together, and
//! the chunk that was retired last. A log is dropped with the last reference to it. Other threads
//! may hold guards then, but are not in a method of this log. No method gives out a chunk, so the
//! chunks are freed immediately.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | row | the compare-and-swap of a slot (`chunk`) | each load of a slot | the slots before it, filled by other threads; what was done before the change | `an_admission_shows_all_before_it` |
//!
//! The edge *link* of `reclaim` does the rest: a thread that sees a chunk sees its initial
//! contents, and the row before it. Hints and refunds are relaxed: each says why.

mod chunk;
mod refunds;
mod request;
mod slot;
mod step;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod view;
mod window;

pub(crate) use window::{Past, SlidingLog};

use crate::decision::Decision;
use crate::reclaim::{Bag, Guard, Retry, Root, Walked, under_guard};
use crate::time::Tick;
use chunk::{Behind, Chunk, End, Start, Write};
use request::Request;
use slot::{EMPTY, Fields, Mark};
use step::{Step, reach};
use view::View;

/// The admissions of one key. See the module documentation.
#[derive(Debug)]
pub(crate) struct Log {
    root: Root<Chunk>,
}

impl Log {
    /// Makes an empty log. It takes no memory beyond its own 8 bytes.
    pub(crate) fn new() -> Self {
        Self { root: Root::null() }
    }

    /// Makes a log that has begun, without an admission.
    pub(crate) fn begun(rule: &SlidingLog) -> Self {
        Self { root: Root::to(Chunk::new(Start::first(0, rule.fields), 0, EMPTY)) }
    }

    /// Decides a request of `cost` tokens at `now`, and charges it if it is allowed; `None` if the
    /// log is sealed. An empty log begins no earlier than at `mark()`. Lock-free.
    #[inline]
    pub(crate) fn check(
        &self,
        mark: impl Fn() -> Tick,
        rule: &SlidingLog,
        now: Tick,
        cost: u64,
        retired: &Bag,
        is_latest: impl Fn() -> bool,
    ) -> Option<Decision> {
        under_guard(|guard| {
            let view = View::of(&self.root, rule, now, guard)?;
            if view.as_ref().is_some_and(View::is_sealed) || !is_latest() {
                return Ok(None);
            }
            let at = if view.is_some() { now } else { now.max(mark()) };
            let decision = Request { now: at, cost, is_peek: false }.answer(rule, view.as_ref());
            if decision.charged() > 0 {
                reach(Step::Decided);
                let time = view.as_ref().map_or(at.as_nanos(), |view| view.time);
                let first = self.admit(rule, view.as_ref(), time, cost, guard)?;
                self.retire_before(first, guard, retired);
            }
            Ok(Some(decision.late_by(at.as_nanos() - now.as_nanos())))
        })
    }

    /// Returns whether the log has begun: whether it has a chunk.
    pub(crate) fn is_begun(&self) -> bool {
        self.root.is_linked()
    }

    /// Returns what [`check`](Self::check) would answer, with the figures as they are before a
    /// charge; `None` if the log is sealed. Only loads.
    pub(crate) fn peek(
        &self,
        rule: &SlidingLog,
        now: Tick,
        cost: u64,
        is_latest: impl Fn() -> bool,
    ) -> Option<Decision> {
        under_guard(|guard| {
            let view = View::of(&self.root, rule, now, guard)?;
            let is_over = view.as_ref().is_some_and(View::is_sealed) || !is_latest();
            let answer = || Request { now, cost, is_peek: true }.answer(rule, view.as_ref());
            Ok((!is_over).then(answer))
        })
    }

    /// Charges as many of `tokens` as there is room for, and returns how many: a log has no debt.
    /// It begins an empty log no earlier than at `mark()`. `None` if the log is sealed. Lock-free.
    pub(crate) fn force(
        &self,
        mark: impl Fn() -> Tick,
        rule: &SlidingLog,
        now: Tick,
        tokens: u64,
        retired: &Bag,
        is_latest: impl Fn() -> bool,
    ) -> Option<u64> {
        // Each turn but the last follows a charge of another thread.
        loop {
            let at = if self.is_begun() { now } else { now.max(mark()) };
            let room = self.peek(rule, at, 1, &is_latest)?.remaining().min(tokens);
            let charged = self.check(&mark, rule, now, room, retired, &is_latest)?.charged();
            retired.tidy();
            if charged == room {
                return Some(charged);
            }
        }
    }

    /// Gives back up to `tokens` of what `charge` took, until the charge is out of the window;
    /// `None` if the log is sealed. Among charges of one time it takes from any, for they leave the
    /// window together. Lock-free.
    ///
    /// A charge gives back nothing after a reset, or if no log made it. One made under another
    /// quota is found by its time, and gives back what it still holds. `is_current` returns whether
    /// the charge may still be refunded; it is called after the walk has found the beginning of the
    /// log, so after each reset that has moved it.
    pub(crate) fn refund_if(
        &self,
        charge: &Decision,
        tokens: u64,
        is_current: impl Fn() -> bool,
    ) -> Option<()> {
        under_guard(|guard| {
            // The chunks since the last reset.
            let Some(chunks) = View::walk(&self.root, None, guard)? else { return Ok(Some(())) };
            if chunks.last().end().behind == Behind::Sealed {
                return Ok(None);
            }
            if is_current() {
                Self::refund_in(chunks, charge, tokens);
            }
            Ok(Some(()))
        })
    }

    /// Gives back up to `tokens` of a charge that was made in one of these chunks.
    fn refund_in(chunks: Walked<'_, Chunk>, charge: &Decision, tokens: u64) {
        let Some((until, period)) = charge.figures.held() else { return };
        // `None` if the window began before tick 0: the charge is from another limiter.
        let Some(time) = until.checked_sub(period) else { return };
        let mut left = tokens.min(charge.charged());
        if left == 0 {
            return;
        }
        let chunks: Vec<_> = chunks.iter().take_while(|chunk| chunk.start.mark.time <= time).collect();
        // From the last to the first, here and in a chunk. A refund that takes from a later charge
        // leaves as much in its own, where the refund of that later charge finds it. In the other
        // order, the tokens might be left in a charge that the other refund cannot see yet.
        for chunk in chunks.into_iter().rev() {
            match chunk.give_back(time, left) {
                Some(given) if given < left => left -= given,
                _ => break,
            }
        }
    }

    /// Gives back up to `tokens` of a charge that is current: [`refund_if`](Self::refund_if) for
    /// tests.
    #[cfg(test)]
    pub(crate) fn refund(&self, charge: &Decision, tokens: u64) -> Option<()> {
        self.refund_if(charge, tokens, || true)
    }

    /// Resets the key at its own time; `None` if the log is sealed. Lock-free.
    pub(crate) fn reset(&self, rule: &SlidingLog, retired: &Bag) -> Option<()> {
        under_guard(|guard| {
            let Some(tail) = View::tail(&self.root, guard)? else { return Ok(Some(())) };
            let end = tail.end();
            if end.behind == Behind::Sealed {
                return Ok(None);
            }
            if tail.start.anew && end.filled == 0 {
                return Ok(Some(()));
            }
            if end.behind == Behind::Empty && tail.close(&end) == Write::Lost {
                return Err(Retry);
            }
            let start = Self::start_behind(tail, &end, end.last.time);
            let start = Start { before: None, anew: true, fields: rule.fields, ..start };
            let chunk = linked(tail.next.install(Chunk::new(start, 0, EMPTY), guard))?;
            self.retire_before(chunk, guard, retired);
            Ok(Some(()))
        })
    }

    /// Returns whether the log decides like a new one at `now` and ever after (if it is sealed:
    /// whether it did then). Only loads.
    pub(crate) fn is_idle(&self, rule: &SlidingLog, now: Tick) -> bool {
        under_guard(|guard| self.is_idle_under(rule, now, guard))
    }

    fn is_idle_under(&self, rule: &SlidingLog, now: Tick, guard: &Guard) -> Result<bool, Retry> {
        Ok(View::of(&self.root, rule, now, guard)?.is_none_or(|view| view.is_idle(now)))
    }

    /// Returns a time from which on the log is idle, if it is not charged: the time of its end if
    /// everything was given back, else the time at which its last admission is out.
    fn idle_from(&self, rule: &SlidingLog, view: &View<'_>, guard: &Guard) -> Result<Tick, Retry> {
        let last = view.end.last.time;
        let first = Tick::from_nanos(last.max(rule.past.until));
        let is_idle = self.is_idle_under(rule, first, guard)?;
        Ok(if is_idle { first } else { first.max(Tick::from_nanos(last + rule.period)) })
    }

    /// Returns the bytes of the chunks, without those that are retired.
    pub(crate) fn bytes(&self) -> usize {
        under_guard(|guard| {
            let (mut bytes, mut at) = (0, self.root.load(guard)?);
            while let Some(chunk) = at {
                bytes += chunk.size();
                at = chunk.next()?;
            }
            Ok(bytes)
        })
    }

    /// Writes an admission at the end of the log that `view` has seen. Returns the first chunk that
    /// counts now; [`Retry`] if the log has changed since.
    #[inline]
    fn admit<'g>(
        &'g self,
        rule: &SlidingLog,
        view: Option<&View<'g>>,
        time: u64,
        cost: u64,
        guard: &'g Guard,
    ) -> Result<&'g Chunk, Retry> {
        let Some(view) = view else {
            let chunk = Self::chunk_of(Start::first(time, rule.fields), 0, cost);
            return linked(self.root.install(chunk, guard));
        };
        let (tail, end) = (view.chunks.last(), &view.end);
        if end.behind == Behind::Empty {
            let mark = Mark { time, tokens: end.last.tokens.wrapping_add(cost) };
            // After a burst, when nothing of it is left: does not keep its memory.
            let is_too_large = view.live == 0 && tail.is_larger_than_the_smallest();
            let written = match is_too_large {
                true => Write::DoesNotFit,
                false => tail.append(end, mark),
            };
            match written {
                Write::Done => return Ok(view.chunks.first()),
                Write::Lost => return Err(Retry),
                Write::DoesNotFit if tail.close(end) == Write::Lost => return Err(Retry),
                Write::DoesNotFit => reach(Step::Closed),
            }
        }
        let slots = Chunk::slots_behind(end, view.live);
        let fields = tail.fields_behind(end, slots, rule.fields, time, cost);
        let start = Start { fields, ..Self::start_behind(tail, end, time) };
        let linked = linked(tail.next.install(Self::chunk_of(start, slots, cost), guard))?;
        Ok(if view.live == 0 { linked } else { view.chunks.first() })
    }

    /// Makes a chunk of about `slots` slots with an admission in it.
    #[cold]
    fn chunk_of(start: Start, slots: usize, cost: u64) -> Chunk {
        // The fields were chosen so that `cost` fits.
        let first = start.fields.pack(Mark { time: 0, tokens: cost }).unwrap_or(EMPTY);
        Chunk::new(start, slots, first)
    }

    /// Returns the start of a chunk behind `tail`, with the fields of `tail`.
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

    /// Retires the chunks before `first`: nothing in them counts any more.
    #[inline]
    fn retire_before(&self, first: &Chunk, guard: &Guard, retired: &Bag) {
        let first = first.start.number;
        if self.try_retire_before(first, guard, retired).is_err() {
            under_guard(|guard| self.try_retire_before(first, guard, retired));
        }
    }

    #[inline]
    fn try_retire_before(&self, first: u64, guard: &Guard, retired: &Bag) -> Result<(), Retry> {
        while let Some(root) = self.root.load(guard)?.filter(|root| root.start.number < first) {
            if self.root.advance(&root, guard, retired) {
                reach(Step::Retired);
            }
        }
        Ok(())
    }

    /// Returns whether the log is sealed, which is final.
    pub(crate) fn is_sealed(&self) -> bool {
        let is_sealed = |tail: &Chunk| tail.end().behind == Behind::Sealed;
        under_guard(|guard| Ok(View::tail(&self.root, guard)?.is_some_and(is_sealed)))
    }

    /// Seals the log if it is idle at `judged_at`, and keeps next to nothing of its memory. Returns
    /// whether the log is sealed now, by any thread. Before it is sealed, `forget` is called with a
    /// time from which on it is idle. Lock-free.
    pub(crate) fn seal_if_idle(
        &self,
        rule: &SlidingLog,
        judged_at: Tick,
        retired: &Bag,
        forget: impl Fn(Tick),
        is_latest: impl Fn() -> bool,
    ) -> Option<bool> {
        under_guard(|guard| {
            let Some(view) = View::of(&self.root, rule, judged_at, guard)? else {
                return if self.seal_unbegun(guard) { Ok(Some(true)) } else { Err(Retry) };
            };
            if view.is_sealed() {
                return Ok(Some(true));
            }
            if !is_latest() {
                return Ok(None);
            }
            if !view.is_idle(judged_at) {
                return Ok(Some(false));
            }
            forget(self.idle_from(rule, &view, guard)?.min(judged_at));
            let (tail, end) = (view.chunks.last(), &view.end);
            let holds_little = tail.start.number == 0 && !tail.is_larger_than_the_smallest();
            if end.behind == Behind::Empty {
                let written = if holds_little { tail.seal(end) } else { tail.close(end) };
                match written {
                    Write::Done if holds_little => return Ok(Some(true)),
                    Write::Done => reach(Step::Closed),
                    _ => return Err(Retry),
                }
            }
            // The key's time is that of the judgement, for retired chunks are out of no earlier
            // window.
            let sealed = Chunk::sealed(Self::start_behind(tail, end, view.time));
            let chunk = linked(tail.next.install(sealed, guard))?;
            self.retire_before(chunk, guard, retired);
            Ok(Some(true))
        })
    }

    /// Returns the past for the rule that follows `old` at `now`.
    pub(crate) fn past(&self, old: &SlidingLog, now: Tick, guard: &Guard) -> Result<Past, Retry> {
        let Some(view) = View::of(&self.root, old, now, guard)? else { return Ok(old.past) };
        // An admission that is not out by `view.time` came before a reset.
        let out = view.last_out().filter(|out| out + old.period <= view.time);
        let until = |out: u64| (out + old.period).max(old.past.until);
        let new = out.map(|out| Past { from: out + 1, until: until(out) });
        Ok(new.filter(|new| new.from > old.past.from).unwrap_or(old.past))
    }

    /// Changes the place where the log can grow, so that no thread which has seen another can write
    /// any more. Seals a log that has not begun; does nothing if the log is sealed. `is_due`
    /// returns false once that is done. Lock-free.
    pub(crate) fn change(&self, is_due: impl Fn() -> bool) {
        under_guard(|guard| {
            let Some(tail) = View::tail(&self.root, guard)? else {
                return if self.seal_unbegun(guard) { Ok(()) } else { Err(Retry) };
            };
            let end = tail.end();
            if end.behind == Behind::Sealed || !is_due() {
                return Ok(());
            }
            reach(Step::Decided);
            let is_done = match end.behind {
                Behind::Empty => tail.change(&end) == Write::Done,
                _ => {
                    let start = Self::start_behind(tail, &end, end.last.time);
                    tail.next.install(Chunk::new(start, 0, EMPTY), guard).is_ok()
                }
            };
            if is_done { Ok(()) } else { Err(Retry) }
        });
    }

    /// Seals a log that has not begun; false if it has begun meanwhile.
    fn seal_unbegun(&self, guard: &Guard) -> bool {
        let start = Start::first(0, Fields::of_tokens(1));
        self.root.install(Chunk::sealed(start), guard).is_ok()
    }
}

/// Returns the chunk, if this thread has linked it.
fn linked(installed: Result<&Chunk, Chunk>) -> Result<&Chunk, Retry> {
    let chunk = installed.map_err(|_| Retry)?;
    reach(Step::Linked);
    Ok(chunk)
}
