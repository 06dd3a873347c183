"""Profile of some updates: the time of each operator."""

import os
import shutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from zoo.data import durable
from zoo.run.job import Job

if TYPE_CHECKING:
    from zoo.trainer.world import Operator, Profiler

WARM_UP = 5  # updates before a profile, which compile and choose kernels
ROWS = 10
NAME_WIDTH = 70  # characters
FOLDER, TABLE = "profile", "profile.txt"
Report = dict[str, Any]


def report(job: Job, operators: Sequence["Operator"], updates: int) -> Report:
    """Return device, precision, samples per update and operators with their milliseconds per update, largest first."""
    rows = [
        {"name": operator.name, "ms": operator.ms / updates, "calls": operator.calls / updates}
        for operator in sorted(operators, key=lambda operator: -operator.ms)
        if operator.ms > 0
    ]
    return {
        "device": job.world.device,
        "compute": job.plan.mode.compute,
        "samples": job.clock.global_batch,
        "updates": updates,
        "ms": sum(operator.ms for operator in operators) / updates,
        "operators": rows,
    }


def describe(report: Report, rows: int = ROWS) -> list[str]:
    """Return a report as the lines of a table with so many operators."""
    total, operators = report["ms"], report["operators"][:rows]
    if not operators:
        return [f"the profiler lists no operators on {report['device']}; see its files"]
    return [
        f"{report['compute']} on {report['device']}: {total:.2f} ms per update of {report['samples']} samples, "
        f"mean of {report['updates']} updates",
        f"{'ms':>9} {'share':>6} {'calls':>7}  operator",
        *(
            f"{operator['ms']:9.3f} {operator['ms'] / total:6.1%} {operator['calls']:7.1f}  "
            f"{operator['name'][:NAME_WIDTH]}"
            for operator in operators
        ),
    ]


class RunProfile:
    """Profile of some updates of a run on rank 0, after WARM_UP updates of this process.

    It ends before an evaluation, a checkpoint or the end of the run, which it would contain otherwise.
    """

    def __init__(self, job: Job, folder: str | None, first_step: int, count: int, add: Callable[..., None]):
        """Record nothing yet.

        Args:
            folder: of the run; None on other ranks, which profile nothing.
            first_step: updates done before this process began.
            count: updates to profile; 0 for none.
        """
        self._job, self._folder = job, folder
        self._count, self._add = count if folder else 0, add
        self._begin = first_step + WARM_UP  # updates done before the profile
        self._profiler: Profiler | None = None
        self._unread = 0

    @property
    def is_running(self) -> bool:
        return self._profiler is not None

    def before(self, step: int) -> None:
        """Start before the update of this index, if it is the first of the profile."""
        if self._count and step == self._begin:
            shutil.rmtree(self._path, ignore_errors=True)  # of a profile that a resume has reverted
            os.makedirs(self._path)
            self._profiler = self._job.world.profiler()
            self._profiler.start(self._path)

    def after(self, done: int, stops: bool) -> None:
        """End after `done` updates, if it has all of them or the run goes on with something else."""
        assert self._profiler, "only while it is running"
        self._unread += 1
        updates = done - self._begin
        if not stops and updates < self._count:
            return
        operators, self._profiler = self._profiler.stop(), None
        lines = describe(report(self._job, operators, updates))
        durable.write(os.path.join(self._path, TABLE), "".join(f"{line}\n" for line in lines).encode())
        self._add("profile", step=done, updates=updates, path=self._path, table=lines)

    def read(self) -> dict[str, int]:
        """Return how many of the updates since the last call were profiled, as a field of a `train` event, if any."""
        profiled, self._unread = self._unread, 0
        return {"profiled": profiled} if profiled else {}

    @property
    def _path(self) -> str:
        return os.path.join(self._folder or "", FOLDER, f"step-{self._begin + 1:08d}")
