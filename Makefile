# make demo   runs Thalweg on the shipped sample
# make test   runs all checks and tests
# make help   lists the rest
#
# Needs rustup, CPython >= 3.10, a C compiler and make; everything else is fetched.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# rustup's folder last, for shells that have not read the profile rustup wrote.
export PATH := $(PATH):$(HOME)/.cargo/bin

PYTHON ?= python3
VENV ?= .venv

# One build cache for all checkouts, outside of them. A stale one cannot pass for a fresh build:
# - cargo names what it built from the registry by version, checksum, features, profile and compiler, so another
#   Cargo.lock, profile or toolchain never finds it;
# - crates of this workspace are built again when a source is newer than the result. scripts/cache touches every source
#   when another checkout was here before. In .ci/run scripts/sources touches every source whose content is not the one
#   that the last run here has recorded, and all if anything was built since.
# scripts/cache removes what another compiler has left. A folder that the user chose is left alone.
ifndef CARGO_TARGET_DIR
CARGO_TARGET_DIR := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/thalweg/build
CHECK_CACHE := scripts/cache $(CARGO_TARGET_DIR)
endif
export CARGO_TARGET_DIR

# Two profiles: dev for the engine below SQL, which builds in a minute; release for everything with SQL.
ENGINE := thalweg-env thalweg-codec thalweg-inbox thalweg-kernel thalweg-table thalweg-sim
# Always this whole list in one call: cargo selects features for all packages of a call together, and another
# list would select others and compile DataFusion again. `cargo xtask features` checks that tests agree.
RELEASE := thalweg-planner thalweg-query thalweg thalweg-cli thalweg-python thalweg-bench

# With the crate that users depend on, without SQL.
ENGINE_FLAGS := --locked --no-default-features $(addprefix --package ,$(ENGINE) thalweg)
RELEASE_FLAGS := --locked --release $(addprefix --package ,$(RELEASE))
# What was built, in this checkout.
BIN := bin
LIBRARY := lib_thalweg.$(if $(filter Darwin,$(shell uname)),dylib,so)
STAGE := scripts/stage

.PHONY: help
help:
	@echo "make demo             the main job on the shipped sample"
	@echo "make test             lint, test-kernel, test-schedules, test-sql, test-python"
	@echo "make lint             format, tidy, features, clippy, rustdoc"
	@echo "make test-kernel      tests of the engine below SQL, crash simulation included (no DataFusion: quick)"
	@echo "make test-schedules   tests that explore how threads interleave"
	@echo "make test-sql         tests of SQL, the Rust interface and the command line"
	@echo "make test-python      tests of the Python package"
	@echo "make release          the command line: $(BIN)/thalweg"
	@echo "make python           an environment in which 'import thalweg' works: $(VENV)/bin/python"
	@echo "make wheel            the wheel as published, in dist/ (slow)"
	@echo "make bench            measurements: make bench BENCH='arguments of thalweg-bench'"
	@echo "make fuzz             the tests of the engine ROUNDS=$(ROUNDS) times, each with new random cases"
	@echo "make mutations        breaks kernel and tables in one place at a time: which test notices? (slow; ONLY='part of a name')"
	@echo "make mutants          cargo-mutants over the kernel: a day"
	@echo "make clean            removes all that was built, the shared cache included"

# Of what `release` builds, the command line alone: no Python module, no benchmarks. Same features, so that nothing is built twice.
.PHONY: demo
demo: cache
	@echo "Building Thalweg. The first build compiles some 250 crates: 10 to 16 minutes on two cores, less on more."
	@$(STAGE) build cargo build --locked --release --package thalweg-cli
	@scripts/take_built $(CARGO_TARGET_DIR)/release $(BIN) thalweg
	@$(STAGE) demo $(BIN)/thalweg demo

.PHONY: test
test: lint test-kernel test-schedules test-sql test-python

.PHONY: cache
cache:
	@$(CHECK_CACHE)

.PHONY: release
release: cache
	@$(STAGE) build cargo build $(RELEASE_FLAGS)
	@scripts/take_built $(CARGO_TARGET_DIR)/release $(BIN) thalweg thalweg-bench $(LIBRARY)

# Cheapest first. What needs DataFusion is checked in the release profile, whose features and build scripts are there. The
# texts of thalweg-python are read by Python, not by rustdoc.
.PHONY: lint
lint: cache
	@$(STAGE) format cargo fmt --all --check
	@$(STAGE) tidy cargo xtask tidy
	@$(STAGE) features cargo xtask features $(RELEASE)
	@$(STAGE) clippy cargo clippy $(ENGINE_FLAGS) --package xtask --all-targets -- -D warnings
	@$(STAGE) clippy-sql cargo clippy $(RELEASE_FLAGS) --all-targets -- -D warnings
	@RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(STAGE) rustdoc cargo doc --locked --release $(addprefix --package ,$(ENGINE) $(filter-out thalweg-python,$(RELEASE))) --no-deps --document-private-items

.PHONY: test-kernel
test-kernel: cache
	@$(STAGE) test-kernel cargo test $(ENGINE_FLAGS) --package xtask

# The locks of the engine replaced by ones whose order of events a test can choose. Only files of tests named
# `explored`: everything else of these crates expects the real ones.
.PHONY: test-schedules
test-schedules: cache
	@$(STAGE) test-schedules cargo test --locked --package thalweg-env --package thalweg-sim --features thalweg-env/shuttle,thalweg-sim/explored --test explored

# Builds what `release` builds too, so that the first failure is a failing test and not a later link error.
.PHONY: test-sql
test-sql: release
	@$(STAGE) test-sql cargo test $(RELEASE_FLAGS)

.PHONY: test-python
test-python: python
	@THALWEG_BIN=$(CURDIR)/$(BIN)/thalweg $(STAGE) test-python $(VENV)/bin/python -m pytest -q crates/thalweg-python/tests

.PHONY: python
python: release $(VENV)/.made
	@scripts/install_extension $(BIN)/$(LIBRARY) $(VENV)

$(VENV)/.made: scripts/requirements.txt scripts/venv
	@$(STAGE) venv scripts/venv $(PYTHON) $(VENV) scripts/requirements.txt
	@touch $@

.PHONY: wheel
wheel: cache $(VENV)/.made
	@$(VENV)/bin/python -m pip install --quiet --no-input --requirement scripts/requirements-wheel.txt
	@$(STAGE) wheel $(VENV)/bin/maturin build --locked --profile dist --manifest-path crates/thalweg-python/Cargo.toml --out dist

.PHONY: bench
bench: release
	@$(BIN)/thalweg-bench $(BENCH)

ROUNDS ?= 20

# Random tests draw a new seed each time they run, and print it with the smallest case when they fail.
.PHONY: fuzz
fuzz: cache
	@for round in $$(seq $(ROUNDS)); do $(STAGE) "fuzz $$round" cargo test --quiet $(ENGINE_FLAGS) --tests; done

# The list is xtask/mutations.toml. Its names have blanks and backquotes in them, so the shell takes ONLY from the environment.
export ONLY ?=
.PHONY: mutations
mutations: cache
	@cargo xtask mutations "$$ONLY"

# Generates its mutations by itself, and builds once for each.
.PHONY: mutants
mutants: cache
	@cargo mutants --version >/dev/null || cargo install --locked cargo-mutants
	cargo mutants --package thalweg-kernel --test-package thalweg-kernel,thalweg-sim --output $(CARGO_TARGET_DIR)

.PHONY: clean
clean:
	cargo clean
	rm -rf $(BIN) $(VENV) dist crates/thalweg-python/python/thalweg/_thalweg.abi3.so
