# `make help` lists the targets. Each one first sets up .venv, and again whenever requirements.txt
# changed, so that `make book` and `make test` are all a fresh machine needs.
PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
READY := $(VENV)/.ready
COURSE ?= _build/assignments
CORES := $(shell $(PYTHON) -c "import os; print(os.cpu_count() or 1)")

.DEFAULT_GOAL := help
.PHONY: help book test chapter assignments slides bench serve notebook lint clean address browser

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(READY): requirements.txt setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 10) else "Python 3.10 or newer is needed, this is %d.%d: make PYTHON=/path/to/python3.11 ..." % v[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	$(BIN)/python -c "from pathlib import Path; Path('$(READY)').touch()"

book: $(READY) ## execute every notebook and build the web book: _build/html/index.html
	$(BIN)/jupyter-book build . -W --keep-going -n

test: $(READY) browser lint ## check the library, every notebook, and the built pages in a browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/unit -n $(CORES)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --nbval-lax book -n $(CORES) --dist loadfile
	$(MAKE) book
	$(BIN)/python -m pytest tests/book

chapter: $(READY) ## check one chapter by the name of its file: make chapter CH=sphere
	@test -f "$(wildcard book/*/$(CH).ipynb)" || { echo "say which: make chapter CH=sphere, for book/partial-causal-model/sphere.ipynb"; exit 2; }
	$(BIN)/ruff check $(wildcard book/*/$(CH).ipynb)
	$(BIN)/ruff format --check $(wildcard book/*/$(CH).ipynb)
	$(BIN)/python -m pytest -q tests/book/test_notebooks.py -k "[$(CH)]"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --nbval-lax $(wildcard book/*/$(CH).ipynb)

assignments: $(READY) ## write the students' homework to COURSE/release: make assignments COURSE=../my-course
	$(BIN)/python book/tools/assignments.py "$(COURSE)"

slides: $(READY) ## show a chapter as slides, in _build/slides: make slides CH=sphere
	@test -f "$(wildcard book/*/$(CH).ipynb)" || { echo "say which: make slides CH=sphere, for book/partial-causal-model/sphere.ipynb"; exit 2; }
	$(BIN)/python book/tools/slides.py $(wildcard book/*/$(CH).ipynb) _build/slides/$(CH).html

bench: $(READY) ## time the library: rendering, and embedding and ICA against their peers
	$(BIN)/python -m tutorials_lib.bench_scenes
	$(BIN)/python -m tutorials_lib.bench_embedding
	$(BIN)/python -m tutorials_lib.bench_ica

lint: $(READY) ## style of the code and of the notebooks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

serve: book ## build the book and open it in a browser, at http://localhost:8000
	$(BIN)/python book/tools/serve.py _build/html

notebook: $(READY) ## open the chapters in JupyterLab
	$(BIN)/jupyter lab book

address: $(READY) ## set the repository's web address everywhere: make address URL=https://github.com/you/your-book
	@test -n "$(URL)" || { echo "say which: make address URL=https://github.com/you/your-book"; exit 2; }
	$(BIN)/python book/tools/setup_cell.py address "$(URL)"

browser: # the page tests need Chromium or Chrome; install it where one command does that
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then :; \
	elif [ -f /etc/debian_version ] && [ "$$(id -u)" = 0 ]; then apt-get update -qq && apt-get install -qq -y chromium >/dev/null; \
	elif [ -f /etc/debian_version ] && sudo -n true 2>/dev/null; then sudo apt-get update -qq && sudo apt-get install -qq -y chromium >/dev/null; \
	else echo "No Chromium found: the page tests will be skipped. Install Chromium or Chrome to run them."; fi

clean: ## remove the built book, its execution cache and .venv
	$(PYTHON) -c "import shutil; [shutil.rmtree(d, ignore_errors=True) for d in ('_build', '$(VENV)', '.pytest_cache', '.ruff_cache', '.hypothesis', 'tutorials_lib.egg-info')]"
