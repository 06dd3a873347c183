# make demo      train TSM on clips that it makes itself       make test      the fast tests (minutes)
# make setup     .venv with all four frameworks, for CPUs      make test-all  every test, as CI runs them
# make lint      ruff and mypy                                 make clean     remove .venv and .venv-*
# make setup-gpu FRAMEWORK=torch                               .venv-torch for NVIDIA GPUs; or paddle, mindspore, jax
# make test-card GPU builds of PyTorch and MindSpore without a GPU (.venv-card; x86-64 Linux with gcc, Python 3.11)
# make gpu-check what a GPU can show in ten minutes, in one archive; ARGS="--minutes 30"
PYTHON ?= $(or $(shell for v in 3.11 3.12 3.13; do python$$v -c "" 2>/dev/null && echo python$$v && break; done),\
    $(error Python 3.11, 3.12 or 3.13 is needed: make $@ PYTHON=/path/to/python3))
PIP = $(@D)/bin/python -m pip --disable-pip-version-check
INSTALL = $(PIP) install --quiet --require-hashes --no-deps
PYTEST = .venv/bin/python -m pytest -n logical --dist loadfile --no-loadscope-reorder

# Tests start hundreds of processes, each of which would compile the project anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo setup setup-gpu lint test test-all test-card docs gpu-check clean

demo: .venv/.torch
	.venv/bin/python train.py -c configs/tsm_demo.yaml --amp

setup: .venv/.all

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

test: setup
	$(PYTEST) -m "not slow and not card"

test-all: setup
	$(PYTEST) -m "not card"

test-card: setup .venv-card/.installed
	$(PYTEST) -m card tests/card

.venv/.torch: pyproject.toml requirements/torch.txt requirements/torch-cpu.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(INSTALL) -r requirements/torch.txt
	$(INSTALL) --retries 1 -r requirements/torch-cpu.txt || \
	  { echo "PyTorch's index, which has builds for CPUs, cannot be reached: PyPI has one for GPUs, 6 GB"; $(INSTALL) -r environments/torch.lock; }
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.venv/.all: .venv/.torch requirements/all.txt requirements/torchvision-cpu.txt
	$(INSTALL) -r requirements/all.txt
	@$(PIP) show --quiet mindspore 2>/dev/null || echo "MindSpore is left out: it has no wheel for this Python, but for 3.11 and 3.12"
	@.venv/bin/python -c "import torchvision" 2>/dev/null || $(INSTALL) --retries 1 -r requirements/torchvision-cpu.txt 2>/dev/null || \
	  echo "torchvision is left out: PyTorch's index, which has the build for this PyTorch, cannot be reached"
	touch $@

docs: .venv/.docs
	.venv/bin/mkdocs build --strict --site-dir build/site

setup-gpu:
	@test -f "environments/$(FRAMEWORK).lock" || { echo "FRAMEWORK is one of: torch, paddle, mindspore, jax" >&2; exit 2; }
	$(MAKE) --no-print-directory .venv-$(FRAMEWORK)/.gpu

.venv/.docs: .venv/.all requirements/docs.txt
	$(INSTALL) -r requirements/docs.txt
	touch $@

.venv-%/.gpu: pyproject.toml environments/%.lock
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(INSTALL) -r environments/$*.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	test $* != paddle || $(@D)/bin/python -m zoo.cuda_libraries
	touch $@

.venv-card/.installed: requirements/torch.txt requirements/card.txt
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(INSTALL) -r requirements/torch.txt
	$(INSTALL) -r requirements/card.txt
	touch $@

gpu-check:
	$(firstword $(wildcard .venv-torch .venv))/bin/python -m tests.gpu.day $(ARGS)

clean:
	rm -rf .venv .venv-*
