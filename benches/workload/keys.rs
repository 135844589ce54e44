//! Keys and the order in which they arrive. They are prepared before anything is timed, because a
//! benchmark of checks must not measure the generator.
//!
//! A stream contains the keys themselves, one after the other, in the order of the checks. Walking
//! through it costs little, because the processor prefetches. Texts are allocated in the same
//! order.

use std::fmt;
use std::hash::Hash;
use std::net::Ipv6Addr;

/// A key of the benchmarks.
pub trait Key: Hash + Eq + Clone + Send + Sync + 'static {
    /// The name of the type in results.
    const NAME: &str;
    /// Returns a different key for each number. The order of the numbers does not show in the keys.
    fn numbered(number: u64) -> Self;
}

impl Key for u64 {
    const NAME: &str = "u64";

    fn numbered(number: u64) -> Self {
        mixed(number)
    }
}

impl Key for String {
    const NAME: &str = "String";

    /// Returns a text of 17 bytes, like an identifier of a service.
    fn numbered(number: u64) -> Self {
        format!("user-{:012x}", mixed(number) >> 16)
    }
}

impl Key for Ipv6Addr {
    const NAME: &str = "IPv6";

    fn numbered(number: u64) -> Self {
        Self::from((0x2001_0db8_u128 << 96) | u128::from(mixed(number)))
    }
}

/// The mixing step of SplitMix64, which is a bijection.
fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The weight of the n-th key is n to the power of minus this, as in the Yahoo cloud serving
/// benchmark.
pub const ZIPF_EXPONENT: f64 = 0.99;

/// The order in which keys arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Each key is as likely as any other.
    Uniform,
    /// The first keys are the most frequent: see [`ZIPF_EXPONENT`].
    Zipf,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Zipf => "Zipf",
        })
    }
}

/// Returns an endless sequence of keys from 0 to `count`, which is the same in every run. It uses
/// inversion: a draw is a point on a line on which each key has a stretch as long as its weight.
pub fn numbers(order: Order, count: u64) -> impl Iterator<Item = u64> {
    let ends: Vec<f64> = match order {
        Order::Uniform => Vec::new(),
        Order::Zipf => (1..=count)
            .scan(0.0, |end, rank| {
                *end += (rank as f64).powf(-ZIPF_EXPONENT);
                Some(*end)
            })
            .collect(),
    };
    let draws = (0_u64..).map(|draw| mixed(draw ^ 0x5851_f42d_4c95_7f2d));
    draws.map(move |draw| match ends.last() {
        None => u64::try_from((u128::from(draw) * u128::from(count)) >> 64).expect("less than the count"),
        Some(&total) => {
            let point = draw as f64 / u64::MAX as f64 * total;
            (ends.partition_point(|&end| end < point) as u64).min(count - 1)
        }
    })
}

/// The number of checks in a stream of `count` keys. If the keys are few, they fit into the caches
/// together with their stream. If the keys are many, the stream visits more of them than fit into
/// the caches.
fn length(count: u64) -> usize {
    if count <= 1_000 { 1 << 14 } else { 1 << 21 }
}

/// Returns checks of the first `count` keys.
pub fn stream<K: Key>(order: Order, count: u64) -> Vec<K> {
    numbers(order, count).take(length(count)).map(K::numbered).collect()
}

/// Returns checks of `count` keys that are not among the first `count`, each as likely as any
/// other.
pub fn strangers<K: Key>(count: u64) -> Vec<K> {
    numbers(Order::Uniform, count).take(length(count)).map(|number| K::numbered(count + number)).collect()
}

/// The position of one thread in a stream, which it repeats endlessly.
pub struct Walk<'k, K> {
    keys: &'k [K],
    at: usize,
}

impl<'k, K> Walk<'k, K> {
    /// Creates a walk from the beginning.
    pub fn new(keys: &'k [K]) -> Self {
        Self { keys, at: 0 }
    }

    /// Creates a walk for each thread, from positions that are far apart.
    pub fn apart(keys: &'k [K], threads: usize) -> Vec<Self> {
        (0..threads).map(|thread| Self { keys, at: keys.len() / threads * thread }).collect()
    }

    #[inline]
    pub fn step(&mut self) -> &'k K {
        let key = &self.keys[self.at];
        self.at += 1;
        if self.at == self.keys.len() {
            self.at = 0;
        }
        key
    }

    /// Returns the next `N` keys. The length of a stream is a multiple of `N`.
    #[inline]
    pub fn steps<const N: usize>(&mut self) -> &'k [K] {
        let keys = &self.keys[self.at..self.at + N];
        self.at = (self.at + N) % self.keys.len();
        keys
    }
}
