# Two commands for a newcomer: `make train` and `make test`. Everything else is for developers.
#   make train ARGS="--steps 200"    arguments of `isthmus train`

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
PIP     = $(1)/bin/python -m pip install --quiet --disable-pip-version-check

.PHONY: train test test-all bench lint docs clean
.DEFAULT_GOAL := help

.PHONY: help
help:
	@sed -n 's/^# \{0,1\}//p' Makefile
	@echo "targets: train test test-all bench lint docs clean"

# The core install: no PyTorch, no compiler.
$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(call PIP,$(VENV)) --editable .
	@touch $@

# All that the tests need: PyTorch for capture and parity, and the test tools.
$(VENV)-test/.all: pyproject.toml
	$(PYTHON) -m venv $(VENV)-test
	$(call PIP,$(VENV)-test) --editable '.[torch,test]'
	@touch $@

train: $(VENV)/.core
	$(VENV)/bin/isthmus train $(ARGS)

test: $(VENV)-test/.all
	$(VENV)-test/bin/python -m pytest -n 2 --dist worksteal -q -m "not slow" $(ARGS)

test-all: $(VENV)-test/.all
	$(VENV)-test/bin/python -m pytest -n 2 --dist worksteal -q $(ARGS)

bench: $(VENV)-test/.all
	$(VENV)-test/bin/python -m benchmarks $(ARGS)

lint: $(VENV)-test/.all
	$(VENV)-test/bin/ruff check .
	$(VENV)-test/bin/ruff format --check .
	$(VENV)-test/bin/pyright --pythonpath $(VENV)-test/bin/python
	$(VENV)-test/bin/lint-imports

docs: $(VENV)-test/.all
	$(VENV)-test/bin/python -m isthmus.ir.document
	$(VENV)-test/bin/python -m isthmus.ops.document

clean:
	rm -rf $(VENV) $(VENV)-test build dist
