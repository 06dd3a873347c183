"""Tell what works on this machine and why the rest does not: devices, drivers, libraries, frameworks, launchers."""

import argparse
import os
import re
from collections.abc import Sequence

from zoo import program
from zoo.commands.new_file import require_new
from zoo.data.errors import UserError
from zoo.doctor import modules, page

# Modules that import numpy and others are imported only when `modules.missing` has found nothing missing.

EPILOG = """\
Each framework is asked in a process of its own, so that one that crashes or hangs is told like any other problem. One
update of each model, with a tiny architecture on random data, shows that a framework computes: on a CPU what the first
framework computes there, on another device what the same framework computes on the CPU.

`warn` is something that will be slow or will not work, FAIL what training cannot start with, - what is not here.

examples
  %(prog)s                                   everything: one to three minutes
  %(prog)s --quick                           without the updates
  %(prog)s --framework torch --device cuda   can this framework train on the GPU?
Exit codes: 0 training can start, with at least one framework and device of those asked for; 1 it cannot; 2 wrong usage.
"""
DEVICE = re.compile(r"auto|cpu|(cuda|npu)(:\d+)?")
TIMEOUT = 600.0  # seconds of a process


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    check(arguments)
    return examine(arguments)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("--framework", choices=("torch", "paddle", "mindspore"), help="ask this one alone; default all")
    add("--device", metavar="NAME", help="cpu, cuda, cuda:N, npu or npu:N; default: what train.py would take, and cpu")
    add("--quick", action="store_true", help="leave out the updates")
    add("--timeout", type=float, metavar="SECONDS", default=TIMEOUT, help="of each process; default 600")
    add("--json", metavar="FILE", help="write the findings to a new file, too")
    return parser.parse_args(argv)


def check(arguments: argparse.Namespace) -> None:
    """Raise UserError if an option has an impossible value."""
    if arguments.device is not None and not DEVICE.fullmatch(arguments.device):
        raise UserError(f"--device {arguments.device}: expected auto, cpu, cuda, cuda:N, npu or npu:N")
    try:
        os.getcwd()
    except OSError:
        raise UserError("the current folder has been removed; change to another one") from None
    if not arguments.timeout > 0:
        raise UserError("--timeout: must be more than 0")
    require_new(arguments.json, "--json")


def examine(arguments: argparse.Namespace) -> int:
    """Print the diagnosis and return the exit code."""
    printer = page.Printer()
    usable: Sequence[tuple[str, str]] = ()
    missing = modules.missing()
    if missing:
        findings = [modules.describe_missing(missing)]
        printer.show(findings)
    else:
        from zoo.doctor import examination
        from zoo.frameworks import FRAMEWORKS

        frameworks = (arguments.framework,) if arguments.framework else FRAMEWORKS
        question = examination.Question(frameworks, arguments.device, arguments.quick, arguments.timeout)
        findings, usable = examination.examine(question, printer.show)
    names = [f"{framework} on {device}" for framework, device in usable]
    asked = " ".join(word for word in (arguments.framework, arguments.device and f"on {arguments.device}") if word)
    verdict = f"training can start: {', '.join(names)}" if names else "training cannot start"
    print(verdict + (f" with {asked}" if asked and not names else ""))
    if arguments.json:
        page.write(arguments.json, findings, {"can_train": bool(usable), "usable": [[*each] for each in usable]})
    return 0 if usable else 1
