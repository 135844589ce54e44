//! The keys of the benchmarks follow their distribution and come in the same order in every run.

#[allow(dead_code, unreachable_pub)]
#[path = "../../benches/workload/keys.rs"]
mod keys;

use keys::{Key, Order, ZIPF_EXPONENT};
use std::collections::HashSet;
use std::net::Ipv6Addr;

const COUNT: u64 = 1_000;
const DRAWS: u32 = 1_000_000;

/// Returns how often each key occurs.
fn visits(order: Order) -> Vec<u32> {
    let mut visits = vec![0; 1_000];
    for number in keys::numbers(order, COUNT).take(DRAWS as usize) {
        visits[usize::try_from(number).unwrap()] += 1;
    }
    visits
}

/// Asserts that `counted` is within five standard deviations of the expected number.
fn assert_near(counted: u32, share: f64, what: &str) {
    let expected = share * f64::from(DRAWS);
    let deviation = (expected * (1.0 - share)).sqrt();
    assert!((f64::from(counted) - expected).abs() < 5.0 * deviation, "{what}: {counted}, not {expected}");
}

#[test]
fn uniform_keys_come_equally_often() {
    for (key, counted) in visits(Order::Uniform).into_iter().enumerate() {
        assert_near(counted, 1.0 / COUNT as f64, &format!("key {key}"));
    }
}

#[test]
fn zipf_keys_come_as_often_as_their_rank_says() {
    let weight = |rank: u64| (rank as f64).powf(-ZIPF_EXPONENT);
    let total: f64 = (1..=COUNT).map(weight).sum();
    for (rank, counted) in (1..).zip(visits(Order::Zipf)) {
        assert_near(counted, weight(rank) / total, &format!("rank {rank}"));
    }
}

#[test]
fn streams_are_the_same_in_every_run() {
    let first: Vec<u64> = keys::numbers(Order::Zipf, COUNT).take(8).collect();
    assert_eq!(first, [138, 169, 1, 1, 876, 3, 514, 865]);
    assert_eq!(keys::stream::<u64>(Order::Zipf, COUNT), keys::stream::<u64>(Order::Zipf, COUNT));
}

#[test]
fn other_numbers_are_other_keys() {
    fn distinct<K: Key>() -> usize {
        (0..100_000).map(K::numbered).collect::<HashSet<K>>().len()
    }
    assert_eq!([distinct::<u64>(), distinct::<String>(), distinct::<Ipv6Addr>()], [100_000; 3]);
}

#[test]
fn strangers_are_none_of_the_known_keys() {
    let known: HashSet<u64> = (0..COUNT).map(u64::numbered).collect();
    assert!(keys::strangers::<u64>(COUNT).iter().all(|key| !known.contains(key)));
}
