//! The sliding log. It stores the time of every admission of a key, so that any trailing period is
//! counted exactly.
//!
//! A request is admitted if its cost, plus the tokens admitted in the period that ends with the
//! request, is at most the limit.
//!
//! A ring buffer of `limit` times was rejected for two reasons. First, every key would occupy as
//! much memory as the busiest key, and a request of many tokens would fill many places. Second,
//! claiming a place and storing the time would be two steps. A thread stopped between them would
//! leave a place of unknown age.
//!
//! In a log, an admission claims its slot and stores its time in one step, so no admission is ever
//! half finished. Therefore no thread has to wait for an unfinished admission, help with it, or
//! guess its time.
//!
//! # State
//!
//! A log is a chain of [`Chunk`]s, from the oldest chunk whose admissions may still count (the
//! *root*) to the newest chunk (the *tail*). A chunk is a row of slots. An admission fills one
//! slot, whatever its cost. The slot contains the time of the admission and the *sum* of all tokens
//! admitted so far, in one word (`slot`). The number of tokens admitted in a period is the
//! difference of two sums. Binary search finds the first admission of the period (`view`). Refunds
//! are recorded beside the slots (`refunds`).
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
//! The key's time is the `now` of a request or the time of the key's last admission, whichever is
//! later. A request may carry a `now` older than the last admission, because another thread got
//! there first or has a clock that is ahead. Such a request is decided and counted at the key's
//! time.
//!
//! # Invariants
//!
//! 1. A slot is written once, and only when all slots before it in its row are admissions.
//! 2. A chunk is linked only behind a row that accepts no more admissions. Therefore a log can grow
//!    at only one place: the first empty slot of the tail or, if the tail has no empty slot, the
//!    tail's null link. A log without chunks can grow only at its null root. A sealed log has no
//!    such place.
//! 3. Along the chain, times never decrease, and each admission increases the sum by its tokens.
//! 4. The admissions in the window that ends at the key's time hold at most `limit` tokens that
//!    have not been given back. If they held more than the new limit when the quota changed, they
//!    hold at most as many tokens as they held at that time.
//! 5. The sum of refunds that a reader finds for a run of admissions never exceeds the tokens given
//!    back from that run.
//! 6. Admissions in a retired chunk do not count at the key's time, and the key's time does not
//!    step back.
//! 7. A chunk contains everything required to read its row (its fields and its start). It contains
//!    no quota.
//!
//! # Why it is right
//!
//! A charge finds the place described in invariant 2 and adds up the tokens in the window that ends
//! at `max(now, last time)`. It then writes its admission into the same place with one
//! compare-and-swap, which either fills the slot or links a chunk that contains the admission.
//!
//! If the compare-and-swap succeeds, there was no admission in between, so the sum was right at
//! that moment. Refunds since then only leave more room (invariants 3 and 5). If the
//! compare-and-swap fails, another request was admitted, or the row was closed, and the charge
//! starts again. Two requests at the same instant fill two slots.
//!
//! Therefore no admission is ever half finished. If a thread stops forever, either it has charged
//! and all threads see the charge, or it has not charged at all. Such a thread can only leave other
//! work unfinished: setting a hint, linking or retiring a chunk, or updating the sums above a
//! refund. Other threads complete this work, or are not delayed by it.
//!
//! The window of a request never reaches back to the retired chunks, because a stale `now` is
//! raised to the key's time, at which, by invariant 6, these chunks do not count.
//!
//! Sums may overflow, because only differences within one window are used.
//!
//! # The end of a log
//!
//! Sealing is also a compare-and-swap at the place described in invariant 2. If a charge happens
//! first, the eviction starts again. If the log is sealed first, that charge and every later charge
//! find the log sealed and return `None`.
//!
//! # Another quota
//!
//! The log keeps its chunks when the quota changes. A slot contains a time and a sum, and each
//! chunk has its own fields. The rule is stored outside the log, in the versions of the state (see
//! `state`).
//!
//! The rule cannot simply be exchanged, because another thread could still write, retire or evict
//! under the old rule. If the new period is longer, the log would then forget admissions that still
//! count, even long after the change.
//!
//! A change therefore takes two steps. First, the next version is linked. Second, every thread that
//! needs that version modifies the place described in invariant 2 before it decides under the new
//! rule. To do so, the thread writes a new empty value into the empty slot, or links an empty
//! chunk.
//!
//! Before any thread writes, it looks at that place, and only then checks whether its rule is the
//! latest:
//!
//! - If the thread has seen the place after the change, or any later state, it sees that the next
//!   version is linked (the *row* edge), and gives up with `None`.
//! - Otherwise the thread's compare-and-swap fails once the place is changed. If the
//!   compare-and-swap succeeds, it happened before the change.
//!
//! Therefore each admission, retirement and eviction under the old rule happens before the change,
//! and each decision under the new rule happens after it. (A denial or a `peek` that began under
//! the old rule may end after the change, but it writes nothing.) Several threads may change the
//! place, but this only makes other threads start again.
//!
//! A change of quota seals a log that has not begun, just as it seals a fresh word. Such a log
//! contains nothing that could be lost. Without the seal, a charge under the old rule could begin
//! the log at any later time.
//!
//! Admissions that have already left the old window when the quota changes do not count again. To
//! exclude them, each version stores two times: `from`, the time from which admissions count, and
//! `until`, the time at which the last excluded admission left the window. Under that version, the
//! key's time is never earlier than `until`. A stale `now` is raised to `until`, so no admission is
//! missing from the request's window.
//!
//! Whenever one quota replaces another, this implies:
//!
//! - A request that the old quota admits is also admitted by the new quota, if the new limit is not
//!   smaller and the new period is not longer.
//! - In any interval as long as the shorter period (without one of its ends), at most the larger
//!   limit is admitted. If the last admission in the interval was made under the new quota, the
//!   window that was counted for this admission contained all others.
//! - If the new limit is below the tokens held, no request is admitted until enough tokens have
//!   left the window. The tokens held are not forgotten if the limit is raised again.
//!
//! If the new period is longer, the tokens held at the change remain counted for the longer period.
//! (If a charge under the old rule happens between the reading of the past and the change,
//! admissions that have left its window may still count until the charge has retired them. This
//! delays requests, but never admits more.)
//!
//! Under any quota, a refund finds its charge by the charge's time. Therefore a refund needs no
//! rule.
//!
//! # Bound
//!
//! In any interval as long as the period (without one of its ends), at most `limit` tokens are
//! admitted, without any approximation. The bound refers to the times at which admissions are
//! counted: each is counted at the key's time.
//!
//! # Cost
//!
//! A check walks through the chunks, and searches one of them for the first admission that counts.
//! A denial searches once more. After refunds, a check also adds up the refunds of each chunk in
//! the window, which takes `log2(n)` steps for a chunk of n slots.
//!
//! A new chunk has one slot for each admission that counts at that moment, but at most twice as
//! many slots as the previous chunk used. A chunk has at least 8 and at most 16,384 slots. A window
//! with n admissions therefore has about `log2(n)` chunks after a burst, and 3 or 4 chunks later.
//! In both cases, it has `n / 16,384` additional chunks, or 61 for a million admissions.
//!
//! A refund walks through the chunks, and searches one of them. If many charges have the same time
//! (from a coarse clock), the refund descends the tree of sums to a charge that still holds tokens.
//! In a chunk of n slots, the descent takes `log2(n)^2` steps.
//!
//! A walk restarts at the root if the era of its guard ends. A collection in any limiter ends an
//! era. Collections are so rare (one for each 32 KiB of retired memory) that this matters only for
//! chains of hundreds of chunks.
//!
//! A chunk also ends when a time no longer fits into a slot. If b bits of a slot contain tokens,
//! that happens `2^(63 - b)` ns after the chunk's start. At first, b is the number of bits in the
//! limit, so a chunk can last 104 days for a limit of 1,000, 20 hours for 100,000, and 2.4 hours
//! for 1,000,000. If a chunk has ended for this reason, the next chunk uses only as many bits for
//! tokens as its row will need, and more bits for the time. Sparse admissions can then share
//! chunks.
//!
//! # Memory
//!
//! A log occupies 8 bytes for each admission in the window, and about 150 bytes for each chunk.
//! Including slots that are empty or have left the window, it occupies at most three times that
//! amount while admissions are evenly spaced. A row that ends early leaves its other slots unused,
//! but has at most twice as many slots as were used in the previous row. The first refund in a
//! chunk adds 16 to 32 bytes for each slot of the chunk.
//!
//! Memory is allocated on demand, in two blocks for each chunk. For a limit of 8 or less, this is
//! two blocks for every 8 admissions. An idle log keeps its memory until it is charged again or
//! sealed. Such a charge starts a small chunk, whereas a seal leaves one slot or eight. All memory
//! is freed when the log's owner is dropped. The chunks are then freed in a loop, because a chain
//! may be long.
//!
//! A change of quota allocates memory in the log only if the log's last row is full. In that case,
//! the change links a chunk of eight slots.
//!
//! # Progress
//!
//! `check`, `refund`, `reset`, `seal_if_idle` and `change` are lock-free. Each retry means that
//! another thread has charged, reset or sealed, or has started a collection. A check sometimes
//! allocates a chunk, and then takes as long as the allocator. The same is true for a seal, a
//! refund and a change of quota.
//!
//! A denial, `peek` and `is_idle` only load. They linearize when they see the place described in
//! invariant 2, except with respect to refunds. A `peek` that runs while other threads charge and
//! refund may count a refund but miss an earlier charge. A charge cannot miss an earlier charge,
//! because its compare-and-swap would fail.
//!
//! Retired chunks wait in the limiter's bag until no guard can have seen them (see `reclaim`).
//! Their bytes are counted. For each of its guards, a parked thread keeps at most the memory that
//! the log occupied when the guard was created. In addition, 64 KiB and the last retired chunk
//! wait, counted for all of the limiter's logs together.
//!
//! A log is dropped with the last reference to it. Other threads may hold guards at that time, but
//! none of them is in a method of this log, and no method returns a chunk. The chunks of the log
//! are therefore freed immediately.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | row | the compare-and-swap of a slot (`chunk`) | each load of a slot | the slots before it, filled by other threads; everything before a change of quota | `an_admission_shows_all_before_it` |
//!
//! The *link* edge in `reclaim` orders everything else: a thread that sees a chunk also sees the
//! initial contents of the chunk, and the row before the chunk. Accesses to hints and refunds are
//! relaxed, for the reasons given in their notes.

mod chunk;
mod refunds;
mod request;
mod slot;
mod step;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod view;
mod window;

pub(crate) use window::{Admission, Past, SlidingLog};

use crate::decision::Decision;
use crate::reclaim::{Bag, Guard, Retry, Root, Walked, under_guard};
use crate::time::Tick;
use chunk::{Behind, Chunk, ChunkEnd, Start, Write};
use request::LogRequest;
use slot::{EMPTY, LogMark, SlotFields};
use step::{LogStep, reach};
use view::LogView;

/// The admissions of one key; see the module documentation.
#[derive(Debug)]
pub(crate) struct Log {
    root: Root<Chunk>,
}

impl Log {
    /// The largest size in bytes of the chunk that a sealed log keeps.
    pub(crate) const SEALED_BYTES: usize = Chunk::SMALLEST_BYTES;

    /// Creates an empty log, which occupies only its own 8 bytes.
    pub(crate) fn new() -> Self {
        Self { root: Root::null() }
    }

    /// Creates a log that has begun, but contains no admission.
    pub(crate) fn begun(rule: &SlidingLog) -> Self {
        Self { root: Root::to(Chunk::new(Start::first(0, rule.fields), 0, EMPTY)) }
    }

    /// Decides a request of `cost` tokens at `now`, and charges it if it is allowed. Returns `None`
    /// if the log is sealed. An empty log starts at `mark()` or later. This method is lock-free.
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
            let view = LogView::of(&self.root, rule, now, guard)?;
            if view.as_ref().is_some_and(LogView::is_sealed) || !is_latest() {
                return Ok(None);
            }
            let at = if view.is_some() { now } else { now.max(mark()) };
            let decision = LogRequest { now: at, cost, is_peek: false }.answer(rule, view.as_ref());
            if decision.charged() > 0 {
                reach(LogStep::Decided);
                let time = view.as_ref().map_or(at.as_nanos(), |view| view.time);
                let first = self.admit(rule, view.as_ref(), time, cost, guard)?;
                self.retire_before(first, guard, retired);
            }
            Ok(Some(decision.late_by(at.as_nanos() - now.as_nanos())))
        })
    }

    /// Returns true if the log has begun, which means that it has a chunk.
    pub(crate) fn is_begun(&self) -> bool {
        self.root.is_linked()
    }

    /// Returns the answer that [`check`](Self::check) would give, with the figures before the
    /// charge. Returns `None` if the log is sealed. This method only loads.
    pub(crate) fn peek(
        &self,
        rule: &SlidingLog,
        now: Tick,
        cost: u64,
        is_latest: impl Fn() -> bool,
    ) -> Option<Decision> {
        under_guard(|guard| {
            let view = LogView::of(&self.root, rule, now, guard)?;
            let is_over = view.as_ref().is_some_and(LogView::is_sealed) || !is_latest();
            let answer = || LogRequest { now, cost, is_peek: true }.answer(rule, view.as_ref());
            Ok((!is_over).then(answer))
        })
    }

    /// Charges `tokens`, but at most the remaining tokens, because a log allows no debt. Returns
    /// the number of tokens charged, or `None` if the log is sealed. An empty log starts at
    /// `mark()` or later. This method is lock-free.
    pub(crate) fn force(
        &self,
        mark: impl Fn() -> Tick,
        rule: &SlidingLog,
        now: Tick,
        tokens: u64,
        retired: &Bag,
        is_latest: impl Fn() -> bool,
    ) -> Option<u64> {
        // Every iteration except the last means that another thread has charged.
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

    /// Gives back up to `tokens` of the tokens taken by `charge`, as long as the charge is in the
    /// window. Returns `None` if the log is sealed. If several charges have the same time, any of
    /// them may give back the tokens, because they leave the window together. This method is
    /// lock-free.
    ///
    /// A charge gives back nothing after a reset, or if no log made the charge. A charge made under
    /// another quota is found by its time, and gives back the tokens that it still holds.
    /// `is_current` returns true if the charge may still be refunded. It is called after the walk
    /// has found the start of the log, and therefore after each reset that has moved the start.
    pub(crate) fn refund_if(
        &self,
        charge: &Decision,
        tokens: u64,
        is_current: impl Fn() -> bool,
    ) -> Option<()> {
        under_guard(|guard| {
            // These are the chunks since the last reset.
            let Some(chunks) = LogView::walk(&self.root, None, guard)? else { return Ok(Some(())) };
            if chunks.last().end().behind == Behind::Sealed {
                return Ok(None);
            }
            if is_current() {
                Self::refund_in(chunks, charge, tokens);
            }
            Ok(Some(()))
        })
    }

    /// Gives back up to `tokens` of a charge made in one of these chunks.
    fn refund_in(chunks: Walked<'_, Chunk>, charge: &Decision, tokens: u64) {
        let Some((until, period)) = charge.figures.held() else { return };
        // If the subtraction fails, the window would have started before tick 0, so another limiter
        // made the charge.
        let Some(time) = until.checked_sub(period) else { return };
        let mut left = tokens.min(charge.charged());
        if left == 0 {
            return;
        }
        let chunks: Vec<_> = chunks.iter().take_while(|chunk| chunk.start.mark.time <= time).collect();
        // If several charges have the same time, the last of them gives back its tokens first, both
        // here and within a chunk. If a refund thereby takes tokens from a later charge, as many
        // tokens remain in its own charge, and the later charge's refund finds them there. In the
        // opposite order, tokens might remain in a charge that the other refund cannot see yet.
        for chunk in chunks.into_iter().rev() {
            match chunk.give_back(time, left) {
                Some(given) if given < left => left -= given,
                _ => break,
            }
        }
    }

    /// Gives back up to `tokens` of a current charge. Tests call this instead of
    /// [`refund_if`](Self::refund_if).
    #[cfg(test)]
    pub(crate) fn refund(&self, charge: &Decision, tokens: u64) -> Option<()> {
        self.refund_if(charge, tokens, || true)
    }

    /// Resets the log to the state of a new key's log, which may be charged at any time that is not
    /// in the rule's past. Returns `None` if the log is sealed. This method is lock-free.
    pub(crate) fn reset(&self, rule: &SlidingLog, retired: &Bag) -> Option<()> {
        under_guard(|guard| {
            let Some(tail) = LogView::tail(&self.root, guard)? else { return Ok(Some(())) };
            let end = tail.end();
            if end.behind == Behind::Sealed {
                return Ok(None);
            }
            if tail.start.anew && end.filled == 0 && tail.start.mark.time == 0 {
                return Ok(Some(()));
            }
            if end.behind == Behind::Empty && tail.close(&end) == Write::Lost {
                return Err(Retry);
            }
            let start = Self::start_behind(tail, &end, 0);
            let start = Start { before: None, anew: true, fields: rule.fields, ..start };
            let chunk = linked(tail.next.install(Chunk::new(start, 0, EMPTY), guard))?;
            self.retire_before(chunk, guard, retired);
            Ok(Some(()))
        })
    }

    /// Returns true if the log gives the same decisions as a new log at `now` and later. For a
    /// sealed log, returns whether this was the case when the log was sealed. This method only
    /// loads.
    pub(crate) fn is_idle(&self, rule: &SlidingLog, now: Tick) -> bool {
        under_guard(|guard| self.is_idle_under(rule, now, guard))
    }

    fn is_idle_under(&self, rule: &SlidingLog, now: Tick, guard: &Guard) -> Result<bool, Retry> {
        Ok(LogView::of(&self.root, rule, now, guard)?.is_none_or(|view| view.is_idle(now)))
    }

    /// Returns a time from which the log is idle, unless it is charged again. If everything was
    /// given back, this is the time of the log's end. Otherwise it is the time at which the last
    /// admission leaves the window.
    fn idle_from(&self, rule: &SlidingLog, view: &LogView<'_>, guard: &Guard) -> Result<Tick, Retry> {
        let last = view.end.last.time;
        let first = Tick::from_nanos(last.max(rule.past.until));
        let is_idle = self.is_idle_under(rule, first, guard)?;
        Ok(if is_idle { first } else { first.max(Tick::from_nanos(last + rule.period)) })
    }

    /// Returns the number of bytes in the chunks, excluding retired chunks.
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

    /// Writes an admission at the end of the log as seen by `view`. Returns the first chunk that
    /// counts now, or [`Retry`] if the log has changed since it was viewed.
    #[inline]
    fn admit<'g>(
        &'g self,
        rule: &SlidingLog,
        view: Option<&LogView<'g>>,
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
            let mark = LogMark { time, tokens: end.last.tokens.wrapping_add(cost) };
            // The large chunk of a burst is not reused once all admissions of the burst have left
            // the window.
            let is_too_large = view.live == 0 && tail.is_larger_than_the_smallest();
            let written = match is_too_large {
                true => Write::DoesNotFit,
                false => tail.append(end, mark),
            };
            match written {
                Write::Done => return Ok(view.chunks.first()),
                Write::Lost => return Err(Retry),
                Write::DoesNotFit if tail.close(end) == Write::Lost => return Err(Retry),
                Write::DoesNotFit => reach(LogStep::Closed),
            }
        }
        let slots = Chunk::slots_behind(end, view.live);
        let fields = tail.fields_behind(end, slots, rule.fields, time, cost);
        let start = Start { fields, ..Self::start_behind(tail, end, time) };
        let linked = linked(tail.next.install(Self::chunk_of(start, slots, cost), guard))?;
        Ok(if view.live == 0 { linked } else { view.chunks.first() })
    }

    /// Creates a chunk of about `slots` slots that contains one admission.
    #[cold]
    fn chunk_of(start: Start, slots: usize, cost: u64) -> Chunk {
        // The fields were chosen so that `cost` fits.
        let first = start.fields.pack(LogMark { time: 0, tokens: cost }).unwrap_or(EMPTY);
        Chunk::new(start, slots, first)
    }

    /// Returns the start of a chunk behind `tail`, with the same fields as `tail`.
    fn start_behind(tail: &Chunk, end: &ChunkEnd, time: u64) -> Start {
        Start {
            number: tail.start.number + 1,
            admissions: tail.start.admissions + end.filled as u64,
            mark: LogMark { time, tokens: end.last.tokens },
            before: tail.last_admission(end),
            anew: false,
            fields: tail.start.fields,
        }
    }

    /// Retires the chunks before `first`, whose admissions no longer count.
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
                reach(LogStep::Retired);
            }
        }
        Ok(())
    }

    /// Returns the admissions in the window that ends at the key's time, without the tokens given
    /// back. Returns `None` if the log is sealed or its rule was replaced. This method only loads.
    pub(crate) fn saved(&self, rule: &SlidingLog, is_latest: impl Fn() -> bool) -> Option<Vec<Admission>> {
        under_guard(|guard| {
            let Some(view) = LogView::of(&self.root, rule, Tick::ZERO, guard)? else {
                return Ok(is_latest().then(Vec::new));
            };
            if view.is_sealed() || !is_latest() {
                return Ok(None);
            }
            let parts = view.parts().flat_map(|(part, from)| (from..part.filled).map(move |at| (part, at)));
            let admissions = parts.map(|(part, at)| {
                let time = Tick::from_nanos(part.chunk.mark_before(at + 1).time);
                Admission { time, tokens: part.chunk.held(at..at + 1) }
            });
            Ok(Some(admissions.filter(|admission| admission.tokens > 0).collect()))
        })
    }

    /// Appends the saved admissions of another log. No other thread uses this log yet. The
    /// admissions must be possible under `rule` ([`SlidingLog::until`]).
    pub(crate) fn restore(&self, rule: &SlidingLog, admissions: &[Admission]) {
        let tokens = admissions.iter().map(|admission| admission.tokens).sum();
        // The admissions may exceed the limit, if the limit has become smaller since the save.
        let rule = SlidingLog { fields: SlotFields::of_tokens(rule.limit.max(tokens)), ..*rule };
        for &Admission { time, tokens } in admissions {
            under_guard(|guard| {
                let view = LogView::of(&self.root, &rule, time, guard)?;
                self.admit(&rule, view.as_ref(), time.as_nanos(), tokens, guard).map(drop)
            });
        }
    }

    /// Returns true if the log is sealed. A sealed log is never unsealed.
    pub(crate) fn is_sealed(&self) -> bool {
        let is_sealed = |tail: &Chunk| tail.end().behind == Behind::Sealed;
        under_guard(|guard| Ok(LogView::tail(&self.root, guard)?.is_some_and(is_sealed)))
    }

    /// Seals the log if it is idle at `judged_at`, and releases most of its memory. Returns whether
    /// the log is now sealed, whichever thread has sealed it. Before it seals the log, this method
    /// passes `forget` a time from which the log is idle. This method is lock-free.
    pub(crate) fn seal_if_idle(
        &self,
        rule: &SlidingLog,
        judged_at: Tick,
        retired: &Bag,
        forget: impl Fn(Tick),
        is_latest: impl Fn() -> bool,
    ) -> Option<bool> {
        under_guard(|guard| {
            let Some(view) = LogView::of(&self.root, rule, judged_at, guard)? else {
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
                    Write::Done => reach(LogStep::Closed),
                    _ => return Err(Retry),
                }
            }
            // The sealed chunk starts at the time of the judgement, because admissions in retired
            // chunks may still count in an earlier window.
            let sealed = Chunk::sealed(Self::start_behind(tail, end, view.time));
            let chunk = linked(tail.next.install(sealed, guard))?;
            self.retire_before(chunk, guard, retired);
            Ok(Some(true))
        })
    }

    /// Returns the past for the rule that replaces `old` at `now`.
    pub(crate) fn past(&self, old: &SlidingLog, now: Tick, guard: &Guard) -> Result<Past, Retry> {
        let Some(view) = LogView::of(&self.root, old, now, guard)? else { return Ok(old.past) };
        // If this admission has not left the window at `view.time`, it was made before a reset.
        let out = view.last_out().filter(|out| out + old.period <= view.time);
        let until = |out: u64| (out + old.period).max(old.past.until);
        let new = out.map(|out| Past { from: out + 1, until: until(out) });
        Ok(new.filter(|new| new.from > old.past.from).unwrap_or(old.past))
    }

    /// Changes the place where the log can grow, so that threads that saw this place before the
    /// change can no longer write to it. Seals a log that has not begun. Does nothing if the log is
    /// already sealed. `is_due` returns false once the change is done. This method is lock-free.
    pub(crate) fn change(&self, is_due: impl Fn() -> bool) {
        under_guard(|guard| {
            let Some(tail) = LogView::tail(&self.root, guard)? else {
                return if self.seal_unbegun(guard) { Ok(()) } else { Err(Retry) };
            };
            let end = tail.end();
            if end.behind == Behind::Sealed || !is_due() {
                return Ok(());
            }
            reach(LogStep::Decided);
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

    /// Seals a log that has not begun. Returns false if another thread has begun the log first.
    fn seal_unbegun(&self, guard: &Guard) -> bool {
        let start = Start::first(0, SlotFields::of_tokens(1));
        self.root.install(Chunk::sealed(start), guard).is_ok()
    }
}

/// Returns the chunk if this thread has linked it.
fn linked(installed: Result<&Chunk, Chunk>) -> Result<&Chunk, Retry> {
    let chunk = installed.map_err(|_| Retry)?;
    reach(LogStep::Linked);
    Ok(chunk)
}
