"""The profile of a run: which updates it has, what it writes, and its table."""

import os
from types import SimpleNamespace

import pytest

from zoo.run.profiling import RunProfile, describe, report
from zoo.trainer.world import Operator

OPERATORS = [Operator("relu", 2.0, 4), Operator("idle", 0.0, 2), Operator("conv", 6.0, 2)]


class Profiler:
    def __init__(self):
        self.calls = []

    def start(self, folder):
        assert os.listdir(folder) == []
        self.calls.append("start")

    def stop(self):
        self.calls.append("stop")
        return OPERATORS


def job(profiler=None):
    return SimpleNamespace(
        world=SimpleNamespace(device="cpu", profiler=lambda: profiler),
        plan=SimpleNamespace(mode=SimpleNamespace(compute="fp32")),
        clock=SimpleNamespace(global_batch=4),
    )


def profile_of(folder, first_step, count, steps, busy=()):
    """Run updates, and return the calls of the profiler, the events, and the updates that are said to be profiled."""
    profiler, events, profiled = Profiler(), [], {}
    profile = RunProfile(job(profiler), folder, first_step, count, lambda name, **values: events.append(values))
    for step in range(first_step, steps):
        profile.before(step)
        if profile.is_running:
            profile.after(step + 1, step + 1 in busy)
        profiled.update(dict.fromkeys([step + 1], 1) if profile.read() else {})
    return profiler.calls, events, list(profiled)


@pytest.mark.parametrize(
    "first_step, count, busy, profiled",
    [
        (0, 3, (), [6, 7, 8]),
        (10, 2, (), [16, 17]),
        (0, 5, (7,), [6, 7]),  # an evaluation follows
        (0, 1, (6,), [6]),
    ],
)
def test_the_updates_of_a_profile(tmp_path, first_step, count, busy, profiled):
    calls, (event,), found = profile_of(str(tmp_path), first_step, count, 20, busy)
    assert calls == ["start", "stop"] and found == profiled
    folder = tmp_path / "profile" / f"step-{first_step + 6:08d}"
    assert event == {**event, "step": profiled[-1], "updates": len(profiled), "path": str(folder)}
    assert (folder / "profile.txt").read_text().splitlines() == event["table"]


@pytest.mark.parametrize("folder, count", [(None, 3), ("run", 0)])
def test_other_ranks_and_other_runs_profile_nothing(folder, count):
    assert profile_of(folder, 0, count, 20) == ([], [], [])


def test_the_table_is_that_of_an_update():
    found = report(job(), OPERATORS, 2)
    assert found["ms"] == 4 and [row["name"] for row in found["operators"]] == ["conv", "relu"]
    assert describe(found) == [
        "fp32 on cpu: 4.00 ms per update of 4 samples, mean of 2 updates",
        "       ms  share   calls  operator",
        "    3.000  75.0%     1.0  conv",
        "    1.000  25.0%     2.0  relu",
    ]
    assert len(describe(found, 1)) == 3
    assert describe(report(job(), [], 2)) == ["the profiler lists no operators on cpu; see its files"]
