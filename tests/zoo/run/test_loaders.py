"""Training runs whose images DALI decodes: several processes and resumes give what a single undisturbed one does."""

import subprocess

import pytest

from tests.data.loaders.sets import needs_dali
from tests.helpers.processes import (
    ROOT,
    assert_same_run,
    environment,
    evaluation,
    launcher,
    losses,
    run,
    train_arguments,
)

pytestmark = [pytest.mark.slow, needs_dali]
MODELS = ("resnet50", "deeplabv3plus", "arcface")  # tsm_demo reads videos, which DALI does not decode
CHECKPOINT = ("model.safetensors", "update.safetensors")


def arguments(demo_sets, model, out, framework="torch", *more, **changes):
    return train_arguments(demo_sets, model, out, framework, *more, **{"data__loader": "dali", **changes})


def resume(folder, *more):
    return run("python", 1, None, [str(ROOT / "train.py"), "--resume", str(folder), *map(str, more)])


def same_bytes(one, two):
    paths = [f"checkpoints/last/{name}" for name in CHECKPOINT]
    return all((one / path).read_bytes() == (two / path).read_bytes() for path in paths)


@pytest.fixture(scope="module")
def dali_runs(demo_sets, tmp_path_factory):
    """Folders of runs of one process with DALI, by model, in PyTorch."""
    folder = tmp_path_factory.mktemp("dali")
    for model in MODELS:
        run("python", 1, None, arguments(demo_sets, model, folder / model))
    return {model: folder / model for model in MODELS}


def test_two_processes_follow_one(demo_sets, dali_runs, tmp_path):
    run("torchrun", 2, tmp_path, arguments(demo_sets, "deeplabv3plus", tmp_path / "run"))
    assert_same_run(tmp_path / "run", dali_runs["deeplabv3plus"], 6, atol=1e-7)


@pytest.mark.parametrize("model", MODELS)
def test_a_run_follows_that_of_the_reference_loader(dali_runs, single_run, model):
    """Faces are equal; the other pixels differ a little (a level of 255 by the fast resize, too), and so the losses."""
    reference, dali = single_run("torch", model), dali_runs[model]
    expected, found = losses(reference), losses(dali)
    assert expected.keys() == found.keys() and found[1] == pytest.approx(expected[1], rel=3e-3)
    assert same_bytes(reference, dali) == (model == "arcface")
    assert evaluation(dali)["samples"] == evaluation(reference)["samples"]


@pytest.mark.parametrize("loader", ["dali", "auto"])
def test_a_resume_in_mid_epoch(demo_sets, dali_runs, tmp_path, loader):
    """With `auto` too, since the run has begun with DALI."""
    folder = tmp_path / "run"
    run("python", 1, None, arguments(demo_sets, "resnet50", folder, "torch", "--max-steps", 3))
    out = resume(folder, "-o", f"data.loader={loader}")
    assert ("data.loader: auto takes dali, as this run did before" in out) == (loader == "auto")
    assert same_bytes(folder, dali_runs["resnet50"])


def test_without_dali_a_run_ends_before_it_makes_a_folder(demo_sets, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'nvidia.dali' else find(name, *rest)\n"
    )
    line = arguments(demo_sets, "resnet50", tmp_path / "run")
    done = subprocess.run(
        [*launcher("python", 1, None), *line],
        capture_output=True,
        text=True,
        env={**environment(), "PYTHONPATH": str(tmp_path)},
        cwd=ROOT,
        timeout=200,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "data.loader: dali needs NVIDIA DALI, which is not installed" in done.stderr
    assert not (tmp_path / "run").exists()
