# Every target works from a fresh checkout with python3 (3.11 or later) and a C++ compiler, as an ordinary user; nothing has to be activated.
# The local Kubernetes also needs Go 1.26 and root, and the check of the wire contract npm: those targets say so, no other asks.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BUF_VERSION := 1.75.0

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
BUF := build/buf-$(BUF_VERSION)/node_modules/.bin/buf
UV := $(or $(shell command -v uv 2>/dev/null),build/bootstrap/bin/uv)

# These rooms hold packages that are not part of the distribution.
export PYTHONPATH := $(CURDIR)/cluster:$(CURDIR)/bench

ROOMS := core operator gateway worker kernels cli local cluster bench docs tests
PYTHON_ROOMS = $(foreach room,$(ROOMS),$(if $(shell find $(room) -name '*.py' -print -quit 2>/dev/null),$(room)))
NATIVE_SOURCES := $(wildcard CMakeLists.txt kernels/CMakeLists.txt) $(shell find kernels/src -type f 2>/dev/null)
PROTOS := $(wildcard proto/kvroll/v1/*.proto)
PYTEST := $(PY) -m pytest

.PHONY: help
help: ## Print this help
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

## --- set-up -------------------------------------------------------------------------------------------------------------------

# Installs a Debian package as root, otherwise says the command.
debian = { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get install -y --no-install-recommends $(1); } || { echo "run: sudo apt-get install $(1)" >&2; exit 1; }

.PHONY: setup runtime
setup: $(VENV)/.native $(VENV)/.dependencies ## Make .venv with everything, the native kernels included (under a second when nothing changed)
	@:

runtime: $(VENV)/.native ## Make .venv with what running needs: no torch, no tools of development
	@:

build/bootstrap/bin/uv:
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "expected python3 3.11 or later, found " + sys.version.split()[0])'
	@python3 -c 'import ensurepip' 2>/dev/null || $(call debian,python3-venv)
	python3 -m venv build/bootstrap
	build/bootstrap/bin/python -m pip install --quiet uv

INSTALL = $(UV) pip install --quiet --python $(PY)

$(VENV)/.runtime: pyproject.toml constraints.txt | $(UV)
	@command -v g++ >/dev/null || $(call debian,g++)
	test -x $(PY) || $(UV) venv --quiet --no-python-downloads --python '>=3.11' $(VENV)
	$(INSTALL) -r pyproject.toml --extra operator --extra cli --extra build --constraint constraints.txt
	@touch $@

$(VENV)/.dependencies: $(VENV)/.runtime
	$(INSTALL) -r pyproject.toml --extra dev --constraint constraints.txt
	@touch $@

$(VENV)/.native: $(VENV)/.runtime $(NATIVE_SOURCES) | $(UV)
	@$(PY) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || $(call debian,python3-dev)
	$(INSTALL) --no-deps --no-build-isolation --reinstall-package kvroll -e .
	@# Pods mount this folder read-only: whatever is not byte-compiled now is compiled at every start of every pod.
	@PYTHONPATH=worker:gateway:operator $(PY) -c "import kvroll_gateway.main, kvroll_operator.main, kvroll_worker.engine.engine, kvroll_worker.main"
	@touch $@

.PHONY: model
model: runtime ## Import the small real model (SmolLM2-135M-Instruct) into the cache
	$(PY) -m kvroll_worker.models.smollm2

## --- run ----------------------------------------------------------------------------------------------------------------------

.PHONY: fresh
CMD ?= make demo
fresh: ## Run CMD as on a bare machine: a fresh clone, an empty HOME and caches; make fresh CMD="make test" (options: .ci/fresh --help)
	.ci/fresh $(CMD)

.PHONY: demo demo-cluster
demo: runtime ## Change a live pool's precision twice while chats stream, on this machine alone, and report what it cost
	$(BIN)/kvroll demo

demo-cluster: model cluster-up ## The same on the local Kubernetes (or on that of KUBECONFIG)
	eval "$$($(PY) -m kvroll_cluster env)"; $(BIN)/kvroll demo --backend Kubernetes

.PHONY: cluster-up cluster-down
cluster-up: runtime ## Start the local Kubernetes (or use KUBECONFIG, or KVROLL_CLUSTER=kind)
	$(PY) -m kvroll_cluster up

cluster-down: runtime ## Remove the local Kubernetes and everything it made
	$(PY) -m kvroll_cluster down

.PHONY: test test-fast e2e test-faults bench
test: setup ## Run every tier that this machine carries, and say which it does not and why
	$(PY) tests/tiers.py

test-fast: setup ## Run what needs neither cluster nor model, on all cores, in about two minutes
	$(PY) tests/tiers.py fast

e2e: setup ## Run the end-to-end suite alone, on both back ends: kvroll up, and the local Kubernetes or KUBECONFIG
	$(PY) tests/tiers.py --strict local cluster

# A part is a file tests/faults/test_PART.py; each is a run of its own, writes its key of build/bench/faults.json, and fails alone.
FAULT_PARTS := $(subst _,-,$(patsubst tests/faults/test_%.py,%,$(wildcard tests/faults/test_*.py)))
test-faults: PARTS = $(if $(findstring file,$(origin PART)),$(FAULT_PARTS),$(PART))
test-faults: setup model ## Run the fault suites, or one of them: make test-faults PART=rollout
	@[ -n "$(PARTS)" ] || { echo "expected fault suites tests/faults/test_PART.py, found none" >&2; exit 2; }
	@for part in $(PARTS); do [ -f "tests/faults/test_$${part//-/_}.py" ] || { echo "expected one of: $(FAULT_PARTS); found PART=$$part" >&2; exit 2; }; done
	failed=; for part in $(PARTS); do $(PYTEST) "tests/faults/test_$${part//-/_}.py" || failed="$$failed $$part"; done; \
	[ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

# A bench that another one runs is left out where all are run; PART=name runs any of them alone.
BENCH_PARTS := paging load quality gate_errors
PART ?= $(filter-out $(BENCH_PARTS),$(basename $(notdir $(wildcard bench/*.py))))

bench: setup model ## Run the benchmarks, or one of them: make bench PART=engine
	@for part in $(PART); do [ -f "bench/$${part//-/_}.py" ] || { echo "expected a bench/$$part.py, found: $(basename $(notdir $(wildcard bench/*.py)))" >&2; exit 1; }; done
	for part in $(PART); do $(PY) "bench/$${part//-/_}.py"; done

## --- distribute ---------------------------------------------------------------------------------------------------------------

.PHONY: dist
dist: setup ## Build the sdist and, from it, the wheel, which runs on other Linux machines too: dist/
	rm -rf dist
	$(UV) build --quiet --python $(PY) --no-build-isolation --out-dir dist
	@# A wheel that was built here asks for this machine's libraries; repaired, it names the oldest glibc that it runs on.
	@if [ "$$(uname)" = Linux ]; then built=$$(ls dist/*.whl); PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist "$$built" \
	&& rm "$$built"; fi
	@ls dist

## --- check --------------------------------------------------------------------------------------------------------------------

.PHONY: check check-python check-native check-text check-proto check-generated
check: check-python check-native check-text check-proto check-generated ## Lint, types, import law, formats, contracts, generated files

check-python: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PYTHON_ROOMS)
	$(BIN)/lint-imports --no-cache

check-native: setup
	files=$$(git ls-files 'kernels/src/*.cpp' 'kernels/src/*.h'); [ -z "$$files" ] || $(BIN)/clang-format --dry-run --Werror $$files
	files=$$(git ls-files 'cluster/*.go'); if [ -n "$$files" ] && command -v gofmt >/dev/null; then \
	unformatted=$$(gofmt -l $$files); [ -z "$$unformatted" ] || { echo "run gofmt -w $$unformatted" >&2; exit 1; }; fi

check-text: setup
	$(BIN)/codespell $$(git ls-files)
	$(BIN)/yamllint --strict $$(git ls-files '*.yaml' '*.yml' ':!charts/*/templates/*' ':!crds' ':!charts/kvroll-crds/files')
	$(BIN)/check-jsonschema --check-metaschema $$(git ls-files 'charts/*/values.schema.json')
	$(BIN)/shellcheck .ci/run .ci/fresh $$(git ls-files '*.sh')

# The baseline is the contract of the last release; `make proto-baseline` renews it, visibly, in the same commit as a break.
check-proto: setup $(BUF)
	cd proto && ../$(BUF) lint && ../$(BUF) breaking --against baseline.binpb

check-generated: setup
	@rm -rf build/generated && mkdir -p build/generated
	$(call generate_proto,build/generated)
	@for file in build/generated/kvroll/v1/*; do cmp "$$file" "proto/kvroll/v1/$${file##*/}" \
	|| { echo "generated code is stale: run make proto" >&2; exit 1; }; done
	$(call generate_crds,build/generated/crds)
	@diff -r crds build/generated/crds && diff -r crds charts/kvroll-crds/files \
	|| { echo "CRDs are stale: run make crds" >&2; exit 1; }
	$(PY) docs/tables.py --check

## --- generate -----------------------------------------------------------------------------------------------------------------

define generate_proto
PATH="$(CURDIR)/$(BIN):$$PATH" $(PY) -m grpc_tools.protoc -I proto --python_out=$(1) --grpc_python_out=$(1) --mypy_out=quiet:$(1) --mypy_grpc_out=quiet:$(1) $(PROTOS)
endef
define generate_crds
mkdir -p $(1) && $(PY) -m kvroll_operator.api.crds --out $(1)
endef

$(BUF):
	@command -v npm >/dev/null || { echo "expected npm on PATH to fetch buf $(BUF_VERSION), found none" >&2; exit 1; }
	@mkdir -p build/buf-$(BUF_VERSION)
	npm install --silent --no-save --prefix build/buf-$(BUF_VERSION) @bufbuild/buf@$(BUF_VERSION)

.PHONY: proto proto-baseline crds local-schemas docs
proto: setup ## Regenerate the code of the wire contract
	$(call generate_proto,proto)

proto-baseline: setup $(BUF) ## Accept the present wire contract as the one that changes are compared with
	cd proto && ../$(BUF) build -o baseline.binpb

crds: setup ## Regenerate the CRDs from the operator's models, for kubectl and for the chart
	$(call generate_crds,crds)
	@mkdir -p charts/kvroll-crds/files && rm -f charts/kvroll-crds/files/*.yaml && cp crds/*.yaml charts/kvroll-crds/files/

local-schemas: setup ## Regenerate the built-in kinds' schemas of the embedded API server from Kubernetes' source (needs Go)
	cd cluster && go mod download k8s.io/kubernetes
	PYTHONPATH=local $(PY) -m kvroll_local.api.kinds.generate --version "$$(cd cluster && go list -m -f '{{.Version}}' k8s.io/kubernetes)" \
	  --kubernetes "$$(cd cluster && go list -m -f '{{.Dir}}' k8s.io/kubernetes)"

docs: setup ## Render the tables in docs/ from the code
	$(PY) docs/tables.py

.PHONY: fmt clean
fmt: setup ## Format everything
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	files=$$(git ls-files 'kernels/src/*.cpp' 'kernels/src/*.h'); [ -z "$$files" ] || $(BIN)/clang-format -i $$files
	files=$$(git ls-files 'cluster/*.go'); [ -z "$$files" ] || gofmt -w $$files

clean: ## Remove what was built here (the caches under ~/.cache/kvroll stay)
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis $(VENV)
