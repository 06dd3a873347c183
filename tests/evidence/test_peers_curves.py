"""`python -m evidence peers-curves`: a small upstream, planted differences, what is refused; a real one."""

import json
import os
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from evidence import __main__ as evidence
from evidence.commands import peers_curves
from evidence.commands.peers_curves import Case
from evidence.peers.curves import Recorder
from tests.helpers.paths import ROOT
from tests.helpers.processes import require_framework

REPOSITORY = "https://github.com/NVIDIA/DeepLearningExamples"
CLONES = os.environ.get("ZOO_CLONES", str(ROOT / "clones"))  # of other projects
FACTORS = (1.0, 1.0, 0.5)  # of the learning rate, by epoch: warm-up, then a cosine
OPTIONS = """data.kind=image data.size=32 data.num_classes=3 data.train_samples=8 train.batch=4 train.epochs=3
    optim.warmup=1epochs model.depth=18 model.width=4 optim.lr=0.004"""


def upstream(work, recorder, momentum=0.875, smoothing=0.1, before=lambda work: None):
    """Train in a loop of its own, in which optimizer, schedule and loss of the recipe are written again."""
    import torch

    from zoo.models.resnet.torch import Model

    before(work)
    model, criterion = recorder.watch(Model(work.arch).train()), torch.nn.CrossEntropyLoss(label_smoothing=smoothing)
    optimizer = torch.optim.SGD(groups(model), work.lr, momentum)
    loader = recorder.loader()
    for factor in FACTORS:
        for group in optimizer.param_groups:
            group["lr"] = work.lr * factor
        for images, labels in loader:
            optimizer.zero_grad()
            criterion(model(images), labels).backward()
            optimizer.step()


def groups(model):
    """Return the parameters with the decay of the recipe."""
    named = dict(model.named_parameters())
    parts = [[p for name, p in named.items() if (".bn" in name or "bn1." in name) == is_norm] for is_norm in (0, 1)]
    return [{"params": parts[0], "weight_decay": 2.0**-15}, {"params": parts[1], "weight_decay": 0.0}]


def upstream_paddle(work, recorder, decay=1.0):
    """Train the same in Paddle, whose running variance differs as published."""
    import paddle
    import paddle.nn.functional as F

    from zoo.models.resnet.paddle import Model

    model, loader = recorder.watch(Model(work.arch)), recorder.loader()
    parts = [{**part, "weight_decay": part["weight_decay"] * decay} for part in groups(model)]
    optimizer = paddle.optimizer.Momentum(work.lr, 0.875, parts)
    for factor in FACTORS:
        optimizer.set_lr(work.lr * factor)
        for images, labels in loader:
            targets = recorder.tensor(np.eye(3, dtype=work.dtype)[labels.numpy()] * 0.9 + 0.1 / 3)  # Paddle's are fp32
            F.cross_entropy(model(images), targets, soft_label=True).backward()
            optimizer.step()
            optimizer.clear_grad()


def until_equal(work, recorder):
    """Smooth labels less than the recipe, unless what differs on purpose is taken out."""
    upstream(work, recorder, smoothing=0.09 if work.as_published else 0.1)


def fails(work):
    raise RuntimeError("out of luck")


def stops(work):
    os._exit(3)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def main(program, *words, on_purpose=(), framework="torch"):
        monkeypatch.setitem(peers_curves.CASES, REPOSITORY, Case(None, program, OPTIONS, on_purpose, framework))
        command = ["--upstream", str(tmp_path), "-c", "resnet50_imagenet", "--out", str(tmp_path / "out"), *words]
        code = evidence.main(["peers-curves", *command])
        return code, capsys.readouterr()

    return main


@pytest.mark.slow
@pytest.mark.parametrize("precision, limit", [("fp64", 1e-9), ("fp32", 1e-5)])
def test_equal_curves(run, tmp_path, precision, limit):
    code, output = run(upstream, "-o", f"train.precision={precision}")
    assert code == 0 and f"they agree: losses within {limit:g}" in output.out
    numbers = json.loads((tmp_path / "out/curves.json").read_text())
    assert len(numbers["upstream"]["loss"]) == 6 and numbers["upstream"]["lr"] == numbers["this trainer"]["lr"]
    assert (tmp_path / "out/curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_another_momentum_is_found(run):
    code, output = run(partial(upstream, momentum=0.87))
    lines = [line for line in output.out.splitlines() if line.startswith("they do not agree")]
    assert code == 1 and [line.split()[4] for line in lines] == ["losses", "gradient", "weights", "running"]


@pytest.mark.slow
def test_a_program_in_paddle(run, tmp_path):
    require_framework("paddle")
    code, output = run(upstream_paddle, on_purpose=("statistics",), framework="paddle")
    numbers = json.loads((tmp_path / "out/curves.json").read_text())
    assert code == 0 and numbers["as published"]["running statistics"][0] > 1e-3
    half = partial(upstream_paddle, decay=0.5)
    code, output = run(half, "--out", str(tmp_path / "half"), on_purpose=("statistics",), framework="paddle")
    assert code == 1 and "they do not agree: weights differ by" in output.out


def test_a_dropout_mask_keeps_channels():
    x = np.arange(1, 9, dtype=np.float64).reshape(1, 2, 2, 2)
    recorder = Recorder(SimpleNamespace(masks=[np.array([[False, True]])], dtype="float64"), np.asarray)
    assert recorder.dropout(x, 0.0, True) is x and recorder.dropout(x, 0.5, False) is x
    assert np.array_equal(recorder.dropout(x, 0.75, True), x * [[[[0.0]], [[4.0]]]])


def test_what_differs_on_purpose_is_in_the_header_of_a_base(capsys):
    case = peers_curves.CASES["https://github.com/mit-han-lab/temporal-shift-module"]
    peers_curves.print_purposes(case, "tsm_ssv2", {})
    assert "  clip_norm: PyTorch's function adds 1e-6 to the norm before it divides.\n" in capsys.readouterr().out


@pytest.mark.slow
def test_what_differs_on_purpose_is_measured_and_taken_out(run, tmp_path):
    code, output = run(until_equal, on_purpose=("--amp",))
    numbers = json.loads((tmp_path / "out/curves.json").read_text())
    assert code == 0 and "  --amp: the loss scale starts at 65536" in output.out
    assert numbers["as published"]["losses"][0] > 1e-3 > 1e-9 > numbers["without what differs on purpose"]["losses"][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "before, message",
    [(fails, "RuntimeError: out of luck"), (stops, "upstream's program has ended; ")],
)
def test_a_program_that_fails(run, before, message):
    code, output = run(partial(upstream, before=before))
    assert code == 2 and message in output.err


@pytest.mark.parametrize(
    "words, message",
    [
        (["--upstream", "absent"], "--upstream absent: no such folder"),
        (["-c", "tsm_demo"], "it has no section upstream; there are programs for https://github.com/"),
        (["-c", "arcface_ms1m"], "it names https://github.com/PaddlePaddle/PLSC; there are programs for"),
        (["-o", "train.precision=amp"], "train.precision: expected one of fp64, fp32"),
        (["-o", "data.train_samples=15"], "data.train_samples: upstream leaves out the last incomplete batch"),
    ],
)
def test_what_is_refused(run, words, message):
    code, output = run(upstream, *words)
    assert code == 2 and message in output.err


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir(f"{CLONES}/DeepLearningExamples"), reason="there is no copy of upstream")
def test_two_updates_of_a_real_upstream(tmp_path):
    pytest.importorskip("torch")
    words = ["--upstream", CLONES, "-c", "resnet50_imagenet", "--out", str(tmp_path / "out")]
    words += ["-o", "data.train_samples=4", "-o", "train.epochs=3", "-o", "data.size=32"]
    assert evidence.main(["peers-curves", *words]) == 0
