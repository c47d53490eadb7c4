# Each target first makes .venv from constraints.txt; on a fresh clone one command does everything.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test check slow chaos mujoco-table gpu-check bench docs clean

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile

demo: $(STAMP)  ## train the demo matrix and write its report to results/demo
	$(BIN)/redline matrix demo --jobs 2 --out results/demo
	$(BIN)/redline report results/demo

test: $(STAMP)  ## the fast tests
	$(BIN)/pytest -m "not slow" -n 2

check: $(STAMP)  ## what CI checks besides the tests: lint, format, types, import contracts, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p redline.algorithms -p redline.envs -p redline.llm_track -p redline.benchmark
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

slow: $(STAMP)  ## the slow tests (learning runs)
	$(BIN)/pytest -m slow

chaos: $(STAMP)  ## kill -9 at 20 random moments of a small matrix of both tracks: nothing may be lost (minutes)
	CHAOS_POINTS=20 $(BIN)/pytest -m slow -s tests/benchmark/test_chaos.py

mujoco-table: $(STAMP)  ## train what the MuJoCo table lacks (hours; goes on where it was ended) and write it
	$(BIN)/redline table mujoco_1m --jobs 2 --out results/mujoco_1m

gpu-check: $(STAMP)  ## language-model updates on a GPU: speed, memory, agreement with the CPU (minutes)
	$(BIN)/python tests/gpu_check.py

bench: $(STAMP)  ## CPU time of Stable-Baselines3 divided by ours, written to results/bench
	@mkdir -p results/bench
	$(BIN)/redline bench control --json results/bench/control.json --report results/bench/control.md

docs: $(STAMP)  ## the pages of docs/ as a site, written to site/
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:  ## remove .venv, build output and caches; results stay
	rm -rf $(VENV) build dist site *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Without the stamp the environment is new or half made, and starts afresh; with an old one it is brought up to date.
$(STAMP): pyproject.toml constraints.txt
	@test -f $@ || $(PYTHON) -m venv --clear $(VENV)
	@rm -f $@
	@echo "Installing into $(VENV) (minutes the first time) ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e ".[dev,llm]"
	@touch $@
