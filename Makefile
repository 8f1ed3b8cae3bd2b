# Everything here works from a fresh checkout: each target sets up what it needs in .venv first.
PYTHON ?= python3
BIN := .venv/bin
# Only what is imported is compiled, and kept: to compile all of it takes as long as the rest of an installation.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --editable

.PHONY: demo docs test test-slow unit lint format clean

demo: .venv/.demo
	$(BIN)/forebay demo --output demo

docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Linters and type checks run beside the tests, which leave a core idle at times.
test: .venv/.test
	$(MAKE) --jobs lint unit

test-slow: .venv/.test
	FOREBAY_SLOW_TESTS=1 $(BIN)/pytest -n auto --dist worksteal

unit: .venv/.test
	$(BIN)/pytest -n auto --dist worksteal -m "not slow"

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/test_house.py
	$(BIN)/mypy

format: .venv/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/bin/python:
	$(PYTHON) -m venv .venv
	-$(BIN)/python -m pip install --quiet --upgrade pip  # the one of a Python reads indices for twice as long

.venv/.demo: .venv/bin/python pyproject.toml
	$(INSTALL) ".[wave,codecs,plots]"
	touch $@

.venv/.docs: .venv/bin/python pyproject.toml
	$(INSTALL) ".[docs]"
	touch $@

.venv/.test: .venv/bin/python pyproject.toml
	$(INSTALL) ".[test]"
	touch $@ .venv/.demo

clean:
	rm -rf .venv demo site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
