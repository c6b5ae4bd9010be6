# make help lists the targets. Everything runs in .venv, which is made when it is missing or out of date.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
CASE ?=
PROFILE ?=
RECORD ?=
SEED ?=
HOSTS ?=
POOLS ?=
PODS ?=
HOURS ?=
STEP_S ?=
STEPS ?=
ROUGH ?=
SITE ?= dist/site
PARTS ?=

# Every process of a test run would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo up dev test durations nightly lint types check audit dist clients web spark fmt proto docs site bench sim kubernetes manifests browser screenshots clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# The stamps record for which pins an environment was made, and for which .proto files code was generated.
PROTOS := $(shell find peloton/api -name '*.proto')

SOURCES := pyproject.toml constraints.txt third_party/pymesos/requirements.txt hatch_build.py $(PROTOS)

# install EXTRA,WHO: make the environment, with an extra of pyproject.toml.
define install
	@$(PYTHON) -c 'import sys; assert (3, 11) <= sys.version_info < (3, 15), "Peloton needs Python 3.11 to 3.14, not " + sys.version.split()[0] + "; name one with make PYTHON=..."'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed: on Debian install python3-venv"; rm -rf $(VENV); exit 1; }
	@echo "installing what $(2) into $(VENV) ..."
	@$(PIP) install -c constraints.txt -e '.[$(1)]'
endef

$(VENV)/run.stamp: $(SOURCES)
	$(call install,local,Peloton needs)
	@touch $@

# This extra includes the one above: a call of pip builds the package, in an environment that it installs for the build.
$(VENV)/dev.stamp: $(SOURCES)
	$(call install,dev,the tests need)
	@$(BIN)/python -m peloton.api.generate --ignored > /dev/null
	@touch $(VENV)/run.stamp $@

dev: $(VENV)/dev.stamp ## make the environment of the tests: .venv/bin/pytest path::test works then

demo: $(VENV)/run.stamp ## start a local cluster, run a job on it, show what happens, clean up
	@$(BIN)/peloton demo

up: $(VENV)/run.stamp ## run the local cluster until Ctrl-C
	@$(BIN)/peloton up

lint: $(VENV)/dev.stamp ## check format and lint
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: run make fmt"; exit 1; }
	@$(BIN)/ruff check --quiet .

types: $(VENV)/dev.stamp ## check the types, all of them without a cache and what has changed with one
	@$(BIN)/mypy

check: lint ## format, lint, types and the fast tests
	@$(MAKE) --no-print-directory types & types=$$!; \
	$(BIN)/pytest -q -m 'not slow and not nightly' -n 3 --dist worksteal tests/unit tests/workflow; tests=$$?; \
	wait $$types && exit $$tests

# Tests of whole clusters wait for more than half of their time: five at a time keep two cores busy. tests/durations.json
# says which start first.
ALL_TESTS := -n 5 --dist loadgroup --no-loadscope-reorder --durations 30 tests/e2e tests/browser tests/simulation tests/compose tests/conformance tests/kubernetes tests/frameworks tests/time_skipping tests/workflow tests/unit

test: lint ## format, lint, the fast tests, conformance, end to end, faults, simulation
	@$(BIN)/pytest -q -m 'not nightly' $(ALL_TESTS)

durations: $(VENV)/dev.stamp ## run the tests of make test, and record their seconds in tests/durations.json
	@$(BIN)/pytest -q -m 'not nightly' --record-durations $(ALL_TESTS)

nightly: $(VENV)/dev.stamp ## what make test leaves out: more seeds, kinds of clusters and long stories, and the guard on cost
	@PELOTON_TEST_ALL_EXAMPLES=1 $(BIN)/pytest -q -m nightly $(ALL_TESTS); status=$$?; \
	$(BIN)/python -m tests.bench.run cost && exit $$status

kubernetes: $(VENV)/dev.stamp ## build a real Kubernetes control plane for the tests, where Go is installed
	@$(BIN)/python -m tests.kubernetes.build $(if $(UNTIL),--until $(UNTIL))
	@$(BIN)/python -m tests.kubernetes.kubelet_parts $(if $(UNTIL),--until $(UNTIL))
	@$(BIN)/python -m tests.kubernetes.chart $(if $(UNTIL),--until $(UNTIL))
	@$(BIN)/python -m tests.kubernetes.owner_parts $(if $(UNTIL),--until $(UNTIL))

manifests: kubernetes ## render deploy/kubernetes from the Helm chart in deploy/helm
	@$(BIN)/python -m tests.kubernetes.chart render

dist: $(VENV)/dev.stamp ## build a source distribution, a wheel, and the wheel of the client alone into dist
	@rm -rf dist
	@$(BIN)/python -m hatchling build
	@$(PIP) wheel --no-deps --wheel-dir dist clients/python
	@$(BIN)/python deploy/sbom.py dist/peloton-temporal.cdx.json

audit: $(VENV)/dev.stamp ## ask the package index for known vulnerabilities of the pinned packages
	@test -x $(VENV)/audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)/audit && $(VENV)/audit/bin/pip install --quiet 'pip-audit>=2.10,<3'; }
	@$(VENV)/audit/bin/pip-audit --disable-pip --no-deps --progress-spinner off -r constraints.txt

clients: $(VENV)/dev.stamp ## build the clients of Go and Java and the archive of .proto files into dist, or PARTS
	@$(BIN)/python -m clients.build $(PARTS)

web: ## build the web pages, where Node is installed
	@cd services/web/app && npm ci --no-audit --no-fund --silent && npm run --silent build

spark: ## build and test the jar of Spark's cluster manager, where Maven and a JDK are installed
	@cd integrations/spark && mvn -q -B package
	@mkdir -p peloton/integrations/jars && cp integrations/spark/target/peloton-spark.jar peloton/integrations/jars/

browser: $(VENV)/dev.stamp ## install Chromium for the tests of the web pages, as root on a Debian
	@$(BIN)/python -m tests.browser.chromium

screenshots: $(VENV)/dev.stamp ## take those of all web pages anew, into docs/screenshots
	@$(BIN)/python -m tests.browser.screenshots

fmt: $(VENV)/dev.stamp ## format and fix what can be fixed
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix --quiet .

proto: $(VENV)/dev.stamp ## generate code from the .proto files
	@$(BIN)/python -m peloton.api.generate

docs: $(VENV)/dev.stamp ## generate docs/cli.md, docs/settings.md, docs/errors.md, docs/metrics.md, docs/permissions.md, docs/pod-states.md, docs/host-state.md and the policies of the gate
	@$(BIN)/python -m cli.reference
	@$(BIN)/python -m peloton.lifecycle.pod_page
	@$(BIN)/python -m services.hostmgr.kubernetes.gates.file
	@$(BIN)/python -m peloton.hosts.state_page
	@$(BIN)/python -m peloton.api.error_page
	@$(BIN)/python -m services.telemetry.page
	@$(BIN)/python -m peloton.access.page
	@$(BIN)/python -m services.telemetry.alerts
	@$(BIN)/python -m services.telemetry.dashboards

$(VENV)/site/run.stamp: deploy/site/requirements.txt
	@$(PYTHON) -m venv $(VENV)/site
	@$(VENV)/site/bin/pip --disable-pip-version-check --quiet install -r $<
	@touch $@

site: $(VENV)/site/run.stamp ## build the documentation as a site into dist/site
	@$(VENV)/site/bin/mkdocs build --quiet --strict --site-dir $(abspath $(SITE))

bench: $(VENV)/dev.stamp ## run all benchmark cases, or CASE=name; one JSON line each; PROFILE=DIR, RECORD=1
	@$(BIN)/python -m tests.bench.run $(CASE) $(if $(PROFILE),--profile $(PROFILE)) $(if $(RECORD),--record)

sim: $(VENV)/run.stamp ## simulate a day of 1,000 hosts, or as SEED, HOSTS, POOLS, PODS, HOURS, STEP_S, STEPS, ROUGH, DIVIDED say
	@$(BIN)/python -m tests.simulation.run $(foreach name,SEED HOSTS POOLS PODS HOURS STEP_S STEPS ROUGH DIVIDED,$(if $($(name)),$(name)=$($(name))))

clean: ## remove what was made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
