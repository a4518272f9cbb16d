# Two commands do all the set-up on a fresh Debian machine with Python 3.11+: `make up` and `make test`.
.DEFAULT_GOAL := help
REGION ?= local
ENVIRONMENT ?= local
MC ?= mc01
REGIONCTL := .venv/bin/regionctl
WORKERS ?= auto

.PHONY: help venv venv-dev tools up down status test lint format render bench bench-up bench-path lock \
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
lint: venv-dev ## ruff, mypy --strict, layers, rendered files, dependencies
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(REGIONCTL) config render --check
format: venv-dev ## let ruff format and fix
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .
render: venv ## config.yaml → deploy/
	@$(REGIONCTL) config render

bench: bench-up bench-path ## all benchmarks
bench-up: venv ## time and memory of a region, part by part
	@.venv/bin/python bench/up.py
bench-path: venv ## a request's way, from create to Ready, stage by stage (BENCH_FLAGS=--worktree)
	@.venv/bin/python bench/path.py $(BENCH_FLAGS)

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
