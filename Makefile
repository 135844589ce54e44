# Everything a contributor needs. `make test` is what CI runs.

CARGO ?= cargo
# Loom's searches are deep recursions over small states: release builds, with overflow checks on.
LOOM := cd loom-tests && RUST_BACKTRACE=0 $(CARGO) test --release --locked
# `timeout` ends a search that has run away; loom's own limits would call it a success.
LOOM_LIMIT ?= timeout --verbose 1500
DEEP_LIMIT ?= timeout --verbose 7200
OTHER_MODELS := $(filter-out turnover,$(patsubst loom-tests/tests/%.rs,%,$(wildcard loom-tests/tests/*.rs)))
# What `make fuzz` runs, and for how long each.
FUZZ_TARGETS ?= rule limiter quota log forwarded fields limit_text
FUZZ_SECONDS ?= 60
MINUTES ?= 10
# What `make shuttle` runs: schedules for each algorithm in each store; or those of one seed again.
SCHEDULES ?= 1000
SEED ?=
# What `make mutants` makes: all mutants, or for example MUTANTS="-F src/quota.rs".
MUTANTS ?=
# What `make sanitize` runs: the table and the store of exact keys, under threads and alone.
SANITIZED ?= stress turnover upkeep eviction exact exact_eviction linearizability bounds
# And under the thread sanitizer: the table, and exact keys without what scc does in its own buckets.
THREADS ?= stress turnover upkeep eviction limiter
EXACT_THREADS ?= exact exact_quotas exact_eviction

# How `make bench-proxy` runs: for example PROXY_BENCH="--rounds 3 --seconds 2 --connections 64".
PROXY_BENCH ?=

# How `make bench-redis` runs: for example REDIS_BENCH="--rounds 3 --seconds 1 --tasks 8".
REDIS_BENCH ?=

# What `make peers` and `make instructions` compare with: the path of an older checkout, or a
# revision of this repository.
BASELINE ?=
# How `make peers` runs: its options, and the profile of `benches/peers` that all but the first rows
# are built in.
PEERS ?=
PROFILE ?= lto
# Which builds these need: that of the defaults, that of everything, or both. `--only` leaves the
# defaults out, unless they are named: `defaults --only 'hot key'`.
PEERS_DEFAULTS := $(if $(filter defaults,$(PEERS)),yes,$(if $(filter latency draw --only% --help,$(PEERS)),,yes))
PEERS_ALL := $(if $(filter defaults,$(PEERS)),,yes)
PEERS_RUN := $(if $(BASELINE),CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-benches/peers/target} )$(CARGO) run --locked \
	--manifest-path $(if $(BASELINE),target/peers-with-baseline,benches/peers)/Cargo.toml $(if $(BASELINE),--features baseline)

# With a baseline, first what the older one takes, whatever that is.
INSTRUCTIONS := cd benches/instructions && $(CARGO) bench --locked
ifneq ($(BASELINE),)
INSTRUCTIONS := benches/with-baseline.sh instructions "$(BASELINE)" && \
	export CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-$(CURDIR)/benches/instructions/target} && \
	(cd target/instructions-with-baseline && $(CARGO) bench --locked -- --save-baseline=older --callgrind-limits=ir=1000000000000) && \
	$(INSTRUCTIONS) -- --baseline=older --callgrind-limits=ir=2%
endif

# The crates that are published.
MANIFESTS := Cargo.toml crates/tollgate-http/Cargo.toml crates/tollgate-redis/Cargo.toml crates/tollgate-cli/Cargo.toml

# What `make bench` runs.
BENCHES ?= algorithms check clock scale turnover replay http

.PHONY: help test lint api redis-server unit features msrv package instructions stress soak sanitize fuzz fuzz-tools loom loom-turnover loom-others loom-deep shuttle weaken mutants doc bench bench-proxy bench-redis peers clean

help:
	@echo "make test       all tests: lint, unit, integration, doc and model tests (a few minutes)"
	@echo "make lint       formatting and clippy, warnings are errors"
	@echo "make api        writes docs/api.txt, the public interface; \`make unit\` fails while it is stale"
	@echo "make unit       unit, integration and doc tests, of all crates"
	@echo "make msrv       all crates with the oldest Rust that each of them states, which rustup must have"
	@echo "make package    what each crate uploads when it is published, and how large that is"
	@echo "make instructions"
	@echo "                instructions of ten thousand checks, counted by valgrind, against what they may be; BASELINE=revision:"
	@echo "                against those of an older checkout, too, of which they may be 1.02"
	@echo "make stress     a table that is far too small, under load from all cores, for a minute"
	@echo "make soak       load of every kind from all cores for MINUTES=$(MINUTES); all tokens counted, no growth of memory"
	@echo "make sanitize   stress, turnover and upkeep under the address, leak and thread sanitizers, on nightly Rust (minutes)"
	@echo "make fuzz       each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS), on nightly Rust; FUZZ_TARGETS=\"$(FUZZ_TARGETS)\""
	@echo "make loom       the model checker, quick bounds (some minutes)"
	@echo "make loom-deep  the model checker, deep bounds (long: up to two hours are allowed)"
	@echo "make shuttle    long races at SCHEDULES=$(SCHEDULES) random schedules, all tokens counted; SEED=n for one again"
	@echo "make weaken     weakens each memory ordering in turn: a model must notice (some minutes)"
	@echo "make mutants    changes rules, quotas and the table in small ways: a test must notice (hours; MUTANTS=\"-F src/quota.rs\")"
	@echo "make doc        the documentation, warnings are errors"
	@echo "make bench      benchmarks: algorithms, checks, clocks, many keys and two threads, turnover, a replay,"
	@echo "                the HTTP layer (about ten minutes, a gigabyte of memory for ten million keys; BENCHES=\"$(BENCHES)\")"
	@echo "make bench-proxy"
	@echo "                wrk on tollgate proxy with and without limits (three minutes; PROXY_BENCH=\"--rounds 3 --seconds 2\")"
	@echo "make bench-redis"
	@echo "                shared limits in Redis: exact, leased, unsynchronized, and what others do (four minutes;"
	@echo "                REDIS_BENCH=\"--draw\" writes the table of docs/performance.md)"
	@echo "make peers      the same workloads on other limiters (five minutes; PEERS=--quick: a smoke run; PEERS=--help)"
	@echo "make peers BASELINE=revision"
	@echo "                with an older checkout in the same turns, and the ratio to it (BASELINE: also a path)"
	@echo "make peers PEERS=defaults"
	@echo "                its first rows only: tollgate and governor as \`cargo add\` gives them, without lto and with it"
	@echo "make peers PEERS=--large"
	@echo "                with ten million keys, too (some minutes more, ten gigabytes of memory)"
	@echo "make peers PEERS=latency"
	@echo "                how long the slowest checks take: in quiet, while the table turns over, in a flood, beside clears"
	@echo "make peers PEERS=draw"
	@echo "                what all of these measured last: a picture and six rows in the README, tables in docs/performance.md"
	@echo "make clean      removes what was built"

test: lint unit features instructions loom shuttle doc
	@echo "make test: all passed"

lint:
	$(CARGO) fmt --all --check
	cd loom-tests && $(CARGO) fmt --check
	cd benches/peers && $(CARGO) fmt --check
	cd fuzz && $(CARGO) fmt --check
	cd tests/shuttle && $(CARGO) fmt --check
	cd benches/instructions && $(CARGO) fmt --check
# These lock files name the dependencies of these crates: are they up to date?
	cd benches/peers && $(CARGO) metadata --locked --format-version 1 > /dev/null
	cd fuzz && $(CARGO) metadata --locked --format-version 1 > /dev/null
	$(CARGO) test --locked --test prose
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings
	$(CARGO) clippy --locked -p tollgate -p tollgate-http -p tollgate-redis -- -D warnings
	cd loom-tests && $(CARGO) clippy --locked --tests -- -D warnings
	cd tests/shuttle && $(CARGO) clippy --locked --tests -- -D warnings
	cd benches/instructions && $(CARGO) clippy --locked --profile bench --all-targets -- -D warnings

# What users see, as one text: look at what has changed in it.
api:
	TOLLGATE_API=write $(CARGO) test --locked --test api

unit: redis-server
	$(CARGO) test --locked --workspace --all-features

# The tests of `redis` start servers of their own; without this Debian package they fail. Valkey is tested too where
# `valkey-server` is on the path or named by TOLLGATE_VALKEY_SERVER; where it is not, the tests say so.
redis-server:
	@command -v redis-server >/dev/null || apt-get install -y redis-server || sudo -n apt-get install -y redis-server || true
	@command -v redis-server >/dev/null || { \
		echo "NOT DONE: redis-server is missing and could not be installed (apt-get install redis-server), so the"; \
		echo "tests of \`redis\` will fail"; test -z "$$CI"; }

# The libraries as most people build them: each without features, and the core without what others ask of its
# dependencies. Here an address with TLS is refused.
features:
	$(CARGO) test --locked -p tollgate -p tollgate-http -p tollgate-redis --lib --test limiter --test turnover

# Not a part of `make test`: it needs a second toolchain.
msrv:
	@set -e; for manifest in $(MANIFESTS); do \
		version=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' $$manifest); \
		if $(CARGO) +$$version --version > /dev/null 2>&1; then \
			echo "$$manifest: Rust $$version"; \
			CARGO_TARGET_DIR=target/msrv $(CARGO) +$$version check --locked --all-features --manifest-path $$manifest; \
		else echo "NOT DONE: rustup toolchain install $$version --profile minimal"; test -z "$$CI"; fi; \
	done

# Whole crates, with the files that their manifests include. They are not built once more: they stand on each
# other, and what is not published can't be downloaded.
package:
	@set -e; for crate in tollgate tollgate-http tollgate-redis tollgate-cli; do \
		$(CARGO) package --locked --allow-dirty --no-verify --quiet -p $$crate --list | sed "s|^|$$crate: |"; \
	done
	$(CARGO) package --locked --allow-dirty --no-verify --workspace --exclude tollgate-testing

# Counted, not timed, so the machine's load does not matter. Valgrind is a Debian package; without it this is
# left out, which it says, and in CI it fails.
instructions:
	@command -v valgrind >/dev/null || apt-get install -y valgrind || sudo -n apt-get install -y valgrind || true
	@if command -v valgrind >/dev/null; then $(INSTRUCTIONS); \
	else echo "NOT DONE: valgrind is missing and could not be installed, so no instructions were counted"; \
		test -z "$$CI"; fi

stress:
	TOLLGATE_STRESS_SECONDS=60 $(CARGO) test --locked --release --test stress -- --nocapture

soak:
	TOLLGATE_SOAK_SECONDS=$$(($(MINUTES) * 60)) $(CARGO) test --locked --release --test soak -- --nocapture

# A target is named, so that build scripts are not sanitized. The soak test looks whether memory grows, so the sanitizer must
# not keep much of what is freed. Where nightly is missing, the stable compiler is
# told to take its flags.
sanitize:
	@if $(CARGO) +nightly --version > /dev/null 2>&1; then nightly=+nightly; else nightly=; \
		echo "nightly Rust is missing, so stable is used with RUSTC_BOOTSTRAP=1"; \
		echo "(rustup toolchain install nightly --profile minimal)"; export RUSTC_BOOTSTRAP=1; fi; \
	host=$$(rustc -vV | sed -n 's/^host: //p'); \
	RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS="detect_leaks=1" CARGO_TARGET_DIR=target/sanitize TOLLGATE_STRESS_SECONDS=5 \
		$(CARGO) $$nightly test --locked --target $$host $(addprefix --test ,$(SANITIZED)) && \
	RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS="detect_leaks=1:quarantine_size_mb=4" CARGO_TARGET_DIR=target/sanitize \
		$(CARGO) $$nightly test --locked --target $$host --test soak
# What std does is seen only if std is built with it too, from the sources of nightly's. (crossbeam-epoch does without
# fences then, which the sanitizer does not understand.)
	@if test -d "$$(rustc +nightly --print sysroot 2> /dev/null)/lib/rustlib/src/rust"; then \
		host=$$(rustc -vV | sed -n 's/^host: //p'); \
		RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=target/sanitize-threads TOLLGATE_STRESS_SECONDS=5 \
			$(CARGO) +nightly test -Zbuild-std --locked --release --target $$host $(addprefix --test ,$(THREADS)) && \
		RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=target/sanitize-threads TOLLGATE_STRESS_SECONDS=5 \
			TSAN_OPTIONS="suppressions=$$PWD/tests/thread-sanitizer.supp" \
			$(CARGO) +nightly test -Zbuild-std --locked --release --target $$host $(addprefix --test ,$(EXACT_THREADS)); \
	else echo "NOT DONE: the thread sanitizer needs nightly Rust with its sources:"; \
		echo "rustup toolchain install nightly --profile minimal --component rust-src"; test -z "$$CI"; fi

# What fuzzing finds worth keeping goes to fuzz/corpus; what makes a target fail, to fuzz/artifacts. Copy that to
# crates/tollgate-testing/corpus, and `make unit` fails too until it is mended.
fuzz: fuzz-tools
	@set -e; for target in $(FUZZ_TARGETS); do \
		echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
		mkdir -p fuzz/corpus/$$target; \
		$(CARGO) +nightly fuzz run $$target fuzz/corpus/$$target crates/tollgate-testing/corpus/$$target \
			-- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -print_final_stats=1; \
	done

fuzz-tools:
	@$(CARGO) +nightly --version > /dev/null 2>&1 || { \
		echo "NOT DONE: fuzzing needs nightly Rust: rustup toolchain install nightly --profile minimal"; exit 1; }
	@$(CARGO) fuzz --version > /dev/null 2>&1 || $(CARGO) install --locked cargo-fuzz || { \
		echo "NOT DONE: cargo-fuzz is missing and could not be installed: cargo install --locked cargo-fuzz"; exit 1; }

# A model has one core, and those of turnovers take longer than all others: so both at once.
loom:
	$(LOOM) --no-run
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target loom-turnover loom-others

loom-turnover:
	$(LOOM_LIMIT) sh -c '$(LOOM) --test turnover -- --nocapture --test-threads=1'

loom-others:
	$(LOOM_LIMIT) sh -c '$(LOOM) --bin weaken $(addprefix --test ,$(OTHER_MODELS)) -- --nocapture --test-threads=1'

loom-deep:
	$(DEEP_LIMIT) sh -c '$(LOOM) -- --nocapture --test-threads=1 --include-ignored'

shuttle:
	cd tests/shuttle && TOLLGATE_SHUTTLE_SCHEDULES=$(SCHEDULES) TOLLGATE_SHUTTLE_SEED=$(SEED) \
		$(CARGO) test --release --locked -- --nocapture --test-threads=1

weaken:
	cd loom-tests && $(CARGO) run --release --locked --bin weaken

# Which mutants, and by which tests: see `.cargo/mutants.toml`. It is no part of `make test`. A target folder that
# all jobs share would make them wait for each other.
mutants:
	@$(CARGO) mutants --version > /dev/null 2>&1 || $(CARGO) install --locked cargo-mutants || { \
		echo "NOT DONE: cargo-mutants is missing and could not be installed: cargo install --locked cargo-mutants"; exit 1; }
	@mkdir -p target/mutants
	env -u CARGO_TARGET_DIR PROPTEST_MAX_SHRINK_ITERS=0 \
		$(CARGO) mutants --jobs 2 --no-shuffle --output target/mutants $(MUTANTS)

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --workspace --exclude tollgate-testing --all-features
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps -p tollgate -p tollgate-http -p tollgate-redis

# One of them: cargo bench --bench scale -- '1,000 keys'. What is not asked for is not built.
bench:
	$(CARGO) bench --locked --workspace --exclude tollgate-testing $(addprefix --bench ,$(BENCHES))

# It starts an upstream and proxies on free ports and stops them. wrk is a Debian package; without it nothing can be
# measured, which this says, and in CI it fails.
bench-proxy:
	@command -v wrk >/dev/null || apt-get install -y wrk || sudo -n apt-get install -y wrk || true
	@if command -v wrk >/dev/null; then $(CARGO) bench --locked -p tollgate-cli --bench proxy -- $(PROXY_BENCH); \
	else echo "NOT DONE: wrk is missing and could not be installed (apt-get install wrk), so nothing was measured"; \
		test -z "$$CI"; fi

# It starts a server on a free port and stops it.
bench-redis: redis-server
	@if command -v redis-server >/dev/null; then \
		$(CARGO) bench --locked -p tollgate-redis --bench redis -- $(REDIS_BENCH); fi

# In a workspace of its own, so that peers never enter the library's lock file. Rows go to
# target/peers.json, target/peers-defaults-*.json and target/peers-latency.json, and from there with
# PEERS=draw to benches/peers/ratios.svg, the README and docs/performance.md. The first rows are of
# builds with default features, in cargo's own release profile and with `lto`.
peers:
	$(if $(BASELINE),benches/with-baseline.sh peers "$(BASELINE)")
	$(if $(PEERS_DEFAULTS),$(PEERS_RUN) --no-default-features --release -- defaults $(filter-out defaults,$(PEERS)))
	$(if $(PEERS_DEFAULTS),$(PEERS_RUN) --no-default-features --profile lto -- defaults $(filter-out defaults,$(PEERS)))
	$(if $(PEERS_ALL),$(PEERS_RUN) --profile $(PROFILE) -- $(PEERS))

clean:
	$(CARGO) clean
	cd loom-tests && $(CARGO) clean
	cd benches/peers && $(CARGO) clean
	cd fuzz && $(CARGO) clean
	cd tests/shuttle && $(CARGO) clean
	cd benches/instructions && $(CARGO) clean
