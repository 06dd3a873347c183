"""`zoo bench update`: both loops are measured, and what the bare loop lacks is refused."""

import json

import pytest

from tests.bench.test_bare import FACES
from tests.helpers.processes import require_framework
from tests.helpers.training import DEMO, TINY
from zoo import cli

FACE_WORDS = ["-c", "arcface_synthetic", "--device", "cpu", *(word for pair in FACES for word in ("-o", pair))]


def words_of(clips, **changes):
    pairs = {**TINY, "data.root": clips, "device": "cpu", **changes}
    return ["-c", DEMO, *(word for key, value in pairs.items() for word in ("-o", f"{key}={value}"))]


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["paddle", "mindspore"])  # that of PyTorch: test_bare.py
@pytest.mark.parametrize("model", ["tsm", "arcface"])
def test_both_loops_are_measured(clips, tmp_path, framework, model, run_program):
    require_framework(framework)
    words, path = words_of(clips) if model == "tsm" else FACE_WORDS, tmp_path / "update.json"
    out = run_program("bench", "update", *words, "-n", "2", "--framework", framework, "--json", str(path))
    report = json.loads(path.read_text())
    assert {name: len(seconds) for name, seconds in report["seconds"].items()} == {"this trainer": 2, "bare loop": 2}
    assert report["framework"] == framework and f"ratio {report['ratio']:.4f}" in out


@pytest.mark.parametrize(
    "words, message",
    [
        ([*FACE_WORDS, "-o", "model.depth=19"], "model.depth"),
        ([*FACE_WORDS, "-o", "task.sample_rate=0.5"], "task.sample_rate"),
        ([*FACE_WORDS, "-o", "task.loss=adaface"], "task.loss"),
        (["-c", "deeplabv3plus_demo", "-o", "task.ohem_kept=5"], "task.ohem_kept"),
        ([*FACE_WORDS, "-o", "optim.name=lamb", "--framework", "torch"], "optim.name"),
        ([*FACE_WORDS, "--json", __file__], "--json"),
    ],
)
def test_what_is_refused(words, message, capsys):
    assert cli.main(["bench", "update", *words]) == 2
    assert message in capsys.readouterr().err
