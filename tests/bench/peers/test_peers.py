"""`zoo bench peers` and `zoo bench peers-updates`: the passes, the figures, and what is refused."""

import json
from types import SimpleNamespace

import pytest

from tests.bench.peers.test_loaders import Squares
from tests.helpers.paths import ROOT
from zoo import cli
from zoo.bench.commands import peers, peers_updates
from zoo.bench.interleave import Seconds
from zoo.bench.peers import loaders
from zoo.bench.peers.loaders import BARE, OURS, Loader, MapStyle, Task
from zoo.data.errors import UserError
from zoo.trainer import device

pytest.importorskip("torch")
SMALL = ("model.depth=18", "model.width=16", "data.size=32", "data.segments=2", "train.batch=2")
TSM = peers_updates.TASKS["tsm_112"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "clones/project").mkdir(parents=True)
    return ["--upstream", str(tmp_path / "clones")]


def numbers(files, clones):
    """A task whose loaders read numbers; DALI is missing."""
    task = Task(2, (1, 2))
    for name in (OURS, "peer"):
        task.add_peer(name, "numbers", lambda: MapStyle(Squares(), list))

    def missing():
        raise UserError("not installed")

    task.add_peer("DALI", "numbers", missing)
    return task


def test_loaders_of_a_task(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(loaders.TASKS, "faces", numbers)
    monkeypatch.setattr(peers, "_settle", lambda: None)
    path = tmp_path / "figures.json"
    words = [*folder, "--files", str(tmp_path / "files"), "-n", "2", "--task", "faces", "--json", str(path)]
    assert cli.main(["bench", "peers", *words]) == 0
    report = json.loads(path.read_text())
    assert [row["loader"] for row in report["faces"]["rows"]] == ["this loader", "peer"]
    assert report["faces"]["rows"][0]["ratio"] == 1 and "numpy" in report["machine"]["packages"]
    assert capsys.readouterr().out.splitlines()[-1] == "left out: DALI on numbers: not installed"


def test_each_task_has_its_own_process(folder, monkeypatch, capsys):
    commands = []

    def run(command, check, stdout):
        commands.append(command)
        task, path = command[command.index("--task") + 1], command[command.index("--json") + 1]
        with open(path, "x") as file:
            json.dump({task: {"rows": [], "skipped": []}}, file)
        return SimpleNamespace(returncode=len(commands) == 6)

    monkeypatch.setattr(peers.subprocess, "run", run)
    monkeypatch.setattr(peers.upstream, "describe_machine", lambda clones: {})
    assert cli.main(["bench", "peers", *folder, "-n", "3"]) == 0
    assert [command[command.index("--task") + 1] for command in commands] == list(loaders.TASKS)
    assert cli.main(["bench", "peers", *folder]) == 2  # the second task fails
    assert "--task clips failed" in capsys.readouterr().err


def test_streams_are_drained_before_their_turn_and_closed(monkeypatch):
    log, closed = [], []
    monkeypatch.setattr(peers, "_settle", lambda: None)

    def loader(name):
        def stream():
            try:
                while True:
                    log.append(name)
                    yield name
            finally:
                closed.append(name)

        return Loader("files", name, print, stream)

    times = peers.worker_processes([loader("a"), loader("b")], batches=2, passes=2)
    turn = peers.BUFFERED + 2
    assert [len(passes) for passes in times] == [2, 2] and closed == ["a", "b"]
    assert log[2:] == ["a"] * turn + ["b"] * turn + ["b"] * turn + ["a"] * turn


def test_figures_of_loaders():
    """A machine that slows down: medians of ratios differ from ratios of medians, 2 from 1 for the bare loop."""
    cpu = {("clips", OURS): (0.1, 0.2, 0.4), ("clips", BARE): (0.2, 0.1, 0.8), ("frames", OURS): (0.02, 0.04, 0.08)}
    found = peers.rows(
        [Loader(*key, print, print) for key in cpu],
        [[Seconds(2 * value, value) for value in values] for values in cpu.values()],
        [[Seconds(value / 2, 1.1 * value) for value in values] for values in cpu.values()],
        (2, 4),
    )
    assert [row["cpu_ratio"] for row in found] == [row["ratio"] for row in found] == pytest.approx([1, 2, 1])
    assert (found[1]["cpu_ms"], found[1]["samples_per_s"], found[1]["worker_cpu_ms"]) == pytest.approx((100, 40, 55))


@pytest.mark.slow
def test_updates_of_a_task_whose_peer_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(peers_updates.TASKS, "tsm_112", TSM._replace(options=(*TSM.options, *SMALL)))
    out = tmp_path / "updates.json"
    words = ["--upstream", str(tmp_path), "--task", "tsm_112", "-n", "2", "--warm-up", "1", "--json", str(out)]
    assert cli.main(["bench", "peers-updates", *words]) == 0
    measured = json.loads(out.read_text())["tasks"]["tsm_112"]
    assert [row["name"] for row in measured["rows"]] == list(measured["times"]) == ["this trainer"]
    assert len(measured["times"]["this trainer"]) == 2
    assert "torchvision" in measured["skipped"] or "temporal-shift-module: no such folder" in measured["skipped"]
    assert capsys.readouterr().out.splitlines()[-1] == f"left out: {measured['skipped']}"


def test_the_loop_of_a_peer_gets_the_job_and_the_batch(tmp_path, monkeypatch):
    from zoo.bench.peers import torch as loops

    calls = []

    def update(clones, job, batch):
        calls.append((clones, job.arch.depth, tuple(batch["video"].shape)))
        return lambda: calls.append("step")

    monkeypatch.setattr(loops, "mit_han_lab", update)
    monkeypatch.setattr(peers_updates, "NO_SETTINGS", {})  # of a process of its own
    peers_updates.build(TSM._replace(options=(*TSM.options, *SMALL)), str(tmp_path), True)()
    assert calls == [(str(tmp_path), 18, (2, 2, 32, 32, 3)), "step"]


@pytest.mark.parametrize("task", peers_updates.TASKS.values(), ids=list(peers_updates.TASKS))
def test_every_task_has_its_loop(task):
    """Read from the text, because a process has one framework."""
    text = (ROOT / f"tools/bench/peers/{task.framework}.py").read_text(encoding="utf-8")
    assert f"def {task.update}(clones: str, job: Any, batch: Any)" in text


def test_a_peer_has_none_of_this_trainers_settings(monkeypatch):
    """Values that are set count instead."""
    monkeypatch.setattr(device, "needs_variable", lambda text: True)
    environ = dict(peers_updates.NO_SETTINGS)
    device.prepare_mkl(environ)
    assert environ == peers_updates.NO_SETTINGS
    assert not device.keep_freed_memory(environ)


def test_figures_of_updates():
    """In the last pass the machine was twice as slow, for both."""
    ours, peer = peers_updates.rows(
        {
            peers_updates.OURS: [Seconds(1.0, 2.0), Seconds(1.1, 2.0), Seconds(2.0, 4.0)],
            "peer": [Seconds(2.0, 2.0), Seconds(2.0, 2.5), Seconds(4.0, 5.0)],
        }
    )
    assert (ours["wall_ms"], ours["cpu_ms"], ours["wall_ratio"]) == (1100, 2000, 1)
    assert (peer["wall_ratio"], peer["cpu_ratio"]) == (0.5, 0.8)


@pytest.mark.parametrize("command", ["peers", "peers-updates"])
@pytest.mark.parametrize(
    "words, message",
    [
        (["--upstream", "absent"], "--upstream absent: no such folder"),
        (["--upstream", ".", "--json", "README.md"], "this file exists"),
    ],
)
def test_what_is_refused(command, words, message, capsys):
    assert cli.main(["bench", command, *words]) == 2
    assert message in capsys.readouterr().err
