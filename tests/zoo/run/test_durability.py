"""Runs that signals, kills and errors end anywhere: what a resume makes of them is the undisturbed run."""

import json
import os
import signal
from contextlib import contextmanager

import numpy as np
import pytest
from safetensors.numpy import load_file

import zoo
from tests.helpers.paths import ROOT
from tests.zoo import api_cases
from zoo.data.demo import shapes
from zoo.data.errors import UserError
from zoo.logs.journal import Journal, history
from zoo.run import checkpoint, pipeline, session
from zoo.run.recipe import NEWEST
from zoo.trainer.torch.trainer import Trainer
from zoo.visualization import page

RECIPE = ROOT / "configs/resnet50_demo.yaml"
STRIDE = 4  # of the writes before which a run is killed
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Killed(BaseException):
    """In place of kill -9: nothing of the run is written after it."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes") / "shapes"
    shapes.make(str(folder), 64, 16)
    return folder


@pytest.fixture
def run(tmp_path, root):
    """Return a function that starts or resumes a run: evaluations after updates 3 and 6, checkpoints after 2, 4, 6."""
    return lambda name="run", **changes: train(tmp_path / name, root, **changes)


def train(folder, root, **changes):
    small = {
        "data.root": str(root),
        "data.workers": 0,
        "train.eval_every": 3,
        "train.save_every": 2,
        "train.log_every": 1,
    }
    settings = {**api_cases.RUN, **small, **{key.replace("__", "."): value for key, value in changes.items()}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.Evaluations, "measure", measure_rising)
        resume = {"resume": NEWEST} if folder.exists() else {}  # a kill may have left an empty folder
        zoo.Run(RECIPE, settings, out=folder, **resume).train()
    return folder


def measure_rising(*words, measure=session.Evaluations.measure):
    """Return what an evaluation measures, with an accuracy that becomes better from one to the next."""
    found = measure(*words)
    return {**found, "accuracy": 1 - found["accuracy"]}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, root):
    return train(tmp_path_factory.mktemp("undisturbed") / "run", root)


def outcome(folder):
    """Return what must not depend on interruptions: losses and metrics by step, the best and the last checkpoint."""
    events = history(str(folder))
    values = [
        (event["event"], event["step"], event.get("loss"), event.get("accuracy"), event.get("epoch"))
        for event in events
        if event["event"] in ("train", "eval", "end")
    ]
    links = [os.readlink(folder / "checkpoints" / name) for name in ("best", "last")]
    return values, links


def weights(folder):
    files = [folder / "checkpoints/last" / name for name in ("model.safetensors", "update.safetensors")]
    return {name: array for file in files for name, array in load_file(file).items()}


def assert_as_undisturbed(folder, undisturbed):
    assert outcome(folder) == outcome(undisturbed)
    one, other = weights(folder), weights(undisturbed)
    assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    assert not [name for name in os.listdir(folder / "checkpoints") if name.startswith(".")]


@contextmanager
def caught(number):
    """Receive what a run raises again when it has ended by a signal."""
    seen = []
    before = signal.signal(number, lambda *_: seen.append(number))
    try:
        yield seen
    finally:
        signal.signal(number, before)


def at_call(monkeypatch, owner, name, count, act):
    """Do something at the beginning of the `count`-th call of a function."""
    function, calls = getattr(owner, name), []

    def replacement(*words, **keys):
        calls.append(1)
        if len(calls) == count:
            act()
        return function(*words, **keys)

    monkeypatch.setattr(owner, name, replacement)


PHASES = {  # what a signal interrupts, and the last update that is saved then
    "an update": (Trainer, "step", 2, 2),
    "saving": (checkpoint, "_write", 1, 2),
    "an evaluation": (Trainer, "predict", 1, 3),
    "the link of the best": (checkpoint, "link", 3, 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_a_signal_at_any_moment_saves_and_the_resumed_run_is_the_same(run, undisturbed, monkeypatch, phase):
    number, (*place, count, saved) = signal.SIGTERM, PHASES[phase]
    with caught(number) as seen, monkeypatch.context() as patch:
        at_call(patch, *place, count, lambda: signal.raise_signal(number))
        folder = run()
    assert seen == [number]
    last = int(os.readlink(folder / "checkpoints/last")[5:])
    assert last == saved or (last == saved + 1 and phase in ("saving", "the link of the best"))
    assert last == history(str(folder))[-1]["step"]
    assert_as_undisturbed(run(), undisturbed)


@pytest.mark.slow
def test_a_signal_in_an_evaluation_that_is_made_up_for_ends_it_again(run, undisturbed, monkeypatch):
    for number in SIGNALS:
        with caught(number) as seen, monkeypatch.context() as patch:
            at_call(patch, Trainer, "predict", 1, lambda number=number: signal.raise_signal(number))
            folder = run()
        assert seen == [number] and os.readlink(folder / "checkpoints/last") == "step-00000003"
        assert not any(event["event"] == "eval" for event in history(str(folder)))
    assert_as_undisturbed(run(), undisturbed)


def writes(monkeypatch, before):
    """Call `before` with the number of every call that changes a file of the run."""
    calls = []

    def count():
        calls.append(1)
        before(len(calls))

    for owner, name in ((os, "replace"), (os, "rename"), (os, "symlink"), (os, "remove"), (Journal, "add")):
        function = getattr(owner, name)
        replacement = lambda *words, function=function, **keys: (count(), function(*words, **keys))[1]  # noqa: E731
        monkeypatch.setattr(owner, name, replacement)
    return calls


@pytest.mark.slow
def test_a_kill_before_any_write_loses_nothing(root, undisturbed, tmp_path, monkeypatch):
    """Each run is killed before another one of its renames, links and events."""
    with monkeypatch.context() as patch:
        calls = writes(patch, lambda number: None)
        train(tmp_path / "counted", root)
    assert len(calls) > 40

    def kill_at(last):
        def kill(number):
            if number == last:
                raise Killed

        return kill

    for last in range(1, len(calls) + 1, STRIDE):
        folder = tmp_path / str(last)
        with monkeypatch.context() as patch:
            writes(patch, kill_at(last))
            with pytest.raises(Killed):
                train(folder, root)
        assert_as_undisturbed(train(folder, root), undisturbed)


@pytest.mark.slow
def test_the_best_that_is_damaged_or_gone_is_replaced_by_the_best_that_is_left(run, monkeypatch):
    """And a later one is the best if it is better than those that are left, not if it is as good."""
    rising, accuracies = measure_rising, iter((0.9, 0.5, 0.6, 0.6))
    replaced = lambda *words: {**rising(*words), "accuracy": next(accuracies), "loss": 1.0}  # noqa: E731
    monkeypatch.setitem(globals(), "measure_rising", replaced)
    every = {"train__eval_every": 1, "train__save_every": 1, "train__keep_checkpoints": 5}
    folder = run(train__steps=2, **every)
    assert os.readlink(folder / "checkpoints/best") == "step-00000001"
    os.rename(folder / "checkpoints/step-00000001", folder / "gone")
    run(train__steps=4, **every)
    best = [event["step"] for event in history(str(folder)) if event["event"] == "best"]
    assert os.readlink(folder / "checkpoints/best") == "step-00000003" and best == [1, 2, 3]


@pytest.mark.slow
def test_a_reader_that_fails_saves_what_was_done(run, undisturbed, monkeypatch):
    """Where nothing is read ahead, the error comes when the batch is needed."""
    calls = []

    def fail(self, count):
        calls.append(1)
        if len(calls) == 6:
            raise UserError("a data loading process was killed")
        return take(self, count)

    take = pipeline.Prefetcher.take
    monkeypatch.setattr(pipeline.Prefetcher, "take", fail)
    with pytest.raises(UserError, match="a data loading process was killed"):
        run()
    folder = run()
    saves = [event["step"] for event in events_of(folder, "save")]
    assert saves == [2, 3, 4, 5, 6]
    assert_as_undisturbed(folder, undisturbed)


def events_of(folder, kind):
    with open(folder / "events.jsonl") as file:
        return [event for event in map(json.loads, file) if event["event"] == kind]


def test_links_in_a_run_from_somebody_else_are_not_written_through(run, tmp_path):
    folder, victim = run(), tmp_path / "victim"
    page.write_page(folder)
    victim.write_text("mine")
    checkpoints = (folder / "checkpoints").rename(tmp_path / "disk")
    (folder / "checkpoints").symlink_to(checkpoints)  # which a user may have made
    last = max(checkpoints.glob("step-*"))
    planted = [folder / f"{name}.writing" for name in ("config.yaml", "airank.log", "report.html", "metrics.csv")]
    planted += [folder / "classes.csv", last / ".evaluation.json", checkpoints / ".last"]
    (folder / "classes.csv").unlink(missing_ok=True)
    for path in planted:
        path.symlink_to(victim)
    run(listeners=["metrics_csv"], train__steps=8)
    page.write_page(folder)
    assert victim.read_text() == "mine" and (folder / "checkpoints").is_symlink()
    assert max(checkpoints.glob("step-*")) != last
    for name in (".lock", "events.jsonl"):
        kept = (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(kept if name == "events.jsonl" else victim)
        with pytest.raises(UserError, match=f"{name} is a link, which is not followed; remove it"):
            run()
        (folder / name).unlink()
        kept.rename(folder / name)
    assert victim.read_text() == "mine"
