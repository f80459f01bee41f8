# Tasks of a developer; `make` lists them. CONTRIBUTING.md says more.
UV ?= uv
RUN = $(UV) run -q
PYTEST = $(RUN) pytest -n auto

.PHONY: help setup lint format types quick test learner containers ssh kubernetes screens harm docs structure bench

help: ## List the tasks
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: ## Install everything that the project and its tests need from Python's registry
	$(UV) sync -q

lint: ## ruff: rules and format
	$(RUN) ruff check && $(RUN) ruff format --check

format: ## Let ruff sort imports and format
	$(RUN) ruff check --fix && $(RUN) ruff format

types: ## mypy --strict
	$(RUN) mypy

quick: ## Tests without processes, engines, hosts and screens: about a minute
	$(PYTEST) -m quick

test: ## All tests that this machine can run
	$(PYTEST)

learner: ## The agent's tests
	$(PYTEST) tests/learner

containers: ## Needs a Docker engine
	$(PYTEST) tests/containers

ssh: ## Needs OpenSSH's server
	$(PYTEST) tests/ssh

kubernetes: ## Needs FABRIC_TEST_KUBECONFIG
	$(PYTEST) tests/kubernetes

screens: ## The screens, their pictures included
	$(PYTEST) tests/screens

harm: ## Rounds in which real processes are killed: make harm ROUNDS=200
	$(RUN) pytest tests/chaos tests/controller/test_chaos.py tests/learner/test_chaos.py --chaos-rounds $(or $(ROUNDS),20)

docs: ## Write docs/cli.md, docs/manifest.md, docs/documents.md, docs/keys.md anew
	$(RUN) python -m workbench.cli.framework.docgen --write
	$(RUN) python -m workbench.manifest.publish.docs --write
	$(RUN) python -m workbench.documents.docs --write
	$(RUN) python -m screens.app.docs --write

structure: ## The figures of the source tree: files, circles, names
	$(RUN) python -m tests.project.structure -v

bench: ## Benchmarks beside their peers: make bench NAME=command_line
	$(RUN) python -m tests.bench $(NAME)
