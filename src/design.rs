//! What is promised, why it holds, and what was done to find out whether it does. There is nothing here but this
//! page.
//!
//! # Promises
//!
//! Each with tests that fail when it is broken. (`tests/promises.rs` fails where one of them is not there.)
//!
//! | | promise | tests |
//! |--|---|---|
//! | 1 | **Never over-admits.** Each algorithm states the most that any trailing interval admits, and keeps to it whatever the threads do. | `no_trailing_interval_admits_more_than_the_stated_bound`, `no_interval_of_a_table_that_turns_over_exceeds_its_bound`, `no_interval_of_exact_keys_that_come_and_go_exceeds_its_bound`, `no_interval_of_a_single_limiter_exceeds_its_bound`, `racing_threads_never_exceed_the_limit_in_any_period`, `charge_races_charge_never_admits_twice`, `turnover_races_charge_never_admits_twice`, `a_table_at_random_schedules_accounts_for_all_tokens` |
//! | 2 | **Eviction never changes a decision.** Only keys that are as good as new are forgotten. | `eviction_never_changes_a_decision`, `an_idle_word_decides_as_a_fresh_one_ever_after`, `a_flood_leaves_throttled_keys_throttled_and_memory_bounded`, `eviction_races_charge_and_gives_one_burst`, `eviction_races_charge_and_loses_none`, `exact_keys_at_random_schedules_account_for_all_tokens`, `at_any_times_a_map_that_never_forgets_decides_alike`, `eviction_races_late_charge_and_grants_nothing` |
//! | 3 | **Bounded memory.** `max_keys` is a hard cap; beyond it a declared policy answers, for new keys only. What waits to be freed is bounded and counted, too, whoever is parked. | `threads_that_crowd_the_cap_never_pass_it`, `inserts_race_for_the_last_place_and_one_gets_it`, `inserts_of_exact_keys_race_for_the_last_place_and_one_gets_it`, `deny_refuses_new_keys_without_a_retry_time`, `admit_lets_new_keys_pass_untracked`, `share_charges_new_keys_to_one_state`, `the_process_takes_what_the_formula_says_and_no_more`, `what_is_permitted_is_never_exceeded_and_comes_back`, `logs_stay_small_while_a_thread_is_parked`, `exact_keys_stay_small_while_a_thread_is_parked`, `quotas_change_while_a_thread_is_parked`, `a_thread_that_stalls_in_a_lookup_costs_bounded_memory` |
//! | 4 | **Lock-free.** A thread that stops at any instruction stops nobody else. | `a_thread_that_stops_for_good_at_any_step_stops_nobody_else`, `a_thread_that_stops_while_it_evicts_stops_neither_charges_nor_evictions`, `a_thread_that_stops_while_it_takes_over_stops_no_change_of_quota`, `stalled_chunk_owner_stops_nobody_and_comes_back_late`, `tables_grow_and_evict_while_a_thread_is_parked`, `only_sync_names_atomics_threads_or_the_model_checker_and_nothing_locks` |
//! | 5 | **A denial writes nothing.** | `a_denial_keeps_the_word_and_a_charge_changes_it`, `charge_races_denial_and_only_its_figures_may_be_a_moment_old`, `looking_and_refused_requests_insert_nothing` |
//! | 6 | **Truthful times.** A retry after exactly `retry_after` passes if nobody else came, and one tick earlier it does not. | `retry_and_reset_times_are_true_to_the_nanosecond`, `a_retry_at_the_last_tick_is_told`, `sliding_log_decides_as_its_oracle`, `a_period_ends_to_the_nanosecond` |
//! | 7 | **Time cannot hurt.** A stale or skewed time can delay, never grant; the default clock is early by less than a millisecond, whatever the processor's counter does; nothing overflows or panics. | `a_stale_time_is_never_given_more`, `a_jump_to_the_end_of_time_and_back_delays_and_grants_nothing`, `a_clock_set_back_delays_and_set_forward_grants_one_burst`, `threads_with_skewed_clocks_stay_within_the_bound`, `stale_clock_races_charge_and_never_doubles_the_rate`, `nothing_panics_for_any_quota_any_time_and_any_cost`, `every_refusal_names_value_range_and_fix_and_every_limiter_that_is_built_works`, `no_thread_is_further_than_a_millisecond_from_the_system_s_clock`, `no_counter_makes_a_reading_early_by_a_millisecond_or_step_back`, `a_clock_set_back_after_a_sweep_gives_no_burst_twice`, `a_time_a_century_ahead_is_neither_amnesty_nor_lock_out` |
//! | 8 | **Exact rates.** Long-run rates are within a millionth of what was asked for. | `long_run_rates_are_exact_to_a_millionth`, `time_in_grains_is_never_late_and_at_most_two_grains_early`, `whole_intervals_are_counted_in_nanoseconds`, `the_last_tick_overflows_nothing_at_any_rate` |
//!
//! # The protocol, in brief
//!
//! *A key is one word.* A [rule](crate::rule) is a pure function: word, time and cost in, next word and
//! [`Decision`](crate::Decision) out. One loop in the crate applies it: load the word, decide, compare-and-swap. A
//! denial returns the word it was given, so there is nothing to swap. A charge always changes the word, so no two
//! callers succeed on one value and spend one token twice.
//!
//! *A table is an array of slots that only fills.* A slot is a fingerprint of the key and its word. A key claims the
//! first empty slot of its probe run by compare-and-swap, and no slot becomes empty again; so two threads that insert
//! one key meet in one slot.
//!
//! *Growth, shrinking, eviction and a change of quotas are one mechanism.* When an array (an *era*) is full, or its
//! rules are to change, a next one is linked to it. Each word is then closed by one compare-and-swap: frozen, and
//! moved, or marked as evicted if it is idle. A thread that finds a frozen word brings it to the next era itself and
//! goes on there; one that finds an empty slot seals it first. Whatever is moved is installed only where
//! nothing is yet, so a helper that comes late changes nothing. When all chunks of the old era are done, the next
//! era takes its place and the old one is retired: freed when nobody reads it any more.
//!
//! *Reading takes no fence.* Each thread has a participant in which it announces since when it reads. A collection has
//! the system run a fence on all processors (`membarrier`), looks at the participants, and frees what no guard may have
//! seen. Where there is no such call, readers run the fence. Values carry the age of their birth, so a thread that is
//! parked keeps what existed when it stopped, and nothing that came later: a limiter's memory stays bounded, and it
//! grows, evicts and frees on.
//!
//! *With [exact keys](crate::ExactKeys)* a key has a cell of its own, found through scc's index. Eviction seals the
//! idle word first, then unlinks the cell, then retires it; a change of quota links a next *stage* to the cell, and
//! moves the word as the table does. A [sliding log](crate::Algorithm::SlidingLog) is a chain of rows of
//! admissions; each is one compare-and-swap at the end of the chain, with its time and the sum of all before it.
//!
//! In full, with every state and transition: the pages of `src/table.rs`, `src/exact.rs`, `src/exact/stage.rs`,
//! `src/log.rs`, `src/rule.rs`, `src/reclaim.rs`. Each ends with the ledger of its memory orderings: what publishes what, and
//! the model that fails if it is weakened.
//!
//! # Invariants that all else rests on
//!
//! 1. A key is live in one slot or cell at a time, and a charge is one compare-and-swap on its word there.
//! 2. A word that was closed (frozen, evicted, sealed) never changes again. So a charge comes before it, and is
//!    moved, or fails and goes where the key goes.
//! 3. No rule makes a word that is *fresh* again. So what was installed once is not installed twice.
//! 4. Whether a key is moved or forgotten is decided once, by the compare-and-swap that closes its word.
//! 5. A word is forgotten only if it decides as a fresh one at every time from some time on, and the store's *mark* is raised
//!    to that time before. A key that is not there is charged at no earlier time than the mark.
//!
//! # Bounds
//!
//! They are stated and proved at each rule: [`TokenBucket`](crate::rule::TokenBucket),
//! [`LeakyBucket`](crate::rule::LeakyBucket), [`FixedWindow`](crate::rule::FixedWindow),
//! [`SlidingWindow`](crate::rule::SlidingWindow). All rest on one thing: the charges of a key have an order, that
//! of their compare-and-swaps, and each was decided on the word that the one before it made. For a token bucket:
//! take the charges with times in `[a, a + d]` in that order. The first makes the time at which the bucket will be
//! full at least `a` and its cost, each later one adds its own, and the last was allowed, so it is at most
//! `a + d` and the burst. So the sum of the costs is at most the burst and what refills in `d`, in whatever order
//! the times came. A sliding log admits a request only if it and all that counts in the period that ends with it are
//! at most the limit, and writes it where nobody else has been since: so the limit, exactly.
//!
//! # Progress
//!
//! Checks are lock-free: a thread begins again only because another one has succeeded. Denials of
//! known keys are loads. No thread waits for another; whoever needs a part of a turnover does it, and may redo what
//! another thread has begun. The weaker cases: beginning a turnover or a row of a log calls the allocator;
//! with exact keys, inserting and forgetting a key take scc's lock on one bucket of its index; changing the quotas
//! of a table rests for a millisecond at a time while the memory for it is not to be had, and then gives up with an
//! error; `Sweeper` has a thread of its own, and no check waits for it; no clock has one. A
//! thread that stops for good while it reads keeps what it may have seen, which is bounded: see `src/reclaim.rs`. If
//! many stop at different times, they may keep so many eras of a table that no memory is permitted for the next one:
//! then new keys get the full policy until one of them goes on. A thread that stops within a lookup of scc's index, of
//! whichever map, lets no removed cell of exact keys be freed; beyond a bound new keys get the full policy, too.
//!
//! # What was checked, and by what
//!
//! | what | by |
//! |---|---|
//! | what a rule decides | property tests against plain lists and exact fractions; fuzzing, with finds that are tried again by every run |
//! | what is read and written | fuzz targets for quotas and logs; for the client's address behind proxies, against a walk that knows what each proxy wrote; for the fields of responses, read back by another parser; for the limits of the proxy |
//! | what a table decides | a map that never forgets, step by step, while the table turns over before each check |
//! | the counter's guard | a fake counter and a fake clock, as values: cores out of step, resets, jumps, drift, suspends, other rates, stopped threads; a limiter by each beside one by the exact time |
//! | short races | loom, with its blind spot closed: about 100 models by default and 25 deeper ones; words exhaustively, tables and cells with 1 to 3 preemptions, three threads with 1 or 2 |
//! | memory orderings | each is weakened in turn, and a model must fail or the ledger says why none can |
//! | long races | shuttle: 4 threads and 300 operations a schedule, 1,000 random schedules for each of nine pairs of store and algorithm; every token is counted |
//! | real threads | histories searched for a legal order, admissions held against the bounds, soak and stress runs, the address, leak and thread sanitizers |
//! | shared limits | models of the words of leases and counts; the same requests to the scripts and to the rules, with all figures compared, on Redis and Valkey; servers that are killed, stopped, cut off, slowed down and failed over, one, behind sentinels and in a cluster, with the time of every check; several processes that share a limit, held against the limit or the stated bound |
//! | stopped threads | a thread stopped for good at every step of a turnover, an eviction and a log, one after the other |
//! | the tests | broken limiters that are kept beside them, planted faults, mutants of decisions, quotas, rules and the table: none of 1,018 survives (tried as the code came, not in one run); those that change nothing are not made, and `.cargo/mutants.toml` says why |
//!
//! # What was not
//!
//! - *Load buffering*: loom does not show it, and no other tool here does.
//! - *Weakly ordered hardware* was not at hand; what is known of it is what the models show.
//! - *The counter of aarch64, and the clocks of macOS and Windows*: they are compiled, and were never run. Of
//!   x86-64 Linux, one machine was at hand, whose cores are in step; all others are the fake counter's.
//! - *Schedules beyond the bounds*: the models of tables are bounded in preemptions, and those of shuttle, which
//!   are not, are a sample, and sequentially consistent.
//! - *The protocols of shared limits* (leases, counts that are told later): their words have models; with the store and
//!   the tasks around them they have arguments, tests with planted faults and several processes, and no model. A cluster
//!   with TLS, and Valkey with TLS, were not at hand.
//! - *scc and the pointers of crossbeam-epoch* are trusted. That a retired value is freed once and under no guard has
//!   models of its own; in the others nothing is freed early. In place of scc the models have a list behind a lock.
//! - *membarrier* is trusted to do what two fences do, of which one would be the reader's: models have those. Taken out, no
//!   test on real threads failed here; the models do.
//! - *Miri* was not at hand. Unsafe code stands in few files, each with its reasons, and runs under the sanitizers.
//! - *Mutants* were made in several runs, each on the source as it was then: 902, of which 789 were noticed, 88 did not
//!   compile and 19 never ended, and again the 103 of the lines that have changed since. The room `reclaim` is newer than
//!   these runs.
//! - *What scc does with exact keys, under the thread sanitizer.* Without suppressions it reports about a hundred races
//!   in the tests of the exact store. In all but two, at least one of the two sides ends in a bucket of scc: a lookup compares
//!   the hash bytes of a whole bucket at once with a plain read, while an insertion or a removal writes one of them; scc
//!   says beside that read why it is harmless, and leaves it out under Miri. The two end where sdd, scc's collector, frees
//!   what was retired, after fences that the sanitizer does not understand. Both are suppressed by the frame
//!   (`tests/thread-sanitizer.supp`); then nothing is reported, and a *link* with a relaxed release is. That the suppressed
//!   reports are false is scc's word and not proven; a race of our own that lies within scc's comparing of keys, or in
//!   what its collector frees, would be hidden with them. The address sanitizer sees the latter.
//! - *More than two cores*: all runs with real threads were on a machine of two.
