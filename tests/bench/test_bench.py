"""tools/bench.py: it measures both loops and the pipeline, and a bare loop computes the trainer's update."""

import importlib.util
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from tests.helpers.training import DEMO, TINY
from zoo.bench.bare import torch as bare
from zoo.bench.commands import bench
from zoo.data.errors import UserError
from zoo.run import cli, restore
from zoo.run.job import assemble, join

BENCH = os.path.join(ROOT, "tools/bench.py")
FACES = [
    "-c",
    "configs/arcface_synthetic.yaml",
    "--device",
    "cpu",
    *(
        word
        for pair in (
            "model.variant=insightface",
            "model.depth=18",
            "model.width=8",
            "model.embedding=8",
            "data.size=16",
            "data.num_classes=9",
            "data.val_samples=10",
            "data.workers=0",
            "train.batch=4",
            "train.global_batch=4",
            "task.scale=8",
        )
        for word in ("-o", pair)
    ),
]


def settings(clips, **changes):
    pairs = {**TINY, "data.root": clips, "device": "cpu", **changes}
    return ["-c", DEMO, *(word for key, value in pairs.items() for word in ("-o", f"{key}={value}"))]


def run(*words):
    return subprocess.run(
        [sys.executable, BENCH, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "paddle", "mindspore"])
@pytest.mark.parametrize("model", ["tsm", "arcface"])
def test_a_step_is_measured_against_a_bare_loop(clips, tmp_path, framework, model):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    words, path = settings(clips) if model == "tsm" else FACES, tmp_path / "step.json"
    done = run("step", *words, "-n", "2", "--framework", framework, "--json", path)
    assert done.returncode == 0, done.stderr
    assert {name: len(seconds) for name, seconds in json.loads(path.read_text())["seconds"].items()} == {
        "this trainer": 2,
        "bare loop": 2,
    }
    title, *rows, ratio = done.stdout.splitlines()
    assert title.startswith(f"{framework}: fp32 on cpu") and title.endswith("2 steps of 4 samples each")
    assert [row[:12].strip() for row in rows] == ["this trainer", "bare loop"]
    assert all(re.search(r"median +\d+\.\d+ ms +min .* samples/s$", row) for row in rows)
    assert re.match(r"ratio \d+\.\d{4} \(this trainer / bare loop, median of 2 pairs\)", ratio)


@pytest.mark.slow
def test_the_pipeline_is_measured(clips, tmp_path):
    path = tmp_path / "data.json"
    done = run("data", *settings(clips), "-n", "2", "--json", path)
    assert done.returncode == 0, done.stderr
    assert re.match(r"\d+\.\d samples/s with 0 workers", done.stdout) and "  decode  " in done.stdout
    assert json.loads(path.read_text())["one_thread"]["ms"]["decode"] > 0


@pytest.mark.parametrize("words, message", [(["-n", "0"], "--count"), (["-o", "model.depth=19"], "model.depth")])
def test_errors_are_one_message(clips, words, message, capsys):
    assert bench.main(["step", *settings(clips), *words]) == 2
    assert message in capsys.readouterr().err


def test_an_existing_file_is_not_overwritten(clips, tmp_path, capsys):
    path = tmp_path / "mine.json"
    path.write_text("mine")
    assert bench.main(["step", *settings(clips), "--json", str(path)]) == 2
    assert "this file exists" in capsys.readouterr().err and path.read_text() == "mine"
    with pytest.raises(UserError, match="--json /no/such/folder/x.json: No such file or directory"):
        bench.write({}, "/no/such/folder/x.json")


@pytest.mark.parametrize(
    "words, message",
    [
        ([*FACES, "-o", "task.sample_rate=0.5"], "task.sample_rate=1"),
        ([*FACES, "-o", "task.loss=adaface"], "task.loss: the bare loops have no adaface, but cross_entropy, combined"),
        (["-c", "configs/deeplabv3plus_demo.yaml", "-o", "task.ohem_kept=5"], "task.ohem_kept=null"),
    ],
)
def test_the_bare_loops_refuse_what_they_lack(words, message, capsys):
    assert bench.main(["step", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_bare_loops_refuse_lamb(clips, capsys):
    assert bench.main(["step", *settings(clips, **{"optim.name": "lamb"}), "--framework", "torch"]) == 2
    message = "optim.name: the bare loop of torch does not do lamb; give sgd, sgd_nesterov, adamw"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("model, optimizer", [("tsm", "sgd_nesterov"), ("tsm", "adamw"), ("arcface", "sgd")])
def test_a_bare_loop_does_the_trainers_update(clips, monkeypatch, model, optimizer):
    """With PyTorch, whose loop copies the trainer's model: the same tensors after two updates that clip."""
    changes = ["-o", "optim.clip_norm=0.1", "-o", f"optim.name={optimizer}"]
    changes += ["-o", "optim.eps=1e-2"] if optimizer == "adamw" else []  # beside which rounding of gradients is small
    request = cli.read(cli.parse([*(settings(clips) if model == "tsm" else FACES), *changes]))
    job, copies = assemble(request, join(request, {})), []
    restore.restore(request.config, job, None, print)
    if model == "arcface":  # the loop draws its own class matrix
        head = job.trainer.state_dict()["head.weight"]
        monkeypatch.setattr(bare.torch, "randn", lambda *shape: bare.torch.tensor(head).reshape(shape) / 0.01)
    monkeypatch.setattr(bare, "LR", 0.1)
    deepcopy = bare.copy.deepcopy

    def recorded(module, memo=None):
        copied = deepcopy(module, memo)
        if memo is None:
            copies.append(copied)
        return copied

    monkeypatch.setattr(bare.copy, "deepcopy", recorded)
    rows = [
        {
            **job.train_set.sample(index, np.random.default_rng(index)),
            **{mask.name: mask.sample(np.random.default_rng(index)) for mask in job.dropout_masks},
        }
        for index in range(4)
    ]
    device_batch = job.trainer.to_device(bench.collate(rows, 4))
    loop = bare.loop(job, device_batch)
    before = {name: np.array(array) for name, array in job.trainer.state_dict().items()}
    for step in range(2):
        loop()
        job.trainer.step([device_batch], bare.LR, step)
    for name, value in copies[0].named_parameters():
        change = job.trainer.state_dict()[name] - before[name]
        difference = np.abs(value.detach().numpy() - before[name] - change).max()
        assert difference <= 1e-2 * np.abs(change).max() + 1e-7, name
