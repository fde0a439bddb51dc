# The one command surface. Each target sets up what it needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
JOBS   ?= auto
# Tests that run commands and servers often wait for them: four workers more than processors. A module stays on one
# worker, for the servers that its tests share; modules are started in the order of tests/conftest.py.
BUSY_JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 4)
BY_MODULE := --dist loadfile --no-loadscope-reorder

# Every branch of domain and application is proven by these, which need no server.
PURE_TESTS := tests/domain tests/application
PACKAGES   := domain application adapters entrypoints migrations

# Tests must not depend on what a shell happens to export.
unexport PYTHONDONTWRITEBYTECODE PYTHONPATH

.PHONY: help setup test coverage check demo pictures bench bench-quick figures soak matrix powerloss simulate real-servers bundle lock sbom format clean
.DEFAULT_GOAL := help

help:  ## what there is to run
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: $(READY)  ## make .venv from requirements.lock

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
		"tileferry needs Python 3.11 or later, this is " + sys.version.split()[0] + \
		"; try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

test: $(READY)  ## every test, the fast ones first
	$(BIN)/python -m pytest -n $(JOBS) $(PURE_TESTS) --cov --cov-fail-under=100 --cov-report=term
	$(BIN)/python -m pytest -n $(BUSY_JOBS) $(BY_MODULE) tests $(PURE_TESTS:%=--ignore=%)

# Not part of `make test`: noting every line that is run makes the tests twice as slow, so that some are too
# late. Whether they pass is for `make test` to say; here it counts what they reach. What crashes and demos run
# are processes of their own, which do not count anyway.
coverage: $(READY)  ## how much of the whole product the tests reach
	-$(BIN)/python -m pytest -n $(JOBS) tests --ignore-glob='*crash*' --ignore-glob='*test_demo*' $(PACKAGES:%=--cov=%) --cov-report=
	$(BIN)/coverage report --fail-under=95

check: $(READY)  ## lint, format, types, architecture, dependencies
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy -p tileferry.domain -p tileferry.application -p tileferry.adapters -p tileferry.entrypoints -p tileferry.migrations
	$(BIN)/mypy tests benchmarks simulation tools
	$(BIN)/lint-imports
	$(BIN)/deptry .

demo: $(READY)  ## see it work
	@rm -rf build/demo
	@$(BIN)/tileferry demo --keep build/demo

pictures: $(READY)  ## make the README's pictures from the demo, in Chromium
	@$(BIN)/python tools/pictures.py

bench: $(READY)  ## measure against peers; writes build/bench.json
	@mkdir -p build
	$(BIN)/python -m benchmarks

bench-quick: $(READY)  ## compare processor times with benchmarks/quick.json; fails when one is 15 % higher
	@mkdir -p build
	$(BIN)/python -m benchmarks.quick $(QUICK)

figures: $(READY)  ## print the figures of the code base beside their goals
	@$(BIN)/python tests/architecture/test_figures.py

IMAGES ?= 2000

SOAK_TESTS := tests/e2e/test_download_memory.py tests/e2e/test_download_hostile_pages.py tests/e2e/test_download_weather.py tests/e2e/test_cache_crash.py tests/e2e/test_download_crash.py tests/e2e/test_idempotency_crash.py tests/e2e/test_upload_crash.py tests/e2e/test_queue_crash.py tests/e2e/test_failover.py tests/e2e/test_db_crash.py tests/e2e/test_backup.py \
	tests/e2e/test_file_call_faults.py tests/e2e/test_database_link_faults.py \
	tests/adapters/filesystem/journal/test_store_crash.py \
	tests/adapters/filesystem/segments/test_store_crash.py tests/adapters/filesystem/raw/test_sink_crash.py tests/e2e/test_partition_acquisition.py \
	tests/application/retries/test_manager_replay.py

soak: $(READY)  ## many more crashes, many more examples
	SOAK=1 $(BIN)/python -m pytest -n $(JOBS) $(SOAK_TESTS) --timeout=1800
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -n $(JOBS) tests/domain tests/adapters/postgres/test_work_store_machine.py --timeout=1800
	$(MAKE) powerloss IMAGES=10000

# Not part of `make test`: it takes many minutes, and fetches servers and packages that are not in the lock.
matrix: $(READY)  ## test with every Postgres and Python found here; ONLY="postgres-16 python-3.13" for some
	@$(BIN)/python tools/matrix.py $(ONLY)

powerloss: $(READY)  ## cut the power block by block, on a real file system (root, Linux)
	PYTHONPATH=tests $(BIN)/python -m powerloss $(if $(BUG),--bug $(BUG),--images $(IMAGES))

SEEDS ?= 10000

simulate: $(READY)  ## run many seeds of the simulator; each is one history with faults
	$(BIN)/python -m simulation --seeds $(SEEDS)
	$(BIN)/python -m simulation --seeds $$(($(SEEDS) / 100)) --real
	$(BIN)/python -m simulation --exhaustive

bundle: $(READY)  ## build an archive that installs without a network, and test it
	@$(BIN)/python tools/bundle.py

LOCK    := build/lock/bin
COMPILE := $(LOCK)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate

real-servers: $(READY) build/real-servers/.ready  ## download from tile servers that others wrote
	$(BIN)/python -m pytest tests/e2e/test_real_servers.py

build/real-servers/.ready:
	$(PYTHON) -m venv build/real-servers
	build/real-servers/bin/python -m pip install --quiet --disable-pip-version-check \
		MapProxy waitress titiler.application uvicorn
	npm install --silent --no-audit --no-fund --prefix build/real-servers tileserver-gl-light
	@touch $@

lock: build/lock/.ready  ## update requirements.lock, the SBOM and the licences; no index address
	$(COMPILE) --upgrade --generate-hashes --all-extras --group dev --output-file requirements.lock pyproject.toml
	@$(MAKE) --no-print-directory sbom

# Which packages are locked for the product, and which for its extras: the rest is for development.
sbom: build/lock/.ready  ## list what is locked and its licences: sbom.cdx.json and _docs/licences.md
	$(COMPILE) --constraints requirements.lock --output-file build/lock/required.txt pyproject.toml
	$(COMPILE) --constraints requirements.lock --all-extras --output-file build/lock/shipped.txt pyproject.toml
	$(LOCK)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --short-PURLs \
		--output-file build/lock/sbom.json requirements.lock
	$(LOCK)/python tools/sbom.py

build/lock/.ready:
	$(PYTHON) -m venv build/lock
	$(LOCK)/python -m pip install --quiet --disable-pip-version-check --upgrade pip uv 'cyclonedx-bom[validation]' packaging
	@touch $@

format: $(READY)  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .import_linter_cache .hypothesis .coverage
	find . -type d \( -name __pycache__ -o -name .ruff_cache \) -prune -exec rm -rf {} +
