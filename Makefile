# Everything a newcomer needs: `make demo`, `make test`. Both set up .venv by themselves.
PY ?= python3
BIN := .venv/bin
PACKAGE := .venv/.package
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# A module's tests stay in one process: what it sets up is set up once. Programs that tests start find the package compiled.
# Files that take long begin first (tests/conftest.py).
# What took longest is said at the end: what is to become cheaper, or to be marked slow (CONTRIBUTING.md).
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --dist loadfile --no-loadscope-reorder --durations 25 --durations-min 2
# Slow tests often wait, for a browser, a server, another program: one more of them than there are cores.
MORE := $(shell $(PY) -c "import os; print((os.cpu_count() or 1) + 1)")

.PHONY: setup package test test-all lint types quick slow unit torch-env demo bench bench-check bench-rows bench-tools bench-across bench-scale bench-serve bench-hang reliability promises hook-cost diagnoses fuzz matrix sbom page pictures docs docs-serve clean

# stepscope alone is what `make demo` needs; everything else adds the tools of a developer to the same environment.
package: $(PACKAGE)

$(PACKAGE): pyproject.toml
	$(PY) -m venv .venv
	$(PIP) --no-compile -e .
	touch $@

setup: $(STAMP)

$(STAMP): $(PACKAGE)
	$(PIP) --upgrade "pip>=25.1"
	$(PIP) --group dev -e .
	touch $@

# Lint, types, and the tests that are not marked slow: some minutes on two cores. mypy has one core; it runs beside the tests.
test: lint
	@$(MAKE) --no-print-directory --keep-going -j2 types quick

# Lint, types and every test.
test-all: lint types unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

quick: setup
	$(PYTEST) -n auto -m "not slow"

# What `quick` leaves out. The two together are `unit`.
slow: setup torch-env
	$(PYTEST) -n $(MORE) -m slow

unit: setup torch-env
	$(PYTEST) -n $(MORE)

# torch for the tests of capture, in an environment of its own. Where it cannot be had, those tests are skipped.
# It is a large download: by default only CI makes it. TORCH_ENV=yes or no decides otherwise.
TORCH_ENV ?= $(if $(CI),yes,no)
torch-env: setup
	@if [ "$(TORCH_ENV)" = yes ] && [ ! -f .venv-torch/.installed ]; then \
	  $(PY) -m venv .venv-torch && \
	  timeout 600 .venv-torch/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1" && \
	  timeout 600 .venv-torch/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
	    --group capture-tests && \
	  { timeout 600 .venv-torch/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
	    --group capture-trainers || echo "no trainers here: their tests will be skipped"; } && \
	  touch .venv-torch/.installed || echo "no torch here: the tests that need it will be skipped"; \
	fi

demo: package
	$(BIN)/stepscope demo

# The goals of docs/performance.md, each as a ratio measured in one run, written there; the same of an earlier commit.
# It takes some minutes; ARGS=--print writes nothing. Needs nsys and `make bench-tools` for what it compares with.
bench: setup
	$(BIN)/python bench/performance.py $(ARGS)

# Simulated hangs judged by stepscope and by torchfrtrace (with torch in .venv-torch); ARGS="--count 1000 --jobs 2 --write" for docs/hang.md.
bench-hang: setup
	$(BIN)/python bench/hang.py $(ARGS)

# Did a change make something slower? Ratios beside those of bench/baseline.json; ARGS=--save writes them there.
bench-check: setup
	$(BIN)/python bench/check.py $(ARGS)

# Time and memory of more than has a goal, beside other tools; 512 ranks after everything else.
# ARGS="trace.sqlite …" measures those traces; see `make bench-rows ARGS=--help`.
bench-rows: setup
	$(BIN)/python bench/bench.py $(ARGS)

# The tools that the benchmark compares with, each in an environment of its own.
bench-tools:
	for tool in traceinsight==0.6.1 nsys-ai==0.3.0; do \
	  $(PY) -m venv .bench/venvs/$${tool%%==*} && \
	  .bench/venvs/$${tool%%==*}/bin/python -m pip install --quiet --disable-pip-version-check $$tool || exit 1; \
	done

# Time and memory of questions across ranks: `make bench-rows` has 64 and 512 of them, this 128 and 256 too.
bench-across: setup
	$(BIN)/python bench/across.py $(ARGS)

# Ten thousand rank files, and traces of shapes that no program should have: is time linear, does anything hang?
# ARGS=quick is a part of it, some minutes. It writes tests/reliability/results/scale.json.
bench-scale: setup
	$(BIN)/python bench/scale.py $(ARGS)

# A served trace of two million ops: in Chromium, and under 200 clients and as many slow ones.
bench-serve: setup
	$(BIN)/python bench/serve.py $(ARGS)

# Many simulated jobs with a known truth: every script of tests/reliability in turn, about an hour.
# ARGS=quick takes a part of each, a few minutes; ARGS="full compare" is one script.
reliability: setup
	$(BIN)/python tests/reliability $(ARGS)

# What `diagnose` promises for a fault, and what taking it away gave. By default a part of it, printed, a few minutes;
# ARGS=full is all of it, about half an hour, and writes docs/promises.md.
promises: setup
	$(BIN)/python tests/promises $(ARGS)

# What the hooks of `capture run` cost a step while nothing is recorded; needs torch: ARGS="--python PYTHON".
hook-cost: setup
	$(BIN)/python tests/capture/hook_cost.py $(ARGS)

# The table of docs/diagnoses.md: what `diagnose` says of every trace in ../shared, beside a person's reading.
diagnoses: setup
	$(BIN)/python docs/readings.py

# Damaged inputs by the thousand: `make fuzz ARGS="--count 2000 --seed 1"`. Only answers and errors in one line come out.
# ARGS="--count 100000 --save" is the long run of docs/reliability.md; ARGS="--guided snapshot" takes atheris.
# ARGS="--good --count 20000 --save" asks undamaged traces with any options, ARGS="--relations --save" tries changes with a known effect.
fuzz: setup
	$(BIN)/python tests/fuzz/mutants.py $(ARGS)

# The wheel on every Python that is here, with the oldest and newest packages: the tables of docs/packaging.md, some
# minutes a Python. ARGS="--python PATH --oldest" is one cell, ARGS=--extras each extra alone.
matrix: setup
	$(BIN)/python tests/packaging/matrix.py $(ARGS)

# What is installed with stepscope and with each extra, as CycloneDX: dist/sbom.
sbom: setup
	$(BIN)/python tests/packaging/sbom.py

# The report's page, from its TypeScript into the package. It needs Node; users do not.
page:
	cd page && npm ci --ignore-scripts --no-audit --no-fund && npm run types && npm run unit && npm run build

# The pictures of the README and of docs/, after the page has changed. It needs Node and Chromium.
pictures: setup
	$(BIN)/python docs/pictures.py

# What is generated: pages of docs/, output of the commands that they show, the tables of the README, the pinned columns.
# Then the site, in site/html.
docs: setup
	$(BIN)/python docs/generate.py
	$(BIN)/pytest tests/test_columns.py tests/nsys/recipes/test_recipe_columns.py --update-golden
	$(BIN)/python docs/build_site.py

# The site at http://localhost:8000, built again when a page changes.
docs-serve: setup
	$(BIN)/python docs/build_site.py --serve

clean:
	rm -rf site page/node_modules .venv .venv-torch .bench .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
