//! The decisions of limiters, as their users see them. These tests need no separate process. Each
//! test of both stores is compiled twice, once with each store.
#![allow(clippy::duplicate_mod)]

mod bench_keys;
mod bounds;
mod exact;
mod fuzz_corpus;
mod in_flight;
mod key_code;
mod limiter;
mod linearizability;
mod misuse;
mod panics;
mod quota_text;
mod quotas;
mod reservations;
mod rules;
mod settings;
mod single_quota;
mod sliding_log;
mod stores_agree;
mod strict;
mod together;
mod with_exact_keys;
mod with_fingerprints;
