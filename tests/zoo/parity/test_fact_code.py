"""The code of zoo/parity/facts.toml, and so of docs/differences.md, run in each framework beside the formulas."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT

# Facts whose code runs, but is not compared by an example of the formula: its weights are made within the code, or in
# another shape than the formula's, or the example has other sizes, ranks, another epsilon or a constant learning rate.
NOT_COMPARED = {
    "torch": "adaptive-bins batch-norm-scale convolution-dilation convolution-padding dropout-factor embedding-scale "
    "initial-state mask-fill nearest-grid norm-axes norm-center padding-index prelu-slopes recurrent-direction "
    "velocity",
    "paddle": "adaptive-bins attention-scale causal-mask convolution-dilation dense-bias dense-weight dropout-factor "
    "initial-state label-smoothing prelu-slopes velocity",
    "mindspore": "adam-decay adam-decay-kind adaptive-bins bias-correction dropout-factor embedding-outside "
    "forget-bias gru-gates gru-reset gru-update initial-state lstm-gates output-padding prelu-slopes recurrent-biases "
    "recurrent-direction rnn-function time-axis",
    "jax": "attention-scale causal-mask first-step label-smoothing nearest-grid square-initial velocity "
    "vector-norm-root",
}
INEXACT = {  # than the formula by more than rounding, or otherwise in some elements
    "mindspore": "bounded-activations cubic-coefficient resize-method square-epsilon square-root vector-norm-root",
    "jax": "cubic-coefficient resize-method",  # whose weights are renormalized at borders
}
NOT_ON_CPUS = {"paddle": "rms-norm-epsilon", "mindspore": "rms-norm-epsilon vector-norm-epsilon"}  # no such kernels
EQUAL = {"torch": 350, "paddle": 310, "mindspore": 230, "jax": 150}  # pieces of code, at least


@pytest.mark.slow
@pytest.mark.parametrize("framework", EQUAL)
def test_the_code_of_the_facts_does_what_they_say(framework):
    packages = ("jax", "flax", "equinox", "optax") if framework == "jax" else (framework,)
    if not all(map(importlib.util.find_spec, packages)):
        pytest.skip(f"{', '.join(packages)}: not installed")
    command = [sys.executable, "-m", "tests.zoo.parity.fact_worker", framework]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    known = {name for table in (NOT_COMPARED, INEXACT, NOT_ON_CPUS) for name in table.get(framework, "").split()}
    wrong = {name for name, _, _, error, is_equal in rows if error or is_equal is False}
    assert done.returncode == 0, done.stderr
    assert wrong - known == set(), [row for row in rows if row[0] in wrong - known and (row[3] or row[4] is False)]
    assert sum(is_equal is True for *_, is_equal in rows) >= EQUAL[framework]
