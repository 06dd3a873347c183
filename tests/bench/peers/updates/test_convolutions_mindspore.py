"""The convolutions alone, in MindSpore."""

import importlib.util
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
LOOP = """\
import os
from zoo.bench.peers.updates.convolutions_mindspore import loops
from zoo.bench.peers.updates.layers import Layer
(loop,) = loops([
    Layer((2, 3, 9, 9), 8, (3, 3), (2, 2), (1, 1), needs_input_gradient=False),
    Layer((2, 8, 5, 5), 8, (3, 3), (1, 1), (2, 2), (2, 2), groups=8),
    Layer((2, 8), 5, (0, 0)),
]).values()
loop()
os._exit(0)  # MindSpore's own end takes long"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="needs MindSpore")
def test_each_layer_runs_forward_and_backward_once():
    """By oneDNN's own record: the compiler removes what nothing depends on."""
    environ = {**os.environ, "DNNL_VERBOSE": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", LOOP], env=environ, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split(",") for line in done.stdout.splitlines() if line.startswith("dnnl_verbose,exec")]
    calls = Counter((words[3], words[5]) for words in lines)
    assert calls == {
        ("convolution", "forward_training"): 2,
        ("convolution", "backward_weights"): 2,
        ("convolution", "backward_data"): 1,
        ("matmul", "undef"): 3,
    }
