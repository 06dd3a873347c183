"""tools/bench/peers/steps.py with a small task, beside a stand-in of another project."""

import json

import pytest

from zoo.bench.peers import steps
from zoo.bench.peers.updates import contenders, tasks, temporal_shift
from zoo.trainer import malloc, mkl

pytest.importorskip("torch")
SMALL = ("model.depth=18", "model.width=16", "data.size=32", "data.segments=2", "train.batch=2")
TASK = tasks.TASKS["tsm_112"]
TASK = TASK._replace(options=(*TASK.options, *SMALL))
NAMES = ["this trainer", "convolutions", "convolutions, channels last"]


def test_a_task_whose_peer_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(tasks.TASKS, "tsm_112", TASK)
    out = tmp_path / "steps.json"
    words = ["--upstream", str(tmp_path), "--task", "tsm_112", "--passes", "2", "--warm-up", "1", "--json", str(out)]
    assert steps.main(words) == 0
    (measured,) = json.loads(out.read_text())["tasks"].values()
    assert [row["name"] for row in measured["rows"]] == list(measured["times"]) == NAMES
    assert all(len(passes) == 2 and passes[0]["cpu"] > 0 for passes in measured["times"].values())
    assert measured["mode"]["compute"] == "fp32"
    assert "torchvision" in measured["skipped"] or "temporal-shift-module: no such folder" in measured["skipped"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[2].strip() for line in lines[-3:]] == NAMES
    assert f"left out: {measured['skipped']}" in lines


def test_the_loop_of_a_peer_gets_the_job_and_the_batch(tmp_path, monkeypatch):
    calls = []

    def update(clones, job, batch):
        calls.append((clones, job.arch.depth, tuple(batch["video"].shape)))
        return lambda: calls.append("step")

    monkeypatch.setattr(temporal_shift, "update", update)
    monkeypatch.setattr(contenders, "NO_SETTINGS", {})  # of a process of its own
    ((name, step),) = contenders.of_peer(TASK, str(tmp_path), ()).updates.items()
    step()
    assert name == "mit-han-lab" and calls == [(str(tmp_path), 18, (2, 2, 32, 32, 3)), "step"]


def test_a_peer_has_none_of_this_trainers_settings(monkeypatch):
    """Values that are set count instead."""
    monkeypatch.setattr(mkl, "needs_variable", lambda text: True)
    environ = dict(contenders.NO_SETTINGS)
    mkl.prepare(environ)
    assert environ == contenders.NO_SETTINGS
    assert not malloc.keep_freed_memory(environ)


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
