//! Keys and the order in which they come, prepared before anything is timed: a benchmark of checks
//! must not measure the generator.
//!
//! A stream holds the keys themselves, one after the other, in the order of the checks. To walk
//! through it costs little, as the processor fetches ahead; texts are allocated in that order too.

use std::fmt;
use std::hash::Hash;
use std::net::Ipv6Addr;

/// A key of the benchmarks.
pub trait Key: Hash + Eq + Clone + Send + Sync + 'static {
    /// The type's name in results.
    const NAME: &str;
    /// A different key for each number. The numbers' order does not show.
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

    /// 17 bytes: an identifier such as services have.
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

/// SplitMix64's mixing step: one to one.
fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The weight of the n-th key is n to the power of minus this, as in the Yahoo cloud serving
/// benchmark.
pub const ZIPF_EXPONENT: f64 = 0.99;

/// The order in which keys come.
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

/// The sequence of keys out of `count`, from 0, endless and equal in every run. By inversion: a
/// draw is a point on a line on which each key has a stretch as long as its weight.
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

/// The checks in a stream of `count` keys: few enough that few keys fit into the caches with their
/// stream, and enough to visit more of many keys than fit.
fn length(count: u64) -> usize {
    if count <= 1_000 { 1 << 14 } else { 1 << 21 }
}

/// Checks of the first `count` keys.
pub fn stream<K: Key>(order: Order, count: u64) -> Vec<K> {
    numbers(order, count).take(length(count)).map(K::numbered).collect()
}

/// Keys that are not among the first `count`: `count` others, each as likely as any other.
pub fn strangers<K: Key>(count: u64) -> Vec<K> {
    numbers(Order::Uniform, count).take(length(count)).map(|number| K::numbered(count + number)).collect()
}

/// One thread's way through a stream, round and round.
pub struct Walk<'k, K> {
    keys: &'k [K],
    at: usize,
}

impl<'k, K> Walk<'k, K> {
    /// A walk from the beginning.
    pub fn new(keys: &'k [K]) -> Self {
        Self { keys, at: 0 }
    }

    /// One walk for each thread, from places that lie far apart.
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

    /// The next `N`; a stream is a whole number of them.
    #[inline]
    pub fn steps<const N: usize>(&mut self) -> &'k [K] {
        let keys = &self.keys[self.at..self.at + N];
        self.at = (self.at + N) % self.keys.len();
        keys
    }
}
