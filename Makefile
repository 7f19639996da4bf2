# make demo    fit a real model with compiled derivatives
# make test    everything: formatting, lint, types, tests
#
# Both need nothing but Python 3.11+ and make: the virtual environment is made here.

PYTHON ?= python3
VENV   ?= .venv
PY      = $(VENV)/bin/python
# Setuptools' advice on editable installs is of no use here.
PIP     = PYTHONWARNINGS=ignore $(PY) -m pip install --quiet --disable-pip-version-check
JOBS   ?= 2
TESTS  ?= tests

.PHONY: help demo test lint format perf perf-full docs clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -n 4
	@echo "also: lint format perf perf-full docs clean"

demo: $(VENV)/.demo
	$(PY) -m perf.demo_logistic --picture demo.png

test: lint
	$(PY) -m pytest -n $(JOBS) $(TESTS)

lint: $(VENV)/.test
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

format: $(VENV)/.test
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

# The rivals side by side; those that are not installed are skipped with a note.
perf: $(VENV)/.perf $(VENV)-pytensor/.ready
	$(PY) -m perf --pytensor $(VENV)-pytensor/bin/python

perf-full: $(VENV)/.perf $(VENV)-pytensor/.ready
	$(PY) -m perf --full --pytensor $(VENV)-pytensor/bin/python

docs: $(VENV)/.docs
	$(PY) docs/build_api.py

clean:
	rm -rf $(VENV) $(VENV)-pytensor build dist *.egg-info docs/api perf/results demo.png
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis

# One environment; each stamp adds what its target needs to it.
$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "numgrad needs Python 3.11 or later; set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo $(VENV)/.test $(VENV)/.docs: $(VENV)/.%: $(VENV)/.venv pyproject.toml
	$(PIP) --editable '.[$*]'
	@touch $@

# PyTorch's default build for Linux brings gigabytes of GPU libraries, so it is not installed
# unasked: `make perf TORCH=torch==2.13.0`.
TORCH ?=
$(VENV)/.perf: $(VENV)/.venv pyproject.toml
	$(PIP) --editable '.[perf]' $(TORCH)
	@touch $@

# PyTensor pins an older Numba, so it lives apart.  Without it the benchmark still runs.
$(VENV)-pytensor/.ready:
	$(PYTHON) -m venv $(VENV)-pytensor
	-$(VENV)-pytensor/bin/python -m pip install --quiet pytensor numba scikit-learn
	@touch $@
