# The two commands: `make demo` and `make test`. Both do their own set-up. `make help` lists the rest.
SHELL := bash
ARGS ?=
ONLY ?=
# The checks of `make deny`. Empty means all checks, including advisories, whose database must be reachable.
CHECKS ?= licenses bans sources
# The seeds of `make simulate`.
SEEDS ?= 10000
# The image of `make docker-build` and `make docker-push`.
IMAGE ?= signpost:0.1.0
FROM ?= 0
export SIGNPOST_CACHE ?= $(HOME)/.cache/signpost

.PHONY: help demo test check setup lint unit quick scale memory simulate once deny fuzz bench generate
.PHONY: test-integration build docker-build docker-push manifests coverage
# Every step needs those before it, and cargo uses all cores by itself.
.NOTPARALLEL:

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: ## Run everything embedded: API, name server, systems, examples (ARGS=--once to check and exit)
	cargo build --locked --package signpost
	@cargo run --locked --quiet --package signpost -- demo $(ARGS)

check: lint quick ## The quick tier: lints, unit tests and the suites on the sandbox; no servers needed

test: setup lint unit simulate memory once ## Run every test, on the sandbox and on the real servers, and 10,000 seeds of the simulation

# Outside CI a missing server is left out, and its suites report SKIPPED with their names.
setup: ## Fetch or build the real servers that the tests need
	@dev/setup || { [[ $$? == 1 && $${CI:-} != true ]] && echo "continuing without the missing servers; their suites are skipped by name"; }

lint: ## Format, lints
	cargo fmt --all --check
	cargo clippy --locked --profile simulation --workspace --all-targets -- -D warnings

# One profile for all tests: dependencies are built once, and the suites that compute more than they wait take a fraction of the time of an
# unoptimised build. It has overflow checks and no debug assertions: `cargo test` without a profile has those, and smaller sizes of the largest suites.
TESTS := cargo test --locked --profile simulation --workspace

unit: ## Build and run the tests of all crates
	$(TESTS)

# Suites that need a real server report SKIPPED by name here, even where it is installed. Two things are left to `make test`: the largest suites,
# and the examples in the documentation of the crates, because rustdoc reads every crate again in each run.
LARGEST := scale::thousands_of_record_sets scale::record_sets_that_arrive_by_the_thousand scale_endpoints::
quick:
	SIGNPOST_SANDBOX_ONLY=true $(TESTS) --tests -- $(LARGEST:%=--skip=%)

# The systems share the seeds. SEED=… with SYSTEM=… replays one seed; TRACE=1 prints its trace.
simulate: ## Play drawn histories of every system on a paused clock (SEEDS= FROM= SYSTEM= SEED= FILE=)
	cargo build --locked --quiet --profile simulation --workspace --bin simulate
	@SEEDS=$(SEEDS) FROM=$(FROM) SYSTEM=$(SYSTEM) SEED=$(SEED) FILE=$(FILE) TRACE=$(TRACE) target/simulation/simulate

scale: ## Only the largest suites: 10,000 record sets, 50,000 endpoint names in one zone
	$(TESTS) --test powerdns scale

memory: ## The memory of deleted objects is given back
	$(TESTS) --bench memory

# With the features of the whole workspace, it is the program that the tests have built.
once: ## The demo as CI runs it: exits 0 when everything converged within ten seconds
	cargo build --locked --quiet --profile simulation --workspace --bin signpost
	target/simulation/signpost demo --once --timeout 10

deny: ## Licences, duplicate and banned crates (installs cargo-deny when missing)
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
	cargo deny check $(CHECKS)

fuzz: ## Check that the fuzz targets build (fuzz/README.md explains how to run them)
	@# cargo check does not link, so libfuzzer itself is not needed.
	CUSTOM_LIBFUZZER_PATH=/unused cargo check --locked --manifest-path fuzz/Cargo.toml

coverage: ## Fail when the tests of pangolin execute less than 80 % of its lines, or not all lines of its decisions
	@dev/coverage --gate

bench: ## Benchmarks on the real servers, as ratios in one run (ONLY=name for one)
	@dev/setup
	cargo build --locked --release --package signpost --package signpost-bench
	target/release/signpost-bench --operator target/release/signpost $(if $(ONLY),--only $(ONLY)) $(ARGS)

test-integration: setup unit ## The tests of all crates, on the sandbox and on the real servers

build: ## Build the operator for release
	cargo build --locked --release --package signpost

docker-build: ## Build the image (IMAGE=)
	docker build --tag $(IMAGE) --file deploy/Dockerfile .

docker-push: ## Push the image (IMAGE=REGISTRY/signpost:TAG)
	docker push $(IMAGE)

manifests: generate ## The same as `make generate`

generate: ## Generate the checked-in CRDs, RBAC and command-line reference
	cargo run --locked --quiet --package xtask -- generate
