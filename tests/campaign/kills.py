"""Random kill -9: a tiny run is killed several times, resumed until it ends, and compared with an undisturbed one.

Losses, metrics, weights, optimizer state and files must be the same; no event may be lost or doubled but those of
updates that were redone. With two processes, one rank is killed, and nothing of the run may stay behind.
"""

import dataclasses
import json
import random
import shutil
import signal
import time
from pathlib import Path
from typing import NamedTuple

from tests.campaign import Trial, tiny
from tests.campaign.kill_at import KILLED, Plan
from tests.campaign.tiny import NAMES, Setup, differences

KILLS = 8  # of a trial, at most
WITH_WORKERS = 5  # every fifth trial reads data by a process of its own, not by threads
END_TIMEOUT = 30.0  # seconds from a kill until all processes of the run have gone
OPENED = r"classes\.csv"  # written at each start; validation files are read for evaluations from then on


class Moment(NamedTuple):
    """A part of a run in which to kill it.

    Attributes:
        operation: regular expression, as kill_at.Plan has it.
        numbers: the largest number of an operation to choose.
        delay: the largest delay in seconds; half of the kills have none.
        after: as kill_at.Plan has it.
    """

    operation: str
    numbers: int
    delay: float
    after: str | None = None


MOMENTS = {
    "starting": Moment(r"/run(/|$)", 25, 0.2),
    "training": Moment(r"os\.rename .*/last$", 4, 0.1),
    "saving": Moment(r"\.writing-|/\.?last$|step-\d+$|\.dropping-|checkpoints$", 40, 0.01),
    "evaluating": Moment(r"open .*/val/", 16, 0.05, OPENED),
    "linking best": Moment(r"evaluation\.json|/\.?best$|airank|metrics\.csv|\.dropping-", 20, 0.005),
}
PAIR = "two processes"
# Files of a run that are written from the start: before each resume they are links to a file that nothing may change.
LINKED = ("config.yaml.writing", "airank.log.writing", "metrics.csv.writing", "classes.csv", "checkpoints/.last")
KEPT = "mine"  # content of that file
KINDS = tuple(f"{NAMES[framework]}, {moment}" for moment in (*MOMENTS, PAIR) for framework in NAMES)


def trial(number: int, folder: Path, kills: int = KILLS, fault: str = "") -> Trial:
    """Kill and resume a run, and compare it.

    Args:
        number: of the trial.
        folder: for the run; the undisturbed runs are kept beside it.
        kills: the largest number of kills.
        fault: Python statement that plants a fault in every process of the run.
    """
    kind, rng = KINDS[number % len(KINDS)], random.Random(number)
    framework = list(NAMES)[number % len(NAMES)]
    moment = kind.split(", ")[1]
    setup = Setup(framework, 2 if moment == PAIR else 1)
    undisturbed = tiny.reference(setup, folder.parent)
    workers = 1 if number % WITH_WORKERS == 0 and setup.size == 1 else 0
    attack = Attack(setup, folder, undisturbed.seconds, workers, fault)
    done = 0
    for _ in range(kills):
        chosen = rng.choice(list(MOMENTS)) if moment == PAIR else moment
        if not attack.start(attack.plan(chosen, rng)):
            break
        done += 1
    failures = attack.failures or attack.finish() or differences(attack.run, undisturbed.folder)
    lines = [f"trial {number} ({kind}), after {done} kills: {failure}" for failure in failures]
    if lines:
        tiny.keep(folder, number)
    return Trial(kind, done, lines, {"seconds to end after a kill": max(attack.ends, default=0.0)})


class Attack:
    """A run that is killed again and again.

    Attributes:
        run: its folder.
        failures: what went wrong, but for differences.
        ends: seconds from each kill until all processes had gone.
    """

    def __init__(self, setup: Setup, folder: Path, seconds: float, workers: int, fault: str):
        """Start nothing yet. seconds: of an undisturbed run; workers: processes that read data."""
        self.run, self.failures, self.ends = folder / "run", list[str](), list[float]()
        self._setup, self._folder, self._seconds, self._fault = setup, folder, seconds, fault
        self._recipe = tiny.arguments(setup, folder.parent, data__workers=workers)

    def plan(self, name: str, rng: random.Random) -> Plan:
        """Choose a kill in the part of a run that has this name."""
        moment, scratch = MOMENTS[name], self._folder / "scratch"
        rank = rng.randrange(self._setup.size)
        if rng.random() < (0.5 if name == "starting" else 0.1):  # any time, also before there are operations
            return Plan(str(scratch), None, delay=rng.uniform(0, self._seconds), rank=rank, fault=self._fault)
        delay = rng.choice((0.0, rng.uniform(0, moment.delay)))
        operation, after = moment.operation, moment.after
        if name == "evaluating" and self._setup.size > 1:  # faces are in memory: the operation before it counts
            operation, after = MOMENTS["training"].operation, None
        number = rng.randint(1, moment.numbers)
        return Plan(str(scratch), operation, number, delay, after, rank, self._fault)

    def start(self, plan: Plan) -> bool:
        """Start or resume the run; return whether it was killed as planned."""
        scratch = Path(plan.scratch)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        self._plant_links()
        code, text = self._execute(plan)
        killed = scratch / KILLED
        if code == 0:  # it ended, perhaps just before the kill
            return False
        if not killed.exists():
            self.failures.append(f"exit code {code} without a kill: {text}")
        elif self._setup.size == 1 and code != -signal.SIGKILL:
            self.failures.append(f"exit code {code} before the kill: {text}")
        else:
            self.ends.append(time.time() - float(killed.read_text()))
            if self.ends[-1] > END_TIMEOUT:
                self.failures.append(f"processes of the run ended {self.ends[-1]:.0f} s after the kill")
        return not self.failures

    def _plant_links(self) -> None:
        """Put links where the run writes, as in a folder from somebody else."""
        victim = self._folder / "victim"
        victim.write_text(KEPT)
        for path in (self.run / name for name in LINKED):
            if path.parent.is_dir():
                path.unlink(missing_ok=True)
                path.symlink_to(victim)

    def finish(self) -> list[str]:
        """Resume the run until its end; return what went wrong."""
        self._plant_links()
        code, text = self._execute(
            Plan(str(self._folder / "scratch"), operation="$^", fault=self._fault)
        )  # never kills
        if code != 0:
            self.failures.append(f"exit code {code} of the last resume: {text}")
        for path in (self.run / name for name in LINKED):
            if path.is_symlink():  # not written again, as of a run that has ended
                path.unlink()
        if (self._folder / "victim").read_text() != KEPT:
            self.failures.append("a link in the folder of the run was written through")
        return self.failures

    def _execute(self, plan: Plan) -> tuple[int | None, str]:
        """Run processes to their end; return exit code and output."""
        has_begun = (self.run / "config.yaml").exists()
        words = ["--resume", str(self.run)] if has_begun else [*self._recipe, "--out", str(self.run), "--resume"]
        program = [
            "-m",
            "tests.campaign.kill_at",
            json.dumps(dataclasses.asdict(plan)),
            *words,
        ]
        code, text = tiny.finish(tiny.start(self._setup, program, self._folder))
        if code is None:
            self.failures.append(f"a process of the run did not end within {tiny.TIMEOUT:.0f} s: {text}")
        return code, text
