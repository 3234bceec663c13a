# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

# The oldest versions that pyproject.toml allows, in an environment of their own.
OLDEST_PYTHON ?= $(PYTHON)
OLDEST_VENV   ?= .venv-oldest
OLDEST_BIN    := $(OLDEST_VENV)/bin

# Bytecode is kept, whatever the environment says: without it every start compiles all tests again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test pytest test-oldest test-all docs lint typecheck format clean help

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/'

# The stamps make a second run skip the installation; they are renewed when the requirements change.
$(VENV)/.base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

# Python compiles what the tests import, which is a small part of all that is installed: a minute less.
$(VENV)/.dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev]"
# dlordinal pins a CUDA torchvision it does not need for its soft labels, our oracle
	$(BIN)/python -m pip install --quiet --no-deps "dlordinal>=2.7,<3"
	touch $@ $(VENV)/.base

$(OLDEST_VENV)/.dev: pyproject.toml constraints.txt tests/oldest.py
	test -x $(OLDEST_BIN)/python || $(OLDEST_PYTHON) -m venv $(OLDEST_VENV)
	$(OLDEST_BIN)/python -m pip install --quiet --no-deps --editable .
	$(OLDEST_BIN)/python tests/oldest.py > $(OLDEST_VENV)/constraints.txt
	$(OLDEST_BIN)/python -m pip install --quiet --constraint constraints.txt --constraint $(OLDEST_VENV)/constraints.txt --editable ".[dev]"
	$(OLDEST_BIN)/python -m pip install --quiet --no-deps "dlordinal>=2.7,<3"
	touch $@

demo: $(VENV)/.base  ## what wrong labels do and what srjt does about them, on synthetic images
	$(BIN)/srjt demo

# mypy without its cache keeps one core busy for most of a minute: the tests begin beside it.
test: $(VENV)/.dev  ## style, types and the test suite
	$(MAKE) --no-print-directory --jobs=2 lint typecheck pytest

pytest: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-oldest: $(OLDEST_VENV)/.dev  ## the test suite with the oldest versions that pyproject.toml allows (torch as installed)
	$(OLDEST_BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

# Three processes on two cores: many tests wait for a browser, a cluster or a program that they have started.
test-all: $(VENV)/.dev  ## the tests that take longer or need other programs: wheel, browser, cluster, documentation
	$(BIN)/python -m pytest -n 3 --dist loadfile -m slow

docs: $(VENV)/.dev  ## the documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "To read it: open build/site/index.html"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/feature.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff

typecheck: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev  ## let ruff tidy the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:           ## remove the environments and caches
	rm -rf $(VENV) $(OLDEST_VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
