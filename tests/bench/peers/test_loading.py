"""The command line: tasks, the file of figures, and what it refuses."""

import json
from types import SimpleNamespace

import pytest

from tests.bench.peers.test_contender import Squares
from zoo.bench.peers import contender, loading, tasks
from zoo.bench.peers.contender import MapStyle
from zoo.bench.peers.tasks import Field, Task
from zoo.data.errors import UserError

pytest.importorskip("torch")


def numbers(files, clones):
    """A task whose loaders read numbers; DALI is missing."""
    field = Field(batch=2)
    for name in (contender.OURS, "peer"):
        field.add_peer(name, "numbers", lambda: MapStyle(Squares(), list))

    def missing():
        raise UserError("not installed")

    field.add_peer("DALI", "numbers", missing)
    return Task(field.contenders, field.batch, (1, 2), field.skipped)


def arguments(tmp_path, *more):
    (tmp_path / "clones/project").mkdir(parents=True, exist_ok=True)
    return ["--upstream", str(tmp_path / "clones"), "--files", str(tmp_path / "files"), "--passes", "2", *more]


def test_a_task(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(tasks.TASKS, "faces", numbers)
    monkeypatch.setattr(loading.passes, "_settle", lambda: None)
    path = tmp_path / "figures.json"
    assert loading.main(arguments(tmp_path, "--task", "faces", "--json", str(path))) == 0
    measured = json.loads(path.read_text())["faces"]
    assert [row["loader"] for row in measured["rows"]] == ["this loader", "peer"]
    assert len(measured["rows"][1]["passes"]["cpu_s"]) == measured["passes_per_loader"] == 2
    assert "numpy" in measured["packages"] and measured["clones"] == {"project": None}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "faces: 2 loaders, 2 passes ..."
    assert lines[1].startswith("faces: medians of 2 passes in turn, batches of 2; load of the machine ")
    assert lines[-1] == "left out: DALI on numbers: not installed"


def test_each_task_has_its_own_process(tmp_path, monkeypatch):
    commands = []

    def run(command, check):
        commands.append(command)
        task, path = command[command.index("--task") + 1], command[command.index("--json") + 1]
        with open(path, "x") as file:
            json.dump({task: len(commands)}, file)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(loading.subprocess, "run", run)
    path = tmp_path / "figures.json"
    assert loading.main(arguments(tmp_path, "--json", str(path))) == 0
    assert json.loads(path.read_text()) == {"imagenet": 1, "clips": 2, "cityscapes": 3, "faces": 4}
    assert all(command[command.index("--passes") + 1] == "2" for command in commands)


def test_a_task_that_fails_ends_the_program(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(loading.subprocess, "run", lambda command, check: SimpleNamespace(returncode=1))
    assert loading.main(arguments(tmp_path)) == 2
    assert "--task imagenet failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, message",
    [
        (["--upstream", "absent"], "--upstream absent: no such folder; docs/performance.md says what to clone there"),
        (["--passes", "0"], "--passes 0: must be at least 1"),
        (["--json", __file__], "this file exists; name a new one"),
    ],
)
def test_what_is_refused(tmp_path, capsys, more, message):
    assert loading.main(arguments(tmp_path, *more)) == 2
    assert message in capsys.readouterr().err
