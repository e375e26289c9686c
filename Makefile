# demo   run the main job once, on a cache of its own (CPU, local store)
# test   install what is needed and pass every test
# check  format, lint, types and tests, as CI runs them
# bench  measure against tar, restic, borg, aws and s5cmd; writes tests/benchmarks/RESULTS.md

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check lint bench clean

$(VENV)/ready: pyproject.toml
	PYTHON=$(PYTHON) .ci/system-packages
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@

demo: $(VENV)/ready
	$(BIN)/python examples/demo.py

test: $(VENV)/ready
	PYTHON=$(PYTHON) .ci/system-packages chromium
	$(BIN)/python -m pytest -n 3 --dist loadgroup

lint: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test

bench: $(VENV)/ready
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	$(BIN)/python -m tests.benchmarks

clean:
	rm -rf $(VENV) .demo build dist *.egg-info
