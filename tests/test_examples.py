"""The notebooks of examples/: short, without outputs, and they run."""

import json
import os
import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
MAX_CELLS = 11
# What must hold at the end of a notebook. A model that has learned nothing is right one time in eight (shapes, clips)
# or two (pairs of faces), and has a mean IoU below 0.1; measured were 0.88, 0.98, 0.90 and 0.49.
LEARNED = {
    "api": "losses[-1] < losses[0] / 2 and len(loaded.class_names) == 8",
    "classify": "result.metrics['top1'] > 0.5",
    "clips": "result.metrics['top1'] > 0.8 and forwards.labels[0] == 'left' and backwards.labels[0] == 'right'",
    "faces": "result.metrics['accuracy'] > 0.8 and same > others + 0.2",
    "parity": "second.agrees and {finding.fact for finding in first.sides[0].findings}"
    " == {'gelu', 'layer-norm-epsilon', 'running-variance'}",
    "segment": "result.metrics['miou'] > 0.3",
}


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(cells) <= MAX_CELLS and all(not cell["outputs"] and cell["execution_count"] is None for cell in code)
    text = "\n".join("".join(cell["source"]) for cell in code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", f"{text}\nassert {LEARNED[path.stem]}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
