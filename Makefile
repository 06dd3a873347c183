# make demo   the main job on data it makes itself      make test   the tests
# make setup  .venv with all three frameworks           make clean  remove .venv
PYTHON ?= python3.11
PIP = .venv/bin/python -m pip --disable-pip-version-check

.PHONY: demo test setup clean

demo: .venv/.torch
	.venv/bin/python train.py -c configs/tsm_demo.yaml --amp

test: setup
	.venv/bin/python -m pytest -n logical --dist loadfile --no-loadscope-reorder

setup: .venv/.everything

.venv/.torch: pyproject.toml
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	$(PIP) install --quiet '.[torch]'
	touch $@

.venv/.everything: .venv/.torch
	$(PIP) install --quiet '.[torch,paddle,mindspore,dali,dev]'
	touch $@

clean:
	rm -rf .venv
