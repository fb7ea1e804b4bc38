# Each target sets up all it needs in .venv; only Python 3.11 or newer and make must be there.

.DEFAULT_GOAL := help
.PHONY: help demo test live check lint types imports docs bench bench-peers lock env env-demo

# What is set up elsewhere on this machine has no part in the demo and the tests.
unexport MLFLOW_TRACKING_URI MLFLOW_EXPERIMENT_ID MLFLOW_EXPERIMENT_NAME MLFLOW_RUN_ID AIRFLOWS_LEDGER_URL

BIN := .venv/bin
ARGS ?=

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 13

demo: export AIRFLOWS_HOME := $(CURDIR)/.airflows
demo: env-demo ## Sweep a real training script on this machine, to a winner (again: the same result)
	$(BIN)/airflows sweep sweeps/digits/sweep.yaml --yes
	@printf '%s\n' '' \
	  'Look at it:' \
	  '  export AIRFLOWS_HOME="$(AIRFLOWS_HOME)"' \
	  '  $(BIN)/airflows results digits                 the ranked table' \
	  '  $(BIN)/airflows best digits --as yaml          the winner, as a train.yaml' \
	  '  $(BIN)/airflows get digits/0                   the story of one trial' \
	  '  $(BIN)/mlflow ui --backend-store-uri "sqlite:///$(AIRFLOWS_HOME)/mlflow.db"' \
	  '                                                every curve, on http://localhost:5000'

# Most tests wait for processes, so two streams take half the time even of two cores.
test: env ## The test suite, without what needs a live service; ARGS goes to pytest
	$(BIN)/python -m pytest --numprocesses=2 --dist=loadfile $(ARGS)

live: env ## The tests against real services; ARGS goes to pytest
	$(BIN)/python -m pytest -m live $(ARGS)

check: lint types imports test ## All that a change must pass

lint: env ## ruff, format included
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: env ## mypy --strict
	$(BIN)/mypy --strict airflows flows/*.py

imports: env ## The arrows between modules
	$(BIN)/lint-imports

docs: env ## The documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --config-file tools/docs/mkdocs.yml

bench: env-demo ## The figures we promise, a few minutes
	@for script in $(filter-out %/measuring.py %/peers.py,$(wildcard benchmarks/*.py)); do \
	  echo "== $$script"; $(BIN)/python $$script || exit 1; done

bench-peers: env-demo ## What a trial costs, beside other ways to run many
	$(BIN)/python benchmarks/peers.py $(ARGS)

lock: ## Write the lock files anew
	tools/lock

env: ## .venv with everything, for working on airflows
	@tools/environment requirements-dev.lock

env-demo:
	@tools/environment requirements.lock
