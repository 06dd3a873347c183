"""Runs whose batches DALI decodes in the training process, as on a GPU, are those with DALI in worker processes."""

import pytest

from tests.data.loaders.test_dali import needs_dali
from tests.helpers.processes import evaluation, losses, require_framework, run, train_arguments
from tests.zoo.run.device_training import decode_here, train_both_ways
from zoo.frameworks import FRAMEWORKS

pytestmark = [pytest.mark.slow, needs_dali]
CASES = [(framework, "resnet50", {}) for framework in FRAMEWORKS]
CASES += [("torch", "arcface", {}), ("torch", "deeplabv3plus", {"data__photometric": "false"})]


@pytest.mark.parametrize("framework, model, changes", CASES, ids=[f"{name}-{model}" for name, model, _ in CASES])
def test_losses_and_metrics_are_equal(framework, model, changes, demo_sets, tmp_path):
    require_framework(framework)
    changes = {**changes, "data__loader": "dali", "data__workers": 1, "train__eval_every": "2 steps"}
    changes |= {"train__save_every": "4 steps", **({"train__compile": "false"} if framework == "mindspore" else {})}
    arguments = train_arguments(demo_sets, model, tmp_path, framework, "--max-steps", 4, **changes)[1:]
    if framework == "torch":
        train_both_ways(tmp_path, arguments)
    else:
        run("python", 1, None, ["-m", "tests.zoo.run.device_training", str(tmp_path), *arguments])
    found = [
        (losses(tmp_path / name), {**evaluation(tmp_path / name), "seconds": 0, "time": 0})
        for name in ("worker", "here")
    ]
    assert found[0] == found[1] and len(found[0][0]) == 4


def test_a_resumed_run_reads_the_same_batches(demo_sets, tmp_path):
    """Which batches a stream begins with is decided outside of the frameworks."""
    folders = [tmp_path / "straight", tmp_path / "stopped"]
    for out, steps in zip(folders, (4, 2)):
        words = ("--max-steps", steps)
        decode_here(*train_arguments(demo_sets, "resnet50", out, "torch", *words, data__loader="dali")[1:])
    decode_here("--resume", str(folders[1]), "--max-steps", "4")
    expected, found = (losses(out) for out in folders)
    assert len(expected) == 4 and expected == found
