//! Keys and the order in which they arrive. They are prepared before anything is timed.
//!
//! A stream contains the keys themselves, one after the other, in the order of the checks. Walking
//! through it costs the same for every subject, and little, because the processor prefetches. Texts
//! are allocated in the same order.

use std::fmt::Display;
use std::hash::Hash;
use std::net::Ipv6Addr;

/// A key of the benchmarks.
pub trait Key: Hash + Eq + Clone + Display + Send + Sync + 'static {
    /// Returns a different key for each number. The order of the numbers does not show in the keys.
    fn numbered(number: u64) -> Self;

    /// Returns the key as text, if it is a text. Some limiters accept no other keys.
    fn text(&self) -> Option<&str> {
        None
    }

    /// Returns the key in the form that rate-net accepts.
    fn rate_net(&self) -> rate_net::Key;
}

impl Key for u64 {
    fn numbered(number: u64) -> Self {
        mixed(number)
    }

    fn rate_net(&self) -> rate_net::Key {
        rate_net::Key::from(*self)
    }
}

impl Key for String {
    /// Returns a text of 17 bytes, like an identifier of a service. It is short enough for limiters
    /// that store short texts inline.
    fn numbered(number: u64) -> Self {
        format!("user-{:012x}", mixed(number) >> 16)
    }

    fn text(&self) -> Option<&str> {
        Some(self)
    }

    fn rate_net(&self) -> rate_net::Key {
        rate_net::Key::from(self.as_str())
    }
}

impl Key for Ipv6Addr {
    fn numbered(number: u64) -> Self {
        Self::from((0x2001_0db8_u128 << 96) | u128::from(mixed(number)))
    }

    fn rate_net(&self) -> rate_net::Key {
        rate_net::Key::from(*self)
    }
}

/// The mixing step of SplitMix64, which is a bijection.
fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The order in which keys arrive.
#[derive(Clone, Copy, PartialEq)]
pub enum Order {
    /// Each key is as likely as any other.
    Uniform,
    /// The n-th key has a weight of n^-0.99, as in the Yahoo cloud serving benchmark.
    Zipf,
    /// Each key arrives once.
    Fresh,
}

/// The number of checks that are made without interruption. The length of a stream is a multiple of
/// it.
pub const CHUNK: usize = 1024;

/// Returns the first `count` keys, each once.
pub fn distinct<K: Key>(count: usize) -> Vec<K> {
    (0..count as u64).map(K::numbered).collect()
}

/// Returns at least `length` checks of `count` keys, which are the same in every run.
pub fn stream<K: Key>(order: Order, count: usize, length: usize) -> Vec<K> {
    let length = length.next_multiple_of(CHUNK);
    let mut draws = (0_u64..).map(|draw| mixed(draw ^ 0x5851_f42d_4c95_7f2d));
    let mut drawn = || draws.next().unwrap_or(0);
    match order {
        Order::Fresh => distinct(length),
        Order::Uniform => {
            let below = |draw: u64| ((u128::from(draw) * count as u128) >> 64) as u64;
            (0..length).map(|_| K::numbered(below(drawn()))).collect()
        }
        Order::Zipf => {
            let mut total = 0.0;
            let weights = (1..=count).map(|rank| (rank as f64).powf(-0.99));
            let up_to: Vec<f64> = weights
                .map(|weight| {
                    total += weight;
                    total
                })
                .collect();
            let ranked = |draw: u64| {
                let point = draw as f64 / u64::MAX as f64 * total;
                up_to.partition_point(|&up_to| up_to < point).min(count - 1) as u64
            };
            (0..length).map(|_| K::numbered(ranked(drawn()))).collect()
        }
    }
}
