//! Tests the load of a saved limiter. A damaged file is refused. A forged file, which has a valid
//! checksum, is refused or produces a limiter that works at any time.

use super::input::Input;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::time::Duration;
use tollgate::{
    Algorithm, Builder, Chargeable, Decision, Limiter, LoadOptions, ManualClock, Quota, SingleLimiter, Tick,
};

/// The numbers of bytes before the first block of a file and after the last block.
const HEAD: usize = 14;
const TAIL: usize = 12;

pub fn body(data: &[u8]) {
    // The fuzzer's input, taken as a file, has a valid checksum only by chance.
    let _ = (keyed(Algorithm::TokenBucket).load(data), single(Algorithm::SlidingLog).load(data));
    let mut input = Input(data);
    let algorithm = Algorithm::ALL[input.below(Algorithm::ALL.len())];
    let is_single = algorithm == Algorithm::SlidingLog || input.below(2) == 0;
    let mut file = if is_single { of_single(algorithm) } else { of_keys(algorithm) };
    forge(&mut file, &mut input);
    if is_single {
        if let Ok(loaded) = single(algorithm).load(&file[..]) {
            times().for_each(|now| use_it(&loaded.at(now)));
        }
    } else if let Ok(loaded) = keyed(algorithm).load_with(LoadOptions::new().drop_excess_keys(), &file[..]) {
        assert!(loaded.len() <= 64);
        for now in times() {
            (0..5).for_each(|key| use_it(&loaded.at(now).for_key(&key)));
            let _ = loaded.at(now).sweep(1_000);
        }
        // The loaded limiter can be saved and loaded again.
        let mut file = Vec::new();
        loaded.save(&mut file).unwrap();
        assert!(keyed(algorithm).load(&file[..]).is_ok());
    }
}

/// Changes bytes of a file, and corrects the checksum.
fn forge(file: &mut [u8], input: &mut Input<'_>) {
    let end = file.len() - TAIL;
    while !input.is_empty() {
        let at = usize::from(input.byte()) + 256 * input.below(4);
        if let Some(byte) = file[HEAD..end].get_mut(at) {
            *byte = input.byte();
        }
    }
    let mut sum = SipHasher13::new();
    sum.write(&file[HEAD..end]);
    let sum = sum.finish().to_le_bytes();
    file[end + 4..].copy_from_slice(&sum);
}

fn times() -> impl Iterator<Item = Tick> {
    [0, 1_000_000_000, 1 << 40, 1 << 60, 1 << 61].into_iter().map(Tick::from_nanos)
}

/// Calls everything that computes with a state.
fn use_it(limit: &impl Chargeable) {
    let figures = |decision: Decision| (decision.remaining(), decision.retry_after(), decision.reset_after());
    let charge = limit.check_n(1);
    let _ = (figures(limit.peek_n(2)), figures(charge), limit.force(3));
    limit.refund_n(&charge, 1);
}

fn keyed(algorithm: Algorithm) -> Builder<Limiter<u64>> {
    let builder = Limiter::builder(Quota::per_minute(9)).algorithm(algorithm).clock(ManualClock::new());
    if algorithm == Algorithm::SlidingLog { builder } else { builder.max_debt(2) }.max_keys(64)
}

fn single(algorithm: Algorithm) -> Builder<SingleLimiter> {
    SingleLimiter::builder(Quota::per_minute(9)).algorithm(algorithm).clock(ManualClock::new())
}

/// Returns a file with keys, an own quota, and a pause.
fn of_keys(algorithm: Algorithm) -> Vec<u8> {
    let limiter = keyed(algorithm).build().unwrap();
    limiter.set_key_quota(&1, Quota::per_hour(5)).unwrap();
    for key in 0..4 {
        assert!(limiter.check_n(&key, key).is_allowed());
    }
    limiter.pause(&4, Duration::from_secs(60)).unwrap();
    let mut file = Vec::new();
    limiter.save(&mut file).unwrap();
    file
}

fn of_single(algorithm: Algorithm) -> Vec<u8> {
    let limiter = single(algorithm).build().unwrap();
    assert!((1..4).all(|cost| limiter.check_n(cost).is_allowed()));
    let mut file = Vec::new();
    limiter.save(&mut file).unwrap();
    file
}
