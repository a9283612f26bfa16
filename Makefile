# The two commands of the README, and the chores. On a new machine `make demo` and `make test` install what is missing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

PREFIX ?= /usr/local
SERVE ?= 1
PORT ?= 8080
RELEASE := target/release
LOOKS ?= target/looks

WEB_SOURCES := $(shell find web -path web/node_modules -prune -o -path web/dist -prune -o -type f -print 2>/dev/null)

.PHONY: build web demo test test-rust test-web test-page lint bench looks soak fuzz install clean help

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

build: web ## libtracehound.so and heaptrace with the page embedded, in target/release
	cargo build --release -p tracehound-preload -p tracehound-server

web: web/dist/index.html

web/node_modules/.package-lock.json: web/package-lock.json
	cd web && npm ci --no-audit --no-fund --loglevel=error

web/dist/index.html: web/node_modules/.package-lock.json $(WEB_SOURCES)
	cd web && npm run build --silent

demo: build ## record two real programs, print the leak report, serve both (SERVE=0: stop after the report)
	tests/demo.sh "$(SERVE)" "$(PORT)"

test: test-rust test-web test-page ## every test of every part

test-rust: build
	tests/needs.sh
	cargo test --workspace --no-fail-fast

test-web: web
	cd web && npm test --silent

test-page: build
	tests/needs.sh
	tests/page.sh

lint: web/node_modules/.package-lock.json ## formatting, clippy, types, Biome
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cd web && npm run lint --silent

bench: build ## numbers and ratios: the recorder's cost, ingest, queries, verdicts
	tests/bench.sh

looks: build ## a picture of every view, theme and width in LOOKS (default target/looks), to be looked at
	tests/looks.sh "$(LOOKS)"

soak: build ## redis under load for SOAK_MINUTES (default 10): the recorder's memory must stay flat
	tests/needs.sh
	cargo test -p tracehound-tests --test soak -- --ignored --nocapture

fuzz: ## every decoder against hostile input, FUZZ_CASES (default 200000) cases each
	tests/fuzz.sh

install: build ## into PREFIX (default /usr/local), without line tables
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(DESTDIR)$(PREFIX)/lib" "$(DESTDIR)$(PREFIX)/include"
	strip --strip-debug -o "$(DESTDIR)$(PREFIX)/bin/heaptrace" $(RELEASE)/heaptrace
	strip --strip-debug -o "$(DESTDIR)$(PREFIX)/lib/libtracehound.so" $(RELEASE)/libtracehound.so
	chmod 755 "$(DESTDIR)$(PREFIX)/bin/heaptrace" "$(DESTDIR)$(PREFIX)/lib/libtracehound.so"
	install -m 644 preload/include/tracehound.h "$(DESTDIR)$(PREFIX)/include/"

clean:
	cargo clean
	rm -rf web/dist web/node_modules
