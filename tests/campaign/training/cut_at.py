"""train.py in a process that also writes what power cuts at planned moments would leave of its run.

python -m tests.campaign.training.cut_at PLAN ARGUMENTS...
"""

import dataclasses
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.campaign.training import power
from zoo.run import checkpoint

REQUIRED, COUNT = "required.json", "count.json"


@dataclasses.dataclass(frozen=True)
class Plan:
    """When which power cuts are simulated.

    Attributes:
        root: folder in which the run's folder, `run`, is.
        out: receives a folder for each cut, by its number: what is left of the root in `left`, and the number of
            updates whose checkpoint has to be there; and the number of changes in all.
        cuts: numbers of changes of files before which to cut.
        mode: one of power.MODES.
        fault: Python statement to execute first; plants a fault, to show that it is noticed.
    """

    root: str
    out: str
    cuts: Sequence[int]
    mode: str
    fault: str = ""


def main(text: str, arguments: list[str]) -> int:
    plan = Plan(**json.loads(text))
    root, out = Path(plan.root), Path(plan.out)

    def save(number: int, disk: power.Disk) -> None:
        folder = out / str(number)
        folder.mkdir()
        disk.restore(folder / "left", plan.mode, random.Random(number))
        (folder / REQUIRED).write_text(json.dumps(saved_step(root / "run")))

    from zoo import cli

    exec(plan.fault, {})
    with power.recorded(root, plan.cuts, save) as count:
        code = cli.main(["train", *arguments])
    (out / COUNT).write_text(json.dumps(count()))
    return code


def saved_step(run: Path) -> int:
    """Return the step of the last checkpoint whose saving has ended, 0 without one."""
    link = run / checkpoint.FOLDER / "last"
    return int(link.readlink().name.removeprefix("step-")) if link.is_symlink() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
