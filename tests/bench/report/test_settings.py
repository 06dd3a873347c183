"""Settings of runs: which ones differ between repeats, and which ones a resume changed."""

import pytest

from tests.bench.report.runs import speed_events, training_events, write
from tests.helpers.journals import full_begin, host
from zoo.bench.report import journals, settings
from zoo.bench.report.run import COMPLETE, INCOMPLETE, MIXED

OLD = ("device", "ranks", "accumulate", "batch", "global_batch", "loader", "framework_version", "git", "hosts")
NEW = (*OLD, "framework", "compute", "level", "channels_last", "compile", "precision", "loss_scale", "optimizer",
       "eval_batch", "workers", "threads", "recipe_sha256")  # fmt: skip


def resumed(fields=NEW, **changes):
    """Return the events of a run that was resumed after its first epoch, with other values of some fields."""
    events = training_events()
    again = {"event": "resume", "time": 121.0, "step": 100, "path": "x"}
    begin = full_begin(batch=10)
    events.insert(5, {**again, **{key: begin[key] for key in fields}, **changes})
    return events


def read(tmp_path, events):
    return journals.read(write(tmp_path / "run", events))


@pytest.mark.parametrize("fields", [(), OLD, NEW])
def test_a_resume_with_the_same_settings_changes_nothing(tmp_path, fields):
    run = read(tmp_path, resumed(fields))
    assert (run.state, run.remark, run.changed) == (COMPLETE, "", [])


@pytest.mark.parametrize(
    "changes, names",
    [
        ({"framework": "paddle"}, "framework"),
        (
            {"precision": "fp32", "compute": "fp32", "level": None, "loss_scale": None},
            "precision, compute, level, loss_scale",
        ),
        ({"optimizer": {**full_begin(batch=10)["optimizer"], "lr": 0.04}}, "optimizer.lr"),
        ({"optimizer": {**full_begin(batch=10)["optimizer"], "clip_norm": None}}, "optimizer.clip_norm"),
        ({"channels_last": True, "compile": True}, "channels_last, compile"),
        ({"ranks": 2, "batch": 5, "hosts": [host("a", [0]), host("b", [1])]}, "ranks, batch, hosts"),
        (
            {"hosts": [{**host("n1", [0]), "accelerators": [{"name": "NVIDIA H100 80GB HBM3"}]}],
             "device": "cuda:0 (NVIDIA H100 80GB HBM3)"},
            "device, hosts.accelerators",
        ),
    ],
)  # fmt: skip
def test_a_resume_with_another_method_makes_a_run_mixed(tmp_path, changes, names):
    run = read(tmp_path, resumed(**changes))
    assert (run.state, run.remark) == (MIXED, f"resumed with another {names}")
    assert read(tmp_path / "killed", resumed(**changes)[:-1]).state == INCOMPLETE


def test_a_second_resume_with_the_first_settings_does_not_undo_a_change(tmp_path):
    events = resumed(framework="paddle")
    events.insert(6, {**events[5], "framework": "torch"})
    assert read(tmp_path, events).state == MIXED


@pytest.mark.parametrize(
    "changes, names",
    [
        ({"workers": 8, "recipe_sha256": "cd" * 32}, ["workers", "recipe_sha256"]),
        ({"git": {"commit": "f" * 40, "dirty": False}}, ["commit"]),
        ({"hosts": [{**host("n1", [0]), "environment": {"OMP_NUM_THREADS": "4"}}]},
         ["environment.OMP_NUM_THREADS", "environment.NCCL_DEBUG"]),
        ({"hosts": [host("another", [0])]}, []),
        ({"device": "cuda:3 (Tesla V100-SXM2-16GB)", "workers": None}, []),
    ],
)  # fmt: skip
def test_other_changes_leave_a_run_complete(tmp_path, changes, names):
    run = read(tmp_path, resumed(**changes))
    assert (run.state, run.changed) == (COMPLETE, names)


def differing(one, two):
    return settings.differing([settings.read(one), settings.read(two)])


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"loader": "dali"}, {"loader": ["reference", "dali"]}),
        ({"level": None}, {"level": ["O1", "none"]}),
        ({"loss_scale": {"initial": 1024.0, "dynamic": True}}, {"loss_scale.initial": ["65536", "1024"]}),
        ({"loss_scale": {"initial": 65536}}, {}),  # what a journal lacks is not known
        ({"optimizer": {"milestones": [2, 3]}}, {}),
        ({"optimizer": {"milestones": [2, 4]}}, {"optimizer.milestones": ["[2, 3]", "[2, 4]"]}),
        ({"seed": 2, "recipe_sha256": "c"}, {"seed": ["1", "2"], "recipe_sha256": ["ab" * 6, "c"]}),
        ({"channels_last": 10**400, "compile": float("nan"), "optimizer": [[[]]], "seed": None}, {"optimizer": None}),
    ],
)
def test_differences_between_begins(changes, expected):
    found = differing(full_begin(), full_begin(**changes))
    assert found.keys() == expected.keys()
    assert all(values is None or found[name] == values for name, values in expected.items())


def test_a_variable_that_is_not_set_differs_from_one_that_is():
    one, two = full_begin(cards=2, nodes=2), full_begin(cards=2, nodes=2)
    two["hosts"][1]["environment"] = {"OMP_NUM_THREADS": "8", "CUDA_VISIBLE_DEVICES": "1", "NCCL_DEBUG": "WARN"}
    assert differing(one, two) == {"environment.OMP_NUM_THREADS": ["1", "1 + 8"]}
    for machine in two["hosts"]:
        machine["environment"] = {"NCCL_DEBUG": "WARN"}
    assert differing(one, two) == {"environment.OMP_NUM_THREADS": ["1", "not set"]}
    for machine in two["hosts"]:
        del machine["environment"]  # of a journal that records none
    assert differing(one, two) == {}


def test_the_updates_that_a_speed_run_counted_are_a_setting(tmp_path):
    runs = [journals.read(write(tmp_path / str(n), speed_events(9.0, count=n))) for n in (100, 50)]
    assert settings.differing([run.settings for run in runs]) == {"speed.count": ["100", "50"]}
