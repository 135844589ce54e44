//! The scripts that the store runs, one for each kind of state, and the parsing of their answers.
//!
//! # Requests and answers
//!
//! The first argument of a script is the request: the name of the operation, which ends with a zero
//! byte, followed by the numbers of the quota and of the operation, as little-endian doubles. The
//! second argument is the time of the request, with digits; without it, the script reads the
//! server's clock. The answer is a string of doubles. The comments of each script list its numbers.
//!
//! Each request contains the quota, because a machine does not know whether the store has the key,
//! or under which quota another machine wrote the state. The text of a script contains no quota,
//! because a server keeps every text that it has run, and quotas change while a program runs.
//!
//! # States
//!
//! | script | state of a key |
//! |---|---|
//! | `bucket.lua` | a string: `b1`, then debt, time, unit, leak and the end of a pause, as doubles; with leases, their tokens and ends follow |
//! | `window.lua` | a string: `w1`, then number, previous, present, period and the end of a pause, as doubles |
//! | `log.lua` | a sorted set of admissions |
//! | `counts.lua` | a hash of counts |
//! | `permits.lua` | a sorted set of permits |
//!
//! `b` and `w` name the kind of state, and `1` is the version of its format. If the state has
//! another kind or version, the script writes nothing, and the server's error states the reason.
//!
//! # What a check costs
//!
//! A check of a bucket or a window executes `TIME`, one `GET` and one `SET`. With the start of the
//! script, they take two thirds of the script's instructions. The rest is kept short:
//!
//! - `struct.unpack` and `struct.pack`, which every supported server has, convert all numbers of a
//!   string in one call. A pattern, `tonumber` and `string.format` need several calls, and allocate
//!   a string for each number.
//! - One argument and one string as the answer take less time than ten arguments and six integers.
//! - The scripts create one closure and no table, because each of them is allocated and collected
//!   again.
//!
//! `docs/performance.md` compares the time of a check with other scripts.

mod figures;
pub(crate) mod rule;
pub(crate) mod script;
