# Everything here works from a fresh checkout: each target sets up what it needs in .venv first.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow lint format clean

demo: .venv/.core
	$(BIN)/forebay demo --output demo

test: lint
	$(BIN)/pytest -n auto -m "not slow"

test-slow: .venv/.test
	$(BIN)/pytest -n auto

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.core: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/.test: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@ .venv/.core

clean:
	rm -rf .venv demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
