"""Checkpoints that are trained in this process, predictions from them, and the evaluation they are compared with."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.paths import ROOT
from zoo.config import loader
from zoo.data.datasets import cityscapes, faces, imagenet, kinetics, synthetic
from zoo.data.demo import motion, portraits, shapes
from zoo.data.stream import open_evaluation, open_training
from zoo.predict import output
from zoo.run.checkpoint import save_checkpoint, save_evaluation
from zoo.run.evaluation import evaluate
from zoo.run.job import assemble, join
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.run.resume import restore

CLASSES = ("grass", "water", "köln")
COLORS = np.array([[60, 150, 50], [40, 60, 190], [200, 120, 40]])
COMMON = {"data.workers": 0, "train.batch": 4, "train.eval_batch": 3}
DATASETS = (cityscapes, faces, imagenet, kinetics, synthetic, motion, portraits, shapes)
LOAD = {dataset: dataset.load for dataset in DATASETS}


def scene(number):
    """Return an image of blocks in the colors of their classes, of a size of its own, and its mask."""
    rng = np.random.default_rng(number)
    labels = rng.integers(0, len(CLASSES), (3, 4)).repeat(14 + number, 0).repeat(15, 1).astype(np.uint8)
    image = np.clip(COLORS[labels] + rng.normal(0, 12, (*labels.shape, 3)), 0, 255).astype(np.uint8)
    labels[:4] = 255
    return image, labels


def run_script(*words, cwd=ROOT):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def train(folder, config, settings, steps):
    """Train a model for a few steps with PyTorch; return the folder of its checkpoint."""
    pairs = [f"{key}={value}" for key, value in {**COMMON, **settings}.items()]
    request = resolve_recipe(Options(str(ROOT / "configs" / config), pairs, device="cpu"))
    job = assemble(request, join(request, {}))
    restore(request.config, job, None, lambda line: None)
    batches = open_training(
        job.train_set, request.config.seed, job.batch_plan.batch, 0, steps, dropout_masks=job.dropout_masks
    )
    for step, (batch, _) in enumerate(batches):
        job.trainer.step([job.trainer.to_device(batch)], job.lr(step), step)
    run, recipe = str(folder / "tiny"), loader.render(request.resolved)
    record = {"classes": job.class_names, "recipe": recipe}
    save_checkpoint(run, steps, job.trainer.state_dict(), record, 1)
    save_evaluation(run, steps, {}, True, 1)
    (folder / "tiny/config.yaml").write_text(recipe, encoding="utf-8")
    return os.path.join(run, "checkpoints/last")


def forbid_datasets(patch: pytest.MonkeyPatch) -> None:
    """Make loading a data set fail: predictions must not need the one that a model was trained on."""
    for dataset in DATASETS:
        patch.setattr(dataset, "load", lambda settings: pytest.fail("a data set was loaded"))


@contextmanager
def datasets_allowed() -> Iterator[None]:
    """Undo forbid_datasets."""
    with pytest.MonkeyPatch.context() as patch:
        for dataset, load in LOAD.items():
            patch.setattr(dataset, "load", load)
        yield


def evaluation_outputs(weights, *changes):
    """Evaluate a checkpoint as train.py does: path of the sample -> the model's output for its views."""
    request = resolve_recipe(Options(os.path.join(weights, "../../config.yaml"), changes, weights=weights))
    with datasets_allowed():
        job = assemble(request, join(request, {}))
    restore(request.config, job, None, lambda line: None)
    rows = []

    class Recorder:
        def __init__(self):
            self.state = {}

        def update(self, output, batch):
            rows.extend(output.reshape(len(batch["valid"]), -1, *output.shape[1:])[batch["valid"] > 0])

        def result(self, state):
            return {}

    stream = open_evaluation(job.val_set, request.config.seed, 1 if job.task.PRIMARY == "miou" else 3)
    evaluate(job.trainer, stream, job.val_set, Recorder(), job.group, pytest.fail)
    root = request.config.data.root if hasattr(request.config.data, "root") else ""
    return {os.path.join(root, job.val_set.name(index)): row for index, row in enumerate(rows)}


def run_predict(capsys, out, *words):
    """Run zoo predict here: its exit code, what it wrote, the lines printed but the last, and the errors."""
    code = call_zoo("predict", *words, "--out", out, "--device", "cpu")
    lines, errors = capsys.readouterr()
    return code, read_results(out) if out.exists() else None, lines.splitlines()[:-1], errors


def read_results(out):
    """Return origin.json, and the rows of predictions.jsonl as `files`."""
    rows = [json.loads(line) for line in (out / output.ROWS).read_text(encoding="utf-8").splitlines()]
    return {**json.loads((out / output.ORIGIN).read_text(encoding="utf-8")), "files": rows}


def by_name(row, kind="predictions", value="probability"):
    """Return the values of a row by the names of the classes, whose order is checked."""
    values = [each[value] for each in row[kind]]
    assert values == sorted(values, reverse=True)
    return {each["label"]: each[value] for each in row[kind]}
