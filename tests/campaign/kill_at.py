"""train.py in a process that is killed (SIGKILL) at a planned operation on files, or a planned time after it.

python -m tests.campaign.kill_at PLAN ARGUMENTS...

Rank 0 watches its own operations on files through Python's audit events, which come just before each of them. At the
planned one it kills the planned rank, so moments of microseconds are met.
"""

import dataclasses
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KILLED = "killed"  # file with the time of the kill
OPERATIONS = ("open", "os.rename", "os.mkdir", "os.symlink", "os.remove", "os.rmdir", "os.listdir", "shutil.rmtree")


@dataclasses.dataclass(frozen=True)
class Plan:
    """When which process is killed.

    Attributes:
        scratch: folder in which every rank leaves its process id, and the killer the time.
        operation: regular expression for `<operation> <path>`; None: the start of the program.
        number: of the matching operations, the one that counts, from 1.
        delay: seconds after it.
        after: only operations after the first that this expression matches count; None: all do.
        rank: who is killed.
        fault: Python statement to execute first; plants a fault, to show that it is noticed.
    """

    scratch: str
    operation: str | None
    number: int = 1
    delay: float = 0.0
    after: str | None = None
    rank: int = 0
    fault: str = ""


def trigger(plan: Plan) -> Callable[[str, tuple[Any, ...]], None]:
    """Return a hook for audit events that kills when the planned one has come."""
    left, counts = plan.number, plan.after is None

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left, counts
        if event not in OPERATIONS or left <= 0 or not isinstance(arguments[0], str | os.PathLike):
            return
        text = f"{event} {os.fspath(arguments[1 if event in ('os.symlink', 'os.rename') else 0])}"
        counts = counts or bool(re.search(plan.after or "", text))
        if counts and re.search(plan.operation or "", text):
            left -= 1
            if left == 0:
                kill(plan)

    return hook


def kill(plan: Plan) -> None:
    """Kill the planned rank: at once, or by a thread after the delay."""

    def work() -> None:
        time.sleep(plan.delay)
        file = Path(plan.scratch) / f"rank-{plan.rank}"
        while not (file.exists() and file.read_text()):  # the other rank starts at the same time
            time.sleep(0.01)
        process = int(file.read_text())
        (Path(plan.scratch) / KILLED).write_text(repr(time.time()))
        os.kill(process, signal.SIGKILL)

    if plan.delay or plan.operation is None:
        threading.Thread(target=work, daemon=True).start()
    else:
        work()


def main(text: str, arguments: list[str]) -> int:
    plan = Plan(**json.loads(text))
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
    (Path(plan.scratch) / f"rank-{rank}").write_text(str(os.getpid()))
    if rank == "0":
        if plan.operation is None:
            kill(plan)
        else:
            sys.addaudithook(trigger(plan))
    from zoo import cli

    exec(plan.fault, {})
    return cli.main(["train", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
