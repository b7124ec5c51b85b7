# Everything runs from `.venv`, which `make setup` builds; see scripts/set_up.py.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup rebuild-llama start test test-openclaw test-nf4 check

help: ## say what can be made
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: ## build .venv, or bring it up to date
	@$(PYTHON) scripts/set_up.py

rebuild-llama: ## compile llama.cpp again
	@$(PYTHON) scripts/set_up.py --rebuild-llama

start: setup ## set up and start clawd in the foreground
	$(BIN)/python -m clawd start

check: setup ## style, format, types
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

test: check ## set up, check, and run the tests
	$(BIN)/python -m pytest

test-openclaw: setup ## run the tests with a real OpenClaw and JavaScript clients; fetches 900 MB from npm once
	@command -v npm >/dev/null || { echo "npm is missing: on Debian, apt-get install npm" >&2; exit 1; }
	$(BIN)/python -m pytest -m "openclaw or node"

# Beside .venv and not in it: PEFT imports bitsandbytes wherever it finds it, and every update would pay for that.
test-nf4: setup ## run the tests of training over nf4; fetches 125 MB once
	@test -d .venv/nf4 || $(BIN)/python -m pip install --no-deps --target .venv/nf4 --constraint constraints-cpu.txt bitsandbytes
	PYTHONPATH=.venv/nf4 $(BIN)/python -m pytest tests/learner/test_update_nf4.py
