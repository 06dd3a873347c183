"""Check and time the zoo on a GPU: parity with the CPU, speeds, demos, resumes, profiles, in order of worth."""

import argparse
import os
import re
import sys
from pathlib import Path

from zoo.bench.gpu_checks import execution, models, plan, tables
from zoo.bench.gpu_checks.plan import Setting
from zoo.bench.gpu_checks.results import FAILED, Results, read_all
from zoo.bench.gpu_checks.step import Step
from zoo.bench.matrix.cases import CHECKOUT
from zoo.bench.matrix.process import Stopped, StopSignal
from zoo.bench.peers.upstream import require_clones
from zoo.data.errors import UserError
from zoo.frameworks import FRAMEWORKS

EPILOG = """\
Every step is a program of its own with a time limit. Its result is a file in OUT/results; its output is in OUT/logs.
The same command goes on where it was interrupted: what has a result is not repeated, but steps that failed are with
--retry. A step that fails does not keep the others from being run.

It needs what a framework needs for synthetic data. Steps that need more (OpenCV and others for files, DALI, other
projects) are skipped with the reason. --dry runs all steps with tiny networks and few updates on a CPU: to try the
check itself.

examples
  python tools/gpu_check.py --out runs/gpu_check --budget 50
  python tools/gpu_check.py --out runs/gpu_check --only speed,parity
  python tools/gpu_check.py --out runs/gpu_check --page docs/performance.md --budget 0
  python tools/gpu_check.py --out runs/gpu_check_dry --dry

Exit codes: 0 all steps are done or skipped, 1 some failed, 2 an error to fix on your side, 3 the budget has ended."""
DEVICE = re.compile(r"cpu|(cuda|npu)(:\d+)?")
OVER = 3  # exit code: steps are left
ALL_DAY = 24 * 60  # minutes


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    try:
        return check(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Stopped as stopped:
        print(f"\nstopped by signal {stopped.number}; the same command goes on", file=sys.stderr)
        return 128 + stopped.number


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", metavar="DIR", required=True, help="folder of results, logs and runs; new, or of the same check")
    add("--device", metavar="NAME", help="cuda, cuda:N, npu or npu:N; default cuda, with --dry cpu")
    add(
        "--frameworks",
        metavar="A,B",
        help=f"of {', '.join(FRAMEWORKS)}; default: those installed, with --dry the first",
    )
    add("--upstream", metavar="DIR", help="folder of copies of other projects, whose loops are timed, too")
    add("--budget", type=float, default=ALL_DAY, metavar="MINUTES", help="start and run nothing beyond this time")
    add("--only", metavar="A,B", help=f"groups of steps, or names of steps; groups: {', '.join(plan.GROUPS)}")
    add("--retry", action="store_true", help="run steps that failed again")
    add("--dry", action="store_true", help="tiny networks and few updates, to try the check itself")
    add("--list", action="store_true", help="list the steps and stop")
    add(
        "--page",
        metavar="FILE",
        help="write the tables between the marks of this page, too, such as docs/performance.md",
    )
    return parser.parse_args(argv)


def check(arguments: argparse.Namespace) -> int:
    """Run the steps and print the tables; return the exit code.

    Raises:
        UserError: an argument is wrong.
        Stopped: a signal came.
    """
    if arguments.budget < 0:
        raise UserError("--budget: must not be negative")
    setting = read_setting(arguments)
    if arguments.page:
        tables.require_marks(Path(arguments.page))
    steps = plan.steps(setting)
    chosen = select(steps, arguments.only)
    if arguments.list:
        print("\n".join(f"{step.name:<44}{step.missing or ''}" for step in chosen))
        return 0
    common = {"device": setting.device, "dry": setting.dry}
    results = Results(setting.out, common)
    for step in chosen:
        if arguments.retry and (result := results.get(step)) and result["state"] == FAILED:
            results.forget(step)
    # The programs of the steps are found without an installed package, and by the processes that they start.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CHECKOUT), os.environ.get("PYTHONPATH")]))
    left = execution.run_all(chosen, results, 60 * arguments.budget, StopSignal(), lambda line: print(line, flush=True))
    found = read_all(setting.out, steps)
    text = tables.lines(steps, found)
    if setting.dry:
        text = ["A dry run: tiny networks, few updates. Its numbers say nothing about any device.", "", *text]
    (setting.out / "report.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    print("\n" + "\n".join(text))
    if arguments.page:
        tables.update(Path(arguments.page), text)
    if left:
        print(f"\nthe budget has ended; left: {', '.join(step.name for step in left)}; the same command goes on")
    if any(found.get(step.name, {}).get("state") == FAILED for step in chosen):
        return 1
    return OVER if left else 0


def read_setting(arguments: argparse.Namespace) -> Setting:
    """Return what the check runs on.

    Raises:
        UserError: a framework is unknown or not installed.
    """
    installed = [name for name in FRAMEWORKS if models.is_installed(name)]
    names = arguments.frameworks.split(",") if arguments.frameworks else installed[: 1 if arguments.dry else None]
    for name in names:
        if name not in FRAMEWORKS:
            raise UserError(f"--frameworks: there is no {name!r}; there are: {', '.join(FRAMEWORKS)}")
        if name not in installed:
            raise UserError(f"{name} is not installed here: pip install '.[{name}]'")
    if not names:
        raise UserError(f"no framework is installed here: pip install '.[{','.join(FRAMEWORKS)}]'")
    device = arguments.device or ("cpu" if arguments.dry else "cuda")
    if not DEVICE.fullmatch(device):
        raise UserError(f"--device {device}: expected cpu, cuda, cuda:N, npu or npu:N")
    upstream = Path(arguments.upstream).absolute() if arguments.upstream else None
    if upstream:
        require_clones(str(upstream))
    return Setting(Path(arguments.out).absolute(), device, names, arguments.dry, upstream)


def select(steps: list[Step], only: str | None) -> list[Step]:
    """Return the steps of some groups or names, all without any.

    Raises:
        UserError: there is no such group or step.
    """
    if not only:
        return steps
    words = only.split(",")
    known = {step.group for step in steps} | {step.name for step in steps}
    for word in words:
        if word not in known:
            raise UserError(f"--only: there is no step or group {word!r}; --list shows them")
    return [step for step in steps if step.group in words or step.name in words]
