//! Slow, exact rate limiters that are obviously correct. Tests compare the fast limiters with them.
//!
//! Each oracle stores a plain list of its admissions. It answers one question: *does this cost fit
//! at this time?* The answer follows directly from the algorithm's definition, in exact integers. A
//! binary search over that answer finds all other figures (remaining tokens, retry and reset
//! times). An oracle therefore shares no closed formula with the fast rules.

pub mod history;
pub mod permits;

use tollgate::{Algorithm, Quota};

/// The last tick: 2^61 nanoseconds.
pub const END: u64 = 1 << 61;

/// The algorithms whose state is one word.
pub const PACKED: [Algorithm; 5] = Algorithm::PACKED;

/// The tokens of one admitted request. Charges are stored in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Charge {
    at: u64,
    cost: u64,
}

/// An exact limiter for one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Oracle {
    algorithm: Algorithm,
    limit: i128,
    period: i128,
    capacity: u64,
    /// The number of tokens by which a forced charge may exceed the capacity.
    debt: u64,
    phase: i128,
    charges: Vec<Charge>,
}

impl Oracle {
    pub fn new(algorithm: Algorithm, quota: Quota, phase: u64) -> Self {
        let capacity = quota.capacity();
        Self {
            algorithm,
            limit: i128::from(quota.tokens()),
            period: i128::try_from(quota.period().as_nanos()).unwrap(),
            capacity,
            debt: 0,
            phase: i128::from(phase),
            charges: Vec::new(),
        }
    }

    pub fn max_debt(self, debt: u64) -> Self {
        Self { debt, ..self }
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns whether the rules promise exactness. A bucket's emission interval must then be a
    /// whole number of nanoseconds.
    pub fn is_exact(&self) -> bool {
        self.algorithm.has_windows()
            || self.algorithm == Algorithm::SlidingLog
            || self.period % self.limit == 0
    }

    /// Returns whether a request of `cost` at `now` fits on top of the admissions so far.
    pub fn fits(&self, now: u64, cost: u64) -> bool {
        cost <= self.capacity && self.fits_beyond(now, cost, 0)
    }

    /// Returns how many of `tokens` a forced charge takes at `now`.
    pub fn forced(&self, now: u64, tokens: u64) -> u64 {
        last(0, tokens.min(self.capacity + self.debt), |cost| self.fits_beyond(now, cost, self.debt))
    }

    /// Returns whether `cost` would fit if the capacity were `debt` tokens larger.
    fn fits_beyond(&self, now: u64, cost: u64, debt: u64) -> bool {
        if cost == 0 {
            return true;
        }
        let debt = i128::from(debt);
        match self.algorithm {
            Algorithm::FixedWindow => self.fits_fixed(now, cost, self.limit + debt),
            Algorithm::SlidingWindow => self.fits_sliding(now, cost, self.limit + debt),
            Algorithm::SlidingLog => self.fits_log(now, cost),
            _ => self.fits_bucket(now, cost, i128::from(self.capacity) + debt),
        }
    }

    /// Checks a bucket as an arrival curve. For every earlier charge, sums the tokens taken since
    /// that charge, including that charge and this request. The sum must be at most the burst plus
    /// the refill since then.
    fn fits_bucket(&self, now: u64, cost: u64, capacity: i128) -> bool {
        let mut taken = i128::from(cost);
        self.charges.iter().rev().all(|charge| {
            taken += i128::from(charge.cost);
            let elapsed = i128::from(now) - i128::from(charge.at);
            taken * self.period <= capacity * self.period + elapsed * self.limit
        })
    }

    /// Returns the window of `now`. If the latest charge is in a later window, returns that window,
    /// because a key never returns to an earlier one.
    fn window(&self, now: u64) -> i128 {
        let window = |at: u64| (i128::from(at) + self.phase).div_euclid(self.period);
        self.charges.iter().map(|charge| window(charge.at)).fold(window(now), i128::max)
    }

    /// Returns the first nanosecond of the window in which a charge at `now` counts.
    pub fn window_start(&self, now: u64) -> u64 {
        u64::try_from((self.window(now) * self.period - self.phase).max(0)).unwrap()
    }

    /// Returns the number of tokens charged in `window`. Each charge counts in the latest window
    /// that the key had reached.
    fn charged_in(&self, window: i128) -> i128 {
        let mut latest = i128::MIN;
        let mut sum = 0;
        for charge in &self.charges {
            latest = latest.max((i128::from(charge.at) + self.phase).div_euclid(self.period));
            if latest == window {
                sum += i128::from(charge.cost);
            }
        }
        sum
    }

    fn fits_fixed(&self, now: u64, cost: u64, limit: i128) -> bool {
        self.charged_in(self.window(now)) + i128::from(cost) <= limit
    }

    /// Checks a sliding window. Charges in the previous window are weighted by how much of that
    /// window the trailing period still covers.
    fn fits_sliding(&self, now: u64, cost: u64, limit: i128) -> bool {
        let window = self.window(now);
        let start = window * self.period - self.phase;
        let elapsed = (i128::from(now) - start).max(0);
        let weighted = self.charged_in(window - 1) * (self.period - elapsed);
        weighted + (self.charged_in(window) + i128::from(cost)) * self.period <= limit * self.period
    }

    /// Checks a sliding log, which is a plain list of admissions. Each admission, including this
    /// request, counts at its own time or the previous admission's time, whichever is later.
    fn fits_log(&self, now: u64, cost: u64) -> bool {
        let counted = self.counted();
        let now = counted.last().copied().unwrap_or(0).max(now);
        let charges = counted.iter().zip(&self.charges);
        let in_window = charges.filter(|(at, _)| i128::from(**at) > i128::from(now) - self.period);
        in_window.map(|(_, charge)| i128::from(charge.cost)).sum::<i128>() + i128::from(cost) <= self.limit
    }

    /// Returns the time at which a sliding log counts each charge.
    fn counted(&self) -> Vec<u64> {
        let mut latest = 0;
        let times = self.charges.iter().map(|charge| {
            latest = charge.at.max(latest);
            latest
        });
        times.collect()
    }

    /// Removes up to `tokens` of the tokens that a sliding log counts at `time`. The charges and
    /// their times are kept.
    pub fn give_back(&mut self, time: u64, mut tokens: u64) {
        let counted = self.counted();
        for (_, charge) in counted.iter().zip(&mut self.charges).filter(|(at, _)| **at == time) {
            let given = tokens.min(charge.cost);
            charge.cost -= given;
            tokens -= given;
        }
    }

    pub fn charge(&mut self, now: u64, cost: u64) {
        if cost > 0 {
            self.charges.push(Charge { at: now, cost });
        }
    }

    /// Removes a charge, as if it had never been made.
    pub fn forget(&mut self, index: usize) {
        self.charges.remove(index);
    }

    /// Removes `tokens` from a bucket's charge, as if the charge had been smaller. The key's latest
    /// time does not change.
    pub fn refund(&mut self, index: usize, tokens: u64) {
        let charge = &mut self.charges[index];
        charge.cost = charge.cost.saturating_sub(tokens);
    }

    /// Forgets all charges, and their times.
    pub fn reset(&mut self) {
        self.charges.clear();
    }

    pub fn charges(&self) -> usize {
        self.charges.len()
    }

    /// Returns the largest cost that fits at `now`.
    pub fn remaining(&self, now: u64) -> u64 {
        last(0, self.capacity, |cost| self.fits(now, cost))
    }

    /// Returns the first time, not before `now`, at which `cost` fits.
    pub fn fits_at(&self, now: u64, cost: u64) -> Option<u64> {
        first(now, END, |at| self.fits(at, cost))
    }

    /// Returns the first time, not before `now`, at which the whole capacity fits.
    pub fn idle_at(&self, now: u64) -> Option<u64> {
        self.fits_at(now, self.capacity)
    }

    /// Returns the time at which the bucket's present content has leaked. For a queue, this is the
    /// time of the next request's turn.
    pub fn turn_at(&self, now: u64) -> Option<u64> {
        self.idle_at(now)
    }

    /// Returns the maximum number of tokens admitted between two times that are `span` apart, both
    /// included.
    pub fn most_within(&self, span: u64) -> u64 {
        let mut times: Vec<_> = self.charges.clone();
        times.sort_by_key(|charge| charge.at);
        let mut most = 0;
        for (i, from) in times.iter().enumerate() {
            let until = from.at.saturating_add(span);
            let sum = times[i..].iter().take_while(|charge| charge.at <= until).map(|c| c.cost).sum();
            most = most.max(sum);
        }
        most
    }
}

/// Returns the smallest number in `low..=high` for which `is_true` holds. If `is_true` holds for a
/// number, it must hold for all larger numbers.
fn first(mut low: u64, mut high: u64, is_true: impl Fn(u64) -> bool) -> Option<u64> {
    if low > high || !is_true(high) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if is_true(middle) { high = middle } else { low = middle + 1 }
    }
    Some(low)
}

/// Returns the largest number in `low..=high` for which `is_true` holds. `is_true` must hold for
/// `low`. If `is_true` fails for a number, it must fail for all larger numbers.
fn last(mut low: u64, mut high: u64, is_true: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = high - (high - low) / 2;
        if is_true(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_end_at_the_edges() {
        assert_eq!(first(3, 9, |n| n >= 3), Some(3));
        assert_eq!(first(3, 9, |n| n >= 9), Some(9));
        assert_eq!(first(3, 9, |n| n > 9), None);
        assert_eq!(last(3, 9, |n| n <= 3), 3);
        assert_eq!(last(3, 9, |_| true), 9);
    }
}
