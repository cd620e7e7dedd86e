# make run | test | check | format | clean.  PYTHON=python3.12 picks the interpreter, ARGS="--cp-size 2" goes to `dsa-cp run`.
PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help run test check format clean

help:
	@echo "make run     the path on the default trace, in all four cells (ARGS=... are passed on)"
	@echo "make test    all of make check, and tests: what CI runs"
	@echo "make check   format, lint, types, contract lock and house rules only"
	@echo "make format  rewrite the code in the house format"
	@echo "make clean   remove $(VENV) and caches"

run: $(STAMP)
	@$(BIN)/dsa-cp run $(ARGS)

# Two workers on one thread each: more threads than cores only slow the tests down.
test: check
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs -n 2

check: $(STAMP)
	@$(BIN)/ruff format --check --quiet . || { echo "format differs; make format rewrites it"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/dsa-cp review --against contracts.lock.json --locked
	@$(BIN)/dsa-cp review --self

format: $(STAMP)
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format .

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than 3.11; name a newer one: make PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (once; again when pyproject.toml or constraints.txt changes)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[test,prove]'
	@touch $@

clean:
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
