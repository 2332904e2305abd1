# Everything starts from a fresh machine with Python 3.11+, a C compiler and make. `make` prints:
#
#   make demo      trains a classifier with equinox.filter_jit and with filterjit, and compares:
#                  examples/demo.py
#   make test      the tests, without the slow ones and with a sample of the largest
#   make demo-distributed  trains on 8 devices, in one process and in 4
#
# and for those who work on it:
#
#   make test-slow the tests that `make test` leaves out
#   make test-core the tests of the C core, which need neither JAX nor Equinox: some 110 seconds of
#                  processor time, so a minute or two on two free cores;
#                  PYTEST_ARGS=tests/core/call/test_wrappers.py runs that file alone
#   make lint      formatting, layers, types and stubs
#   make docs      builds the site into build/site; a warning or a broken link is an error
#   make bench     the tables of docs/benchmarks.md: filterjit and its peers, as ratios
#   make fuzz      compares 100,000 random calls with an oracle; FUZZ_ARGS has options
#   make mutants   MUTANTS_ARGS='csrc/walk tests/core/walk': changes that these tests do not notice
#   make sanitize  the core's tests under gcc's address and undefined-behaviour sanitizers
#   make valgrind  some of the core's tests under valgrind
#   make tsan      the core's tests of threads under gcc's thread sanitizer
#   make coverage  the lines of csrc/ that the core's tests reach, and those that they do not
#   make analyze   gcc -fanalyzer and clang-tidy
#   make versions  all tests on CPython 3.11 to 3.15, each with the newest JAX
#   make every-jax the README's program, ratios and some tests with JAX 0.4.38 to the newest
#   make peer-tests  PEER=lineax: the tests of a peer, as they are and with filterjit in place;
#                  PEER_ARGS='-n 4' goes to pytest
#   make windows-check  compiles the core for Windows, with clang; runs nothing
#   make sdist     builds the sdist and runs tests from it
#   make instructions  counts the core's instructions and holds them to bounds
#   make clean     removes what the commands above have made

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# pytest keeps what it has made of the sources, whatever the shell says of other programs.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

C_FILES := $(wildcard csrc/*.c csrc/*/*.c csrc/*/*.h) tests/core/testing.c
SOURCES := $(C_FILES) setup.py pyproject.toml

# Tests that PYTEST_ARGS names run alone.
NAMED := $(filter tests/%,$(PYTEST_ARGS))

.PHONY: help demo demo-distributed test test-slow test-core lint docs bench fuzz mutants sanitize valgrind tsan coverage analyze versions every-jax peer-tests instructions windows-check sdist clean

help:
	@sed -n '1d;/^$$/q;s/^# \{0,1\}//p' Makefile

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py 6000 demo.svg

demo-distributed: $(VENV)/.installed
	$(BIN)/python examples/distributed.py
	$(BIN)/python examples/distributed.py --processes 4

test: $(VENV)/.installed
	$(PYTEST) -m "not slow$(if $(NAMED),, and not thorough)" $(PYTEST_ARGS)

test-slow: $(VENV)/.installed
	$(PYTEST) -m "slow or thorough" $(PYTEST_ARGS)

# In an environment without filterjit's dependencies.
test-core: build/core/.installed
	FILTERJIT_TESTING=1 FILTERJIT_CFLAGS="-Werror $(FILTERJIT_CFLAGS)" build/core/bin/python setup.py \
		-q build_ext --force --build-lib build/core/lib --build-temp build/core/temp
	FILTERJIT_CORE_DIR=$(CURDIR)/build/core/lib build/core/bin/python -X faulthandler -m pytest \
		-p no:cacheprovider -n auto --maxprocesses 4 $(if $(NAMED),,-m "not slow" tests/core) $(PYTEST_ARGS)

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/dispatch.py $(BENCH_ARGS)

fuzz: $(VENV)/.installed
	$(BIN)/python tests/fuzz/long.py $(FUZZ_ARGS)

mutants: $(VENV)/.installed $(VENV)/.mutants
	$(BIN)/python .ci/mutants $(MUTANTS_ARGS)

lint: $(VENV)/.installed $(VENV)/.lint
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	.ci/layers
	! git grep -nE '(\.\./|parent / ")share[d]' # nothing outside of the repository
	$(BIN)/lint-imports --no-logo
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest --mypy-config-file pyproject.toml filterjit._core
	$(BIN)/mypy --config-file tests/typed/mypy.ini tests/typed/uses.py
	$(BIN)/basedpyright -p tests/typed --pythonpath $(BIN)/python

docs: $(VENV)/.installed $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo built $(CURDIR)/build/site/index.html

coverage: $(VENV)/.gcovr

sanitize valgrind tsan coverage instructions sdist: $(VENV)/.installed
	PYTHON=$(BIN)/python .ci/$@ $(CI_ARGS)

analyze: $(VENV)/.installed $(VENV)/.lint
	PYTHON=$(BIN)/python .ci/$@

windows-check:
	.ci/windows $(CI_ARGS)

versions:
	.ci/pythons

every-jax:
	.ci/every_jax $(CI_ARGS)

peer-tests: $(VENV)/.peers
	$(BIN)/python .ci/peer_tests $(PEER) $(PEER_ARGS)

$(VENV)/.installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	FILTERJIT_TESTING=1 $(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

build/core/.installed:
	$(PYTHON) -m venv build/core
	build/core/bin/python -m pip install --quiet --disable-pip-version-check \
		hypothesis 'pytest>=9' 'pytest-xdist>=3.7' 'setuptools>=77'
	touch $@

$(VENV)/.lint: pyproject.toml | $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[lint]'
	touch $@

$(VENV)/.peers: pyproject.toml | $(VENV)/.installed
	$(BIN)/python -m pip install --quiet beartype scipy tqdm
	touch $@

$(VENV)/.mutants: pyproject.toml | $(VENV)/.installed
	$(BIN)/python -m pip install --quiet universalmutator
	touch $@

$(VENV)/.gcovr: pyproject.toml | $(VENV)/.installed
	$(BIN)/python -m pip install --quiet gcovr
	touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) build dist demo.svg python/*.egg-info python/filterjit/*.so
