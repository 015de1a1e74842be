PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
ROOMS := agents cli controller evaluators experiments graph models nodes plugins prompts reports runs store values
QUICK := $(addprefix tests/,values controller prompts models store nodes graph paper) \
	$(addprefix --ignore tests/,graph/test_parallel.py graph/test_savers.py graph/test_closed_state.py \
	graph/test_flat_stop.py graph/test_questions.py graph/test_user_inputs.py nodes/test_ledger_machine.py \
	store/test_long_runs.py)
# A file is run by one process, which makes its fixtures once, in the order of collection.
PARALLEL := $(BIN)/pytest --dist loadscope --no-loadscope-reorder --numprocesses
# Tests wait for processes and clocks a third of their time.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() * 3 // 2)')
# Quiet twice: errors only, no warnings of the installer.
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet --quiet --no-deps
# Seven times as fast as pip, but it does not read pip's configuration.
UV := UV_SYSTEM_CERTS=true $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps
# Processes of candidates import these, and write no bytecode.
PRELOADED := import numpy, scipy; print(*numpy.__path__, *scipy.__path__)
# Type checkers find the package in `.types`, also from other folders. The second line keeps the
# interpreter at the checkout itself, so that no module has two paths.
TYPES_PTH := import pathlib, sysconfig; \
	pathlib.Path(sysconfig.get_path("purelib"), "costada_types.pth").write_text( \
	str(pathlib.Path(".types").resolve()) + "\nimport sys; sys.meta_path.sort(" \
	"key=lambda each: not getattr(each, \"__module__\", \"\").startswith(\"__editable__\"))\n")

.PHONY: help install demo reproduce reference docs quick test test-clusters coverage check editor format lock test-lowest test-highest release bench

help:  ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(READY): Makefile pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("CostAda needs Python 3.11 or newer, found " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo 'Creating the environment in .venv ...'
	@$(PYTHON) -m venv .venv
	@$(PIP) "$$(grep -o '^uv==[0-9.]*' requirements.lock)"
	@$(UV) --requirement requirements.lock && $(UV) --editable . || \
		{ echo 'Installing with pip instead ...' && $(PIP) --requirement requirements.lock && $(PIP) --editable .; }
	@$(BIN)/python -m compileall -q -j 0 $(ROOMS) __init__.py $$($(BIN)/python -c '$(PRELOADED)')
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -c 'import costada.cli.run, costada.runs.plan, langchain_openai'
	@mkdir -p .types && ln -sfn .. .types/costada
	@$(BIN)/python -c '$(TYPES_PTH)'
	@touch $@

install: $(READY)  ## Create the environment from the lock file

demo: install  ## Run circle packing with the offline model: no key, no network
	@$(BIN)/costada demo

reproduce: install  ## Compare all methods without a key, into reproduced/comparison.html
	$(BIN)/costada sweep --problems circle_packing,heilbronn_convex --methods all --seeds 2 \
		--budget 0.1,0.2 --out reproduced/offline
	$(BIN)/costada simulate --world credible --first-seed 200 --seeds 40 --out reproduced/family
	$(BIN)/costada simulate --seeds 100 --out reproduced/simulated
	$(BIN)/costada simulate --world recorded --seeds 100 --out reproduced/recorded
	$(BIN)/costada simulate --menu random --seeds 10 --out reproduced/menus
	$(BIN)/costada simulate --menu random --world recorded --seeds 10 --out reproduced/menus-recorded
	$(BIN)/costada theory --out reproduced/theory
	$(BIN)/costada compare reproduced --published

reference: install  ## Rewrite what the reference and the manual page take from the code
	$(BIN)/python docs/reference_tables.py
	$(BIN)/python docs/manual_page.py

docs: install  ## Build the documentation site, links checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

quick: install  ## Run the unit tests of the pure rooms and the graph; a minute
	$(PARALLEL) auto -m unit $(QUICK)

test: install  ## Run the test suite without clusters
	$(PARALLEL) $(WORKERS)

test-clusters: install  ## Run the tests that start Slurm, Dask, Postgres and containers; minutes
	.ci/slurm .ci/postgres $(BIN)/pytest -m cluster

coverage: install  ## Print the branch coverage of each room; slow
	$(PARALLEL) $(WORKERS) --cov --cov-report=json:.coverage.json
	$(BIN)/python tests/coverage_by_room.py .coverage.json

check: install  ## Lint, types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -m costada -m costada.__main__ $(ROOMS:%=-p costada.%)
	PYTHONPATH=.types $(BIN)/lint-imports

editor: install  ## Check that editors resolve all imports, with a downloaded pyright
	$(BIN)/uv tool run pyright

format: install  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: install  ## Resolve the lock file again
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --quiet \
		--generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock" \
		--output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --group build --extra dask --extra gateway --extra mcp \
		--extra postgres --constraint requirements.lock --universal --python-version 3.11 --quiet --generate-hashes \
		--no-emit-index-url --no-annotate --custom-compile-command "make lock" \
		--output-file deploy/requirements.lock

test-lowest: install  ## Run the suite with the lowest versions that the ranges allow
	.ci/resolution lowest-direct

test-highest: install  ## Run the suite with the newest versions that the ranges allow
	.ci/resolution highest

release: install  ## Build and check a release, install it from a local index and run the demo
	.ci/release $(TAG)

bench: install  ## Print the measured ratios and what the offline model reaches
	$(BIN)/python bench/overhead.py
	$(BIN)/python bench/evaluations.py
	$(BIN)/python bench/holdout.py
	$(BIN)/python bench/offline_seeds.py
