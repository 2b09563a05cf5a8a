# `make run` installs and starts Hermes; `make test` runs every check and test.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
TESTS  ?= tests

# With this variable set, every run would recompile all modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run install dev test check format lint types layers names unit packages suite typed quick seeds clients public bench compare walk mutants demo soak specs docs pictures lock clean

# Ctrl+C in the program is not an error of make.
run: install
	@trap : INT; $(BIN)/hermes || [ $$? -eq 130 ]

help:
	@echo 'make run      install into .venv, then start the chat'
	@echo 'make install  install without starting'
	@echo 'make test     all checks and tests'
	@echo 'make check    the fast checks and tests'
	@echo 'make clients  run real clients of the API; installs them from the network'
	@echo 'make public   share a home with the public system; installs it from the network'
	@echo 'make bench    measure speed and memory'
	@echo 'make docs     build the documentation as a site in build/site'
	@echo 'make demo     run everyday tasks with the small local model'
	@echo 'make clean    delete .venv and caches; your ~/.hermes stays'

install: $(VENV)/.run
dev: $(VENV)/.dev

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Hermes needs Python 3.11 or newer; $(PYTHON) is older, or not there. Try: make PYTHON=python3.12"; exit 1; }
	@echo "Installing into $(VENV); this takes about half a minute."
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.run: $(VENV)/.python requirements/run.txt pyproject.toml
	$(PIP) install --require-hashes --no-deps -r requirements/run.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src/hermes
	touch $@
	@echo 'Installed. The program is .venv/bin/hermes; to call it hermes: export PATH="$(CURDIR)/$(BIN):$$PATH"'

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	$(PIP) install --require-hashes --no-deps -r requirements/dev.txt
	touch $@

test: dev format lint layers names
	$(MAKE) --no-print-directory --jobs 2 suite types
	$(MAKE) --no-print-directory seeds

check: dev
	$(MAKE) --no-print-directory --jobs 2 quick format lint layers names typed

# Some tests use a real browser and servers of mail, IRC, XMPP and SSH; they are installed where possible.
packages:
	sh scripts/packages.sh

# Four workers keep two cores busy while tests wait.
suite: packages .venv-synapse/.installed
	$(BIN)/pytest --jobs 4 $(TESTS)

# The Matrix homeserver of the tests, with its own packages.
.venv-synapse/.installed: $(VENV)/.dev requirements/synapse.txt
	@echo "Installing Synapse for the tests into .venv-synapse; this takes about a minute."
	$(PYTHON) -m venv --clear --without-pip .venv-synapse
	$(PIP) --python .venv-synapse/bin/python install --require-hashes --no-deps -r requirements/synapse.txt
	touch $@

format:
	$(BIN)/ruff format --check .

lint:
	$(BIN)/ruff check .
	$(BIN)/python scripts/function_lengths.py

types:
	$(BIN)/basedpyright -p .
	$(BIN)/python scripts/page_types.py

# Check only the files that changes since the last successful check can affect.
typed:
	$(BIN)/python scripts/typed.py

layers:
	$(BIN)/lint-imports --no-cache

names:
	$(BIN)/python scripts/names.py

unit:
	$(BIN)/pytest --jobs 2 tests/unit

# Unit tests without the slow ones, with fewer hypothesis examples, and with temporary files in
# memory if there is room. `make test` runs all of them, on disk.
quick:
	PYTEST_DEBUG_TEMPROOT=$$(sh scripts/memory.sh) $(BIN)/pytest --jobs 3 -m 'not soak and not slow' --hypothesis-profile quick -o faulthandler_timeout=0 tests/unit

seeds: dev
	sh scripts/seeds.sh

# Install real clients under ~/.cache/hermes-clients, run them against a gateway and print a table.
# CLIENTS names some of them: make clients CLIENTS='litellm "codex CLI"'
clients: dev
	PYTHONPATH=tests $(BIN)/python -m clients $(CLIENTS)

# Install the public system into .venv-public, from the network, and share a home with it.
public: dev .venv-public/.installed
	$(BIN)/pytest -m soak tests/integration/app/test_public_round_trip.py

.venv-public/.installed:
	$(PYTHON) -m venv .venv-public
	.venv-public/bin/python -m pip --disable-pip-version-check --quiet install hermes-agent==0.19.0
	touch $@

# PARTS names some of them: make bench PARTS='web board'
bench: dev
	PYTHONPATH=tests $(BIN)/python -m bench $(PARTS)

# Compare a one-shot run with the public system, nanobot and openclaw; installs them from the network.
compare: dev
	$(BIN)/python -m bench.compare

# Print the functions and stack frames on the way of a message through the program.
walk: dev
	$(BIN)/python -m bench.walk

# Plant the bugs in tests/mutants one by one; the tests must find each of them.
mutants: dev
	$(BIN)/python scripts/mutants.py

# Run everyday tasks with the embedded model; downloads 1.1 GB the first time.
demo: dev
	$(BIN)/python -m demo

soak: dev .venv-synapse/.installed
	$(BIN)/pytest -m soak --hypothesis-profile soak tests
	$(BIN)/pytest -m hypothesis --hypothesis-profile soak tests/unit

# Generate specs.json, the tool specs sent to the model; a test fails if it is out of date.
specs: dev
	$(BIN)/python scripts/specs.py

# Draw the pictures of the terminal UI and the web page in the documentation.
pictures: dev
	$(BIN)/python scripts/screens.py
	PYTHONPATH=tests:scripts $(BIN)/python scripts/animation.py
	PYTHONPATH=tests $(BIN)/python scripts/web_screens.py

# Write the reference from the code, then build the documentation as a site in build/site.
docs: dev
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/site.py

# Pin every dependency with its hashes, without index URLs. Of axe-playwright-python only the file axe.min.js is used.
lock: dev
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate pyproject.toml requirements/build.in -o requirements/run.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate pyproject.toml requirements/build.in --extra recall --extra mcp --extra dev --no-emit-package playwright --no-emit-package greenlet --no-emit-package pyee -o requirements/dev.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/local.in -o src/hermes/models/embedded/engine.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/synapse.in -o requirements/synapse.txt

clean:
	rm -rf $(VENV) .venv-synapse .pytest_cache .ruff_cache .hypothesis
