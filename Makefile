# The two commands of the README, and the chores. On a new machine `make demo` and `make test` install what is missing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

PREFIX ?= /usr/local
SERVE ?= 1
PORT ?= 8080
# `make build` is optimised whole; tests and clippy run with what compiles in half of the processor time.
BUILD_PROFILE ?= release
TEST_PROFILE ?= quick
DIST := target/dist
LOOKS ?= target/looks
FUZZ_SECONDS ?= 60
# What tests need first; nothing where it has just been built.
BUILT := build

WEB_SOURCES := $(shell find web -path web/node_modules -prune -o -path web/dist -prune -o -type f -print 2>/dev/null)

.PHONY: build web demo demo-fleet test test-all test-build test-in-two-lanes test-rust test-proofs test-engines test-web test-page lint bench looks soak attach-hardship order fleet-schedules fleet-load fleet-scale stores engines systems fuzz prove dist install clean help

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

# Given on to the scripts: `tests/page.sh` and others run what lies in target/$BUILD_PROFILE.
test-build test-rust test-aarch64 test-proofs test-engines test-page: export BUILD_PROFILE := $(TEST_PROFILE)

build: web ## libtracehound.so and .a, heaptrace with the page embedded, heaptrace-replay and heaptrace-fleet, in target/release
	cargo build --profile $(BUILD_PROFILE) -p tracehound-preload -p tracehound-linked -p heaptrace -p heaptrace-replay -p heaptrace-fleet
	preload/linked/archive.sh target/$(BUILD_PROFILE)

web: web/dist/index.html

web/node_modules/.package-lock.json: web/package-lock.json
	cd web && npm ci --no-audit --no-fund --loglevel=error

web/dist/index.html: web/node_modules/.package-lock.json $(WEB_SOURCES)
	cd web && npm run build --silent

# Only what it needs, in a profile that compiles fast: what stores recordings in the network has a hundred crates more.
demo: web ## record two real programs, print the leak report, serve both (SERVE=0: stop after the report)
	cargo build --profile quick -p tracehound-preload -p heaptrace
	tests/demo.sh "$(SERVE)" "$(PORT)"

demo-fleet: build ## run twenty processes of two versions, collect them, say which version leaks where
	tests/demo-fleet.sh

test: ## every test of every part, and how long each took
	@rm -rf target/test-times.txt target/test-logs
	@status=0; $(MAKE) --no-print-directory $(if $(CI),test-in-two-lanes,test-all) || status=1; \
	for failed in target/test-logs/*.failed; do if [ -e "$$failed" ]; then echo "== $$failed"; cat "$$failed"; fi; done; \
	echo "how long each part took:"; cat target/test-times.txt; exit $$status

test-all: test-rust test-aarch64 test-proofs test-engines test-web test-page

test-build: build
	tests/timed.sh "Debian packages" tests/needs.sh
	tests/timed.sh "building the tests" cargo test --profile $(TEST_PROFILE) --workspace --no-run

# What needs a browser, an emulator or engines beside the rest, which waits much: two processors are used whole. Each part
# writes a log of its own.
test-in-two-lanes: test-build
	@$(MAKE) --no-print-directory --keep-going BUILT= test-web test-page test-aarch64 test-proofs test-engines & page=$$!; \
	status=0; $(MAKE) --no-print-directory BUILT= test-rust || status=1; \
	wait $$page || status=1; exit $$status

test-rust: $(if $(BUILT),test-build)
	tests/timed.sh "Rust tests" cargo test --profile $(TEST_PROFILE) --workspace --no-fail-fast

test-aarch64: $(if $(BUILT),test-build)
	tests/timed.sh "tests on aarch64" cargo test --profile $(TEST_PROFILE) --workspace --test aarch64 -- --ignored

test-proofs: $(BUILT)
	tests/timed.sh "proofs, in short" tests/prove.sh short

test-engines: $(BUILT)
	tests/needs.sh
	tests/timed.sh "DuckDB, Spark, DataFusion" tests/engines.sh

test-web: $(if $(BUILT),web)
	tests/timed.sh "unit tests of the page" npm --prefix web test --silent

test-page: $(BUILT)
	tests/needs.sh
	tests/timed.sh "tests in Chromium" tests/page.sh

# The profile of `make test`, whose build scripts (C libraries) are used again.
lint: web/node_modules/.package-lock.json ## formatting, dependencies, clippy, types, Biome
	cargo fmt --all --check
	tests/dependencies.sh
	cargo clippy --profile $(TEST_PROFILE) --workspace --all-targets -- -D warnings
	cd web && npm run lint --silent

bench: build ## numbers and ratios: the recorder's cost, ingest, queries, verdicts
	tests/bench.sh

looks: build ## a picture of every view, theme and width in LOOKS (default target/looks), to be looked at
	tests/looks.sh "$(LOOKS)"

soak: build ## redis under load for SOAK_MINUTES (default 10): the recorder's memory must stay flat
	tests/needs.sh
	cargo test --release --workspace --test soak -- --ignored --nocapture

attach-hardship: build ## ATTACH_CYCLES (default 10000) attaches, a tenth of it for each hazard, heaptrace killed at every step: hours
	ATTACH_CYCLES=$${ATTACH_CYCLES:-10000} cargo test --release --workspace --test attach_hardship --test attach_killed -- --nocapture --test-threads=1

order: build ## blocks that go from thread to thread, HAND_OVERS (default 10000000) of each kind: which thread freed which block
	HAND_OVERS=$${HAND_OVERS:-10000000} cargo test --release --workspace --test order -- --nocapture --test-threads=1

fleet-schedules: build ## SCHEDULES (default 1000) random schedules of kills of program, collector and store: minutes
	SCHEDULES=$${SCHEDULES:-1000} cargo test --release --workspace --test fleet_schedules -- --nocapture

stores: build ## collect into servers of S3, Azure and Google, S3 and Google behind a proxy that cuts and refuses: some minutes, once
	cargo test --release --workspace --test stores -- --ignored

systems: build ## the library that is shipped, with programs of glibc 2.31 and 2.41 and of musl: minutes, once
	tests/needs.sh
	cargo test --release --workspace --test systems --test acceptance_musl --test one_file -- --ignored

engines: build ## the questions of `heaptrace fleet sql` by DuckDB, Spark and DataFusion: equal rows (460 MB, minutes)
	tests/needs.sh
	tests/engines.sh

fleet-scale: build ## every question over RECORDINGS (default 1000) of STACKS (default 17000): seconds, what was planted, Spark's rows
	tests/needs.sh
	tests/fleet-scale.sh

fleet-load: build ## RECORDERS (default 200) processes for LOAD_SECONDS (default 60) against one collector: its memory and time
	tests/fleet-load.sh

fuzz: ## every decoder against hostile input, guided by coverage, FUZZ_SECONDS (default 60) each
	SECONDS_EACH=$(FUZZ_SECONDS) tests/prove.sh fuzz

prove: ## models, fuzzing, sanitizers, Miri: docs/proving.md
	tests/prove.sh full

dist: web ## what is shipped: libraries for glibc 2.17, static programs, in target/dist, and packed, in target/packages (minutes)
	packaging/build.sh $(DIST)
	packaging/pack.py --from $(DIST) --out target/packages

install: dist ## into PREFIX (default /usr/local), without line tables
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/lib" "$(DESTDIR)$(PREFIX)/include"
	strip --strip-debug -o "$(DESTDIR)$(PREFIX)/bin/heaptrace" $(DIST)/heaptrace
	strip --strip-debug -o "$(DESTDIR)$(PREFIX)/bin/heaptrace-replay" $(DIST)/heaptrace-replay
	strip --strip-debug -o "$(DESTDIR)$(PREFIX)/bin/heaptrace-fleet" $(DIST)/heaptrace-fleet
	strip --strip-debug -o "$(DESTDIR)$(PREFIX)/lib/libtracehound.so" $(DIST)/libtracehound.so
	chmod 755 "$(DESTDIR)$(PREFIX)/bin/heaptrace" "$(DESTDIR)$(PREFIX)/bin/heaptrace-replay" "$(DESTDIR)$(PREFIX)/bin/heaptrace-fleet" "$(DESTDIR)$(PREFIX)/lib/libtracehound.so"
	install -m 644 $(DIST)/libtracehound.a $(DIST)/tracehound-wrap.opts "$(DESTDIR)$(PREFIX)/lib/"
	install -m 644 preload/include/tracehound.h "$(DESTDIR)$(PREFIX)/include/"

clean:
	cargo clean
	rm -rf web/dist web/node_modules
