# Everything starts from a fresh machine with Python 3.11+, a C compiler and make:
#
#   make demo      trains a classifier on equinox.filter_jit and on ours, and compares
#   make test      all tests
#
# and for those who work on it:
#
#   make test-core the tests of the C core, which need neither JAX nor Equinox: half a minute
#   make lint      formatting, layers, types and stubs
#   make bench     the table of the README, and more
#   make fuzz      100,000 random calls against an oracle; more by FUZZ_ARGS
#   make sanitize  the core's tests under gcc's address and undefined-behaviour sanitizers
#   make valgrind  some of them under valgrind
#   make tsan      those with threads under gcc's thread sanitizer
#   make coverage  how much of csrc/ they reach, and what they do not
#   make analyze   gcc -fanalyzer and clang-tidy
#   make versions  the core's tests on each CPython that pyenv has
#   make wheels    sdist and wheels for each CPython that is there, tested, in dist/
#   make sdist     builds the sdist, and runs tests from it
#   make instructions  holds the instructions that the core takes to their bounds
#   make clean     forgets all that the above has made

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

C_FILES := $(wildcard csrc/*.c csrc/*/*.c csrc/*/*.h)
SOURCES := $(C_FILES) setup.py pyproject.toml

.PHONY: demo test test-core lint bench fuzz sanitize valgrind tsan coverage analyze versions instructions wheels sdist clean

demo: $(VENV)/.installed
	$(BIN)/python -m filterjit demo

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(PYTEST_ARGS)

test-core:
	.ci/core_tests $(PYTHON) build/core -n auto --maxprocesses 4 tests/core $(PYTEST_ARGS)

bench: $(VENV)/.installed
	$(BIN)/python -m filterjit bench $(BENCH_ARGS)

fuzz: $(VENV)/.installed
	$(BIN)/python tests/fuzz/long.py $(FUZZ_ARGS)

lint: $(VENV)/.installed $(VENV)/.lint
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	.ci/layers
	$(BIN)/lint-imports --no-logo
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest filterjit._core

sanitize valgrind tsan coverage instructions sdist: $(VENV)/.installed
	PYTHON=$(BIN)/python .ci/$@ $(CI_ARGS)

analyze: $(VENV)/.installed $(VENV)/.lint
	PYTHON=$(BIN)/python .ci/$@

versions wheels:
	.ci/$@

$(VENV)/.installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	FILTERJIT_TESTING=1 $(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

$(VENV)/.lint: pyproject.toml | $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[lint]'
	touch $@

clean:
	rm -rf $(VENV) build dist python/*.egg-info python/filterjit/*.so
