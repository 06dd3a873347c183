"""A net whose class matrix is split over processes, by train.py: as one process does, elastic, and stopped by a NaN."""

import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.helpers.processes import (
    ROOT,
    assert_same_run,
    copy_up_to,
    environment,
    launcher,
    losses,
    run,
    train_arguments,
)
from zoo.frameworks import FRAMEWORKS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_two_processes_follow_one(single_run, two_process_run, framework):
    """The same global batch, batch statistics over both; seven classes: 4 rows and 3.

    The last normalization takes biases before it away, and means behind a normalization are 0.
    """
    _, found = assert_same_run(two_process_run(framework, "arcface"), single_run(framework, "arcface"), 12, atol=1e-7)
    assert found["samples"] == 10


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_split_head_goes_on_with_another_number_of_processes(
    demo_sets, single_run, two_process_run, tmp_path, framework
):
    """Seven classes: 3, 2 and 2 rows, then 4 and 3. MindSpore, whose three take minutes here: 4 and 3, then 7."""
    expected, out = losses(single_run(framework, "arcface")), tmp_path / "run"
    resume = [str(ROOT / "train.py"), "--resume", str(out), "--global-batch", "keep"]
    if framework == "mindspore":
        copy_up_to(4, two_process_run(framework, "arcface"), out)
        run("python", 1, tmp_path, resume)
    else:
        run("mpirun", 3, tmp_path, train_arguments(demo_sets, "arcface", out, framework, "--max-steps", 4))
        run("mpirun", 2, tmp_path, resume)
    found = losses(out)
    assert list(found) == list(range(1, 13))
    np.testing.assert_allclose(list(found.values()), list(expected.values()), rtol=1e-5)


def test_a_nan_in_one_rank_s_rows_is_refused_by_all_and_named(demo_sets, single_run, tmp_path):
    """The last row is rank 1's."""
    tensors = load_file(single_run("torch", "arcface") / "checkpoints/last/model.safetensors")
    tensors["head.weight"][-1, 3] = np.nan
    weights = tmp_path / "weights.safetensors"
    save_file(tensors, weights)
    line = train_arguments(
        demo_sets, "arcface", tmp_path / "run", "torch", "--weights", weights, train__max_consecutive_skips=3
    )
    done = subprocess.run(
        [*launcher("torchrun", 2, tmp_path), *line],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment(),
        cwd=ROOT,
    )
    text = done.stdout + done.stderr
    assert done.returncode != 0 and "NaN or infinity in head.weight" in text, text
