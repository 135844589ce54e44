//! The sliding log, which keeps the time of every admission of a key, so that any trailing period
//! is counted exactly.
//!
//! A request is admitted if its cost plus the tokens admitted in the period that ends with the
//! request are at most the limit.
//!
//! Why not a ring of `limit` times? Every key would hold as much memory as the busiest key, and a
//! request of many tokens would fill many places. In addition, claiming a place and storing the
//! time would be two steps; a thread that is stopped between them would leave a place of unknown
//! age. In a log both are one step, so there is no half-finished admission to wait for, to help
//! with, or to guess about.
//!
//! # State
//!
//! A log is a chain of [`Chunk`]s, from the oldest that may still count (the *root*) to the newest
//! (the *tail*). A chunk is a row of slots. An admission takes one slot, whatever its cost: its
//! time and the *sum* of all tokens admitted so far, in one word (`slot`). The number of tokens
//! admitted in a period is the difference of two sums; binary search finds the first admission of
//! the period (`view`). Refunds are recorded beside the slots (`refunds`).
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
//! The time of a key is the time of its last admission, or of a later request. A request with an
//! older `now` (because another thread was faster, or has a clock that is ahead) is judged and
//! counted at the key's time.
//!
//! # Invariants
//!
//! 1. A slot is written once, and only when all slots before it in its row are admissions.
//! 2. A chunk is linked only behind a row that takes no more admissions. Therefore a log can grow
//!    at only one place: the first empty slot of the tail or, if there is none, the null link of
//!    the tail; before the first chunk, the null root. Behind SEALED there is no such place.
//! 3. Along the chain, times never decrease, and each admission increases the sum by its tokens.
//! 4. The admissions in the window that ends at the key's time hold at most `limit` tokens that are
//!    not given back, or as many as they held when the quota changed, if that is more.
//! 5. The refunds read for a run of admissions are never more than the tokens that were given back
//!    of the run.
//! 6. A retired chunk has no admission that counts at the key's time, and the key's time does not
//!    step back.
//! 7. A chunk contains everything that is needed to read its row (its fields and its start). It
//!    contains no quota.
//!
//! # Why it is right
//!
//! A charge finds the place of invariant 2, adds up the window that ends at `max(now, last time)`,
//! and writes its admission into that same place by one compare-and-swap: of a slot, or of the
//! link, with a chunk that holds the admission. If the compare-and-swap succeeds, there was no
//! admission in between, so the sum was right at that moment; refunds since then leave more room,
//! not less (invariants 3 and 5). If it fails, another request was admitted, or the row was closed,
//! and the charge starts again. Two requests at the same instant take two slots.
//!
//! Therefore an admission is whole or absent. A thread that stops for good either has charged, and
//! all threads see the charge, or has not charged. Its unfinished work (a hint, a chunk to link or
//! retire, the sums above a refund) is done by other threads or delays no other thread.
//!
//! No request needs a period that reaches back to retired chunks, because the key's time has passed
//! them (invariant 6). This is the reason why a stale `now` is raised to the key's time.
//!
//! Sums may overflow, because only differences within one window are used.
//!
//! # The end of a log
//!
//! Sealing is also a compare-and-swap at the place of invariant 2. If a charge happens first, the
//! eviction starts again. Otherwise this charge and every later one find the log sealed and return
//! `None`.
//!
//! # Another quota
//!
//! The log keeps its chunks when the quota changes. A slot is a time and a sum, and each chunk has
//! its own fields. The rule is outside the log, in the versions of the state (see `state`).
//!
//! Why is the rule not simply exchanged? A thread that still holds the old rule would write, retire
//! or evict under the old rule. If the new period is longer, this would forget admissions that
//! still count, even long after the change. Therefore a change takes two steps. First the next
//! version is linked. Then any thread that needs that version changes the place of invariant 2
//! before it decides under the new rule: it writes another empty value into the empty slot, or
//! links an empty chunk. A thread that is about to write checks, after it has seen that place,
//! whether its rule is the latest:
//!
//! - If the thread has seen the place after the change, or any later state, it sees that the next
//!   version is linked (edge *row*), and gives up with `None`.
//! - Otherwise its compare-and-swap fails once the place is changed. If the compare-and-swap
//!   succeeds, it happened before the change.
//!
//! Therefore each admission, retirement and eviction under the old rule happens before the change,
//! and each decision under the new rule happens after it. (A denial or a `peek` under the old rule
//! may end later if it began earlier. It writes nothing.) Several threads may change the place,
//! which only makes other threads start again.
//!
//! A change seals a log that has not begun, like a fresh word. Such a log has nothing to lose, and
//! otherwise a charge under the old rule could begin it at any later time.
//!
//! Admissions that have left the old window when the quota changes do not count again. Each version
//! has the time from which on admissions count, and the time at which the last of the earlier
//! admissions was out, which is the earliest key's time under that version. Therefore the window of
//! a stale `now`, which is raised to that time, lacks no admission. For any quota that replaces
//! another, this implies:
//!
//! - a request that the old quota admits is also admitted by a new quota with no smaller limit and
//!   no longer period;
//! - in any interval as long as the shorter period (without one of its ends), at most the larger
//!   limit is admitted. If the last admission in the interval is under the new quota, the window
//!   that judged this admission held all others;
//! - under a limit below the tokens held, no request is admitted until enough tokens are out, and
//!   the tokens held are not forgotten if the limit is raised again.
//!
//! Under a longer period, the tokens held at the change count for the longer period. (A charge
//! under the old rule may happen between the reading of the past and the change. Admissions that
//! have left the window of that charge may still count, until the charge has retired them. This
//! delays requests, and never admits more.)
//!
//! A refund finds its charge by the charge's time, whatever the quota, and needs no rule.
//!
//! # Bound
//!
//! In any interval as long as a period (without one of its ends), at most the limit is admitted,
//! without any approximation. The bound refers to the times at which admissions are counted: `now`
//! or, if that is later, the key's time.
//!
//! # Cost
//!
//! A check walks through the chunks, and searches one of them for the first admission that counts.
//! A chunk has as many slots as admissions counted when the chunk was begun, but no more than twice
//! the slots used in the previous chunk (at least 8, at most 16,384). Therefore a window with n
//! admissions has about log2(n) chunks after a burst, later 3 or 4, and n / 16,384 more: 61 for a
//! million. A denial searches once more. After refunds, each chunk of the window adds up its part,
//! in log2 of its slots.
//!
//! A refund walks through the chunks, and searches one of them. If many charges have the same time
//! (from a coarse clock), the refund descends the tree of sums to a charge that still holds tokens,
//! in the square of log2 of the chunk's slots.
//!
//! A walk begins again at the root when a collection of any limiter has ended the era of the walk's
//! guard. Collections are so rare (one for each 32 KiB of retired memory) that this matters only
//! for chains of hundreds of chunks.
//!
//! A chunk also ends when a time no longer fits into a slot, 2^(63 - b) ns after the chunk's start.
//! At first b = bits(limit), which allows 104 days for a limit of 1,000, 20 hours for 100,000, and
//! 2.4 hours for 1,000,000. After a chunk that has ended for this reason, the next chunk has only
//! as many bits for tokens as its row will need, and more bits for the time, so that sparse
//! admissions share chunks.
//!
//! # Memory
//!
//! A log takes 8 bytes for each admission in the window, and about 150 bytes for each chunk. With
//! the slots that are empty or out, it takes at most three times that while admissions are evenly
//! spaced. A row that ends early leaves its other slots unused: at most twice as many slots as were
//! used in the previous row. A refund adds 16 to 32 bytes for each slot of its chunk. Memory is
//! allocated as it is used: two blocks for each chunk, which for a limit of 8 or less is two blocks
//! for every 8 admissions. An idle log keeps its memory until it is charged again, and then begins
//! with a small chunk; or until it is sealed, and then has one slot or eight. All memory is freed
//! with the holder of the log, in a loop, since a chain may be long.
//!
//! A change of quota takes no memory in the log, except for a chunk of eight slots once for each
//! full row.
//!
//! # Progress
//!
//! `check`, `refund`, `reset`, `seal_if_idle` and `change` are lock-free: each retry means that
//! another thread has charged, reset or sealed, or has begun a collection. A check sometimes
//! allocates a chunk, and then takes as long as the allocator; the same holds for a seal, a refund
//! and a change of quota. A denial only loads, and so do `peek` and `is_idle`. They linearize when
//! they see the place of invariant 2, except with respect to refunds: a `peek` that runs while
//! other threads charge and refund may count a refund and miss a charge before it. A charge cannot
//! miss it, because its compare-and-swap would fail.
//!
//! Retired chunks wait in the bag of the limiter until no guard may have seen them (see `reclaim`).
//! Their bytes are counted. For each guard that it holds, a parked thread keeps no more than the
//! log took when the guard was made. In addition, 64 KiB wait for all logs of the limiter together,
//! and the chunk that was retired last. A log is dropped with the last reference to it. Other
//! threads may hold guards at that time, but are not in a method of this log. No method hands out a
//! chunk, so the chunks are freed immediately.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | row | the compare-and-swap of a slot (`chunk`) | each load of a slot | the slots before it, filled by other threads; everything before a change of quota | `an_admission_shows_all_before_it` |
//!
//! The edge *link* of `reclaim` orders everything else: a thread that sees a chunk sees its initial
//! contents, and the row before it. Hints and refunds are relaxed, each for the reason in its note.

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
    /// Makes an empty log, which takes no memory beyond its own 8 bytes.
    pub(crate) fn new() -> Self {
        Self { root: Root::null() }
    }

    /// Makes a log that has begun, without an admission.
    pub(crate) fn begun(rule: &SlidingLog) -> Self {
        Self { root: Root::to(Chunk::new(Start::first(0, rule.fields), 0, EMPTY)) }
    }

    /// Decides a request of `cost` tokens at `now`, and charges it if it is allowed. `None` if the
    /// log is sealed. An empty log begins no earlier than at `mark()`. This method is lock-free.
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

    /// Returns whether the log has begun, which means that it has a chunk.
    pub(crate) fn is_begun(&self) -> bool {
        self.root.is_linked()
    }

    /// Returns the answer that [`check`](Self::check) would give, with the figures before a charge.
    /// `None` if the log is sealed. This method only loads.
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

    /// Charges as many of `tokens` as there is room for, because a log has no debt. Returns the
    /// number of charged tokens, or `None` if the log is sealed. An empty log begins no earlier
    /// than at `mark()`. This method is lock-free.
    pub(crate) fn force(
        &self,
        mark: impl Fn() -> Tick,
        rule: &SlidingLog,
        now: Tick,
        tokens: u64,
        retired: &Bag,
        is_latest: impl Fn() -> bool,
    ) -> Option<u64> {
        // Each iteration but the last means that another thread has charged.
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

    /// Gives back up to `tokens` of the tokens that `charge` took, until the charge is out of the
    /// window. `None` if the log is sealed. Among charges with the same time, any may give back the
    /// tokens, because they leave the window together. This method is lock-free.
    ///
    /// A charge gives back nothing after a reset, or if no log made it. A charge that was made
    /// under another quota is found by its time, and gives back the tokens that it still holds.
    /// `is_current` returns whether the charge may still be refunded. It is called after the walk
    /// has found the beginning of the log, and thus after each reset that has moved the beginning.
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
        // `None` if the window began before tick 0, because the charge is then from another
        // limiter.
        let Some(time) = until.checked_sub(period) else { return };
        let mut left = tokens.min(charge.charged());
        if left == 0 {
            return;
        }
        let chunks: Vec<_> = chunks.iter().take_while(|chunk| chunk.start.mark.time <= time).collect();
        // From the last to the first, here and within a chunk. A refund that takes tokens from a
        // later charge leaves as many in its own charge, where the refund of the later charge finds
        // them. In the other order, the tokens might be left in a charge that the other refund
        // cannot see yet.
        for chunk in chunks.into_iter().rev() {
            match chunk.give_back(time, left) {
                Some(given) if given < left => left -= given,
                _ => break,
            }
        }
    }

    /// Gives back up to `tokens` of a current charge: [`refund_if`](Self::refund_if) for tests.
    #[cfg(test)]
    pub(crate) fn refund(&self, charge: &Decision, tokens: u64) -> Option<()> {
        self.refund_if(charge, tokens, || true)
    }

    /// Resets the key at the key's time. `None` if the log is sealed. This method is lock-free.
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

    /// Returns whether the log gives the same decisions as a new log from `now` on. For a sealed
    /// log, returns whether it did so when it was sealed. This method only loads.
    pub(crate) fn is_idle(&self, rule: &SlidingLog, now: Tick) -> bool {
        under_guard(|guard| self.is_idle_under(rule, now, guard))
    }

    fn is_idle_under(&self, rule: &SlidingLog, now: Tick, guard: &Guard) -> Result<bool, Retry> {
        Ok(View::of(&self.root, rule, now, guard)?.is_none_or(|view| view.is_idle(now)))
    }

    /// Returns a time from which on the log is idle if it is not charged: the time of its end if
    /// everything was given back, otherwise the time at which its last admission is out.
    fn idle_from(&self, rule: &SlidingLog, view: &View<'_>, guard: &Guard) -> Result<Tick, Retry> {
        let last = view.end.last.time;
        let first = Tick::from_nanos(last.max(rule.past.until));
        let is_idle = self.is_idle_under(rule, first, guard)?;
        Ok(if is_idle { first } else { first.max(Tick::from_nanos(last + rule.period)) })
    }

    /// Returns the bytes of the chunks, without retired chunks.
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
    /// counts now, or [`Retry`] if the log has changed since.
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
            // When no admission of a burst is left, its large chunk is not kept.
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

    /// Retires the chunks before `first`, in which no admission counts any more.
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

    /// Seals the log if it is idle at `judged_at`, and releases most of its memory. Returns whether
    /// the log is sealed now, by any thread. Before the log is sealed, `forget` is called with a
    /// time from which on the log is idle. This method is lock-free.
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
            // The key's time is the time of the judgement, because retired chunks may still count
            // in an earlier window.
            let sealed = Chunk::sealed(Self::start_behind(tail, end, view.time));
            let chunk = linked(tail.next.install(sealed, guard))?;
            self.retire_before(chunk, guard, retired);
            Ok(Some(true))
        })
    }

    /// Returns the past for the rule that follows `old` at `now`.
    pub(crate) fn past(&self, old: &SlidingLog, now: Tick, guard: &Guard) -> Result<Past, Retry> {
        let Some(view) = View::of(&self.root, old, now, guard)? else { return Ok(old.past) };
        // An admission that is not out at `view.time` was made before a reset.
        let out = view.last_out().filter(|out| out + old.period <= view.time);
        let until = |out: u64| (out + old.period).max(old.past.until);
        let new = out.map(|out| Past { from: out + 1, until: until(out) });
        Ok(new.filter(|new| new.from > old.past.from).unwrap_or(old.past))
    }

    /// Changes the place where the log can grow, so that no thread that has seen the place before
    /// the change can write any more. Seals a log that has not begun, and does nothing if the log
    /// is sealed. `is_due` returns false once the change is done. This method is lock-free.
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

    /// Seals a log that has not begun. Returns false if it has begun meanwhile.
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
