"""Examine what works on this machine and why the rest does not: devices, drivers, libraries, frameworks, launchers."""

import re
from collections.abc import Sequence

from zoo import program
from zoo.commands.new_file import STANDARD_OUTPUT, add_json_argument, print_report, require_new
from zoo.data.errors import UserError
from zoo.doctor import framework
from zoo.doctor.child import Finding
from zoo.frameworks import FRAMEWORKS
from zoo.table import terminal_width, wrapped

EPILOG = """\
Each framework is asked in a process of its own, so that one that crashes or hangs is reported like any other problem.
One update of each model, with a tiny architecture on random data, shows that a framework computes: on a CPU what the
first framework computes there, on another device what the same framework computes on the CPU.

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
    arguments = parser().parse_args(argv)
    if arguments.device is not None and not DEVICE.fullmatch(arguments.device):
        raise UserError(f"--device {arguments.device}: expected auto, cpu, cuda, cuda:N, npu or npu:N")
    require_new(arguments.json, "--json")
    findings: list[Finding] = []

    def show(more: Sequence[Finding]) -> None:
        for finding in more:
            if arguments.json != STANDARD_OUTPUT:
                heading = finding.section if not findings or findings[-1].section != finding.section else ""
                print(wrapped(f"{heading}\n{finding}".lstrip("\n"), terminal_width()), flush=True)
            findings.append(finding)

    names = (arguments.framework,) if arguments.framework else FRAMEWORKS
    usable = framework.examine(names, arguments.device, arguments.quick, TIMEOUT, show)
    asked = f" with {arguments.framework}" * bool(arguments.framework) + f" on {arguments.device}" * bool(
        arguments.device
    )
    verdict = f"training cannot start{asked}"
    if usable:
        verdict = f"training can start: {', '.join(' on '.join(each) for each in usable)}"
    report = {"can_train": bool(usable), "usable": usable, "findings": [finding._asdict() for finding in findings]}
    print_report([verdict], report, arguments.json)
    return 0 if usable else 1


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("--framework", choices=FRAMEWORKS, help="ask this one alone; default all")
    add("--device", metavar="NAME", help="cpu, cuda, cuda:N, npu or npu:N; default: what train.py would take, and cpu")
    add("--quick", action="store_true", help="leave out the updates")
    add_json_argument(parser)
    return parser
