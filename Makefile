# Every target sets up .venv first; there is no other set-up step.
.PHONY: help setup demo tour test test-tools lint format coverage walk bench growth soak docs man plugin lock clean
.DEFAULT_GOAL := help
BIN := .venv/bin

help:
	@echo "make demo    create a small shop with agents, serve the forge and print its link"
	@echo "make tour    show all parts of clia in a terminal, then serve them"
	@echo "make test    install what the tests need and run all tests"
	@echo "make test-tools  install real coding tools (2 GB in a cache) and test with them"
	@echo "make coverage  run the tests of the library and check branch coverage"
	@echo "make lint    style, types, layers, sizes"
	@echo "make walk    count the modules that six journeys import and execute"
	@echo "make bench   measure speed, as ratios to a floor in the same run (PEERS=1: and to peers)"
	@echo "make growth  measure spaces of up to 100,000 agents (more than ten minutes)"
	@echo "make soak    run the long versions of property, load and fault tests"
	@echo "make docs    regenerate the reference and build the site"
	@echo "make man     write a manual page of each command to build/man"
	@echo "make plugin  build the plug-in for Claude Code in build/plugin"
	@echo "make lock    update the locked packages"

setup:
	@tools/setup.sh

demo: setup
	@$(BIN)/clia demo $(ARGS)

tour: setup
	@$(BIN)/python tools/tour.py $(ARGS)

test: setup
	@$(BIN)/python tools/run_tests.py $(ARGS)

test-tools: setup
	@$(BIN)/python tools/test_tools.py $(ARGS)

coverage: setup
	@$(BIN)/python tools/run_tests.py --coverage $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/sizes.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

walk: setup
	@$(BIN)/python tools/walk.py $(ARGS)

bench: setup
	@$(if $(PEERS),$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/bench.txt)
	@$(BIN)/python -m compileall -q src
	@$(BIN)/python benchmarks/run.py $(ARGS)

growth: setup
	@$(BIN)/python -m compileall -q src
	@$(BIN)/python benchmarks/growth.py $(ARGS)

soak: setup
	@$(BIN)/python tools/run_tests.py --soak $(ARGS)

docs: setup
	$(BIN)/python tools/reference.py
	$(BIN)/mkdocs build --strict --quiet
	@echo "docs: site/index.html"

man: setup
	@$(BIN)/python tools/man_pages.py

plugin: setup
	@$(BIN)/python tools/plugin.py

lock: setup
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml --extra all -o requirements/runtime.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml --extra all --group dev -o requirements/dev.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml --extra all --extra bench -o requirements/bench.txt
	$(BIN)/python tools/assets.py --lock

clean:
	rm -rf .venv build dist site assets/node_modules src/clia/forge/static/vendor .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage*
