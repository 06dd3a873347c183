"""tools/peers/steps.py with a small task, beside a stand-in of another project."""

import json
import sys
import types

import pytest

from tools.peers import steps
from tools.peers.updates import tasks, temporal_shift

pytest.importorskip("torch")
SMALL = ("model.depth=18", "model.width=16", "data.size=32", "data.segments=2", "train.batch=2")
TASK = tasks.TASKS["tsm_112"]
TASK = TASK._replace(options=(*TASK.options, *SMALL))


@pytest.fixture
def layers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(tasks.TASKS, "tsm_112", TASK)
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(steps.of_task(TASK)))
    return ["--task", "tsm_112", "--layers", str(path), "--passes", "2", "--warm-up", "1"]


def test_a_task_beside_a_peer(tmp_path, layers, monkeypatch, capsys):
    calls = []

    def update(clones, job, batch):
        calls.append((clones, job.arch.depth, tuple(batch["video"].shape)))
        return lambda: calls.append("step")

    monkeypatch.setattr(temporal_shift, "update", update)
    out = tmp_path / "steps.json"
    assert steps.main(["--upstream", str(tmp_path), *layers, "--json", str(out)]) == 0
    assert calls == [(str(tmp_path), 18, (2, 2, 32, 32, 3)), *["step"] * 3]
    measured = json.loads(out.read_text())
    names = ["this trainer", "mit-han-lab", "convolutions", "convolutions, channels last"]
    assert [row["name"] for row in measured["rows"]] == list(measured["times"]) == names
    assert measured["skipped"] is None and measured["mode"]["compute"] == "fp32"
    assert [line.split("|")[2].strip() for line in capsys.readouterr().out.splitlines()[-4:]] == names


def test_a_peer_that_is_missing_is_named(tmp_path, layers, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    assert steps.main(["--upstream", str(tmp_path), *layers]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("left out: ") and "temporal-shift-module: no such folder; docs/performance.md says" in last


@pytest.mark.parametrize(
    "words, message",
    [
        (["--upstream", "nowhere"], "--upstream nowhere: no such folder"),
        (["--upstream", ".", "--passes", "0"], "at least 1"),
        (["--upstream", ".", "--json", "README.md"], "this file exists"),
    ],
)
def test_wrong_arguments(words, message, capsys):
    assert steps.main(words) == 2
    assert message in capsys.readouterr().err
