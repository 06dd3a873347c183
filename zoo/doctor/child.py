"""Findings of the diagnosis, and probes in a process of their own, which may crash, hang or print anything.

The child (python -m zoo.doctor.child PROBE ARGUMENT ...) prints a fact as soon as it has found it out, so that it is
known even if the process crashes afterwards.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from zoo import program
from zoo.data.errors import UserError

# States, as they are printed.
OK = "ok"
ABSENT = "-"
WARNING = "warn"
FAILURE = "FAIL"
WIDTH = 100  # columns of a line
TOPIC, STATE = 17, 5  # columns
Report = Callable[..., None]  # facts by name
MARK = "diagnosis: "  # of a line with facts, among what libraries print
MAX_ERROR, MAX_QUOTE = 400, 80  # characters of an error, and of what a process printed last
PROBES = {  # name -> module and its function of (report, *arguments)
    "device": "zoo.doctor.framework:probe",
    "update": "zoo.doctor.update:probe",
    "module": "zoo.doctor.machine:probe_module",
}


class Finding(NamedTuple):
    """A finding about one part of the machine.

    Attributes:
        state: OK; ABSENT, not here and not missed; WARNING, something will be slow or will not work; FAILURE, training
            cannot start here, or not on this device.
        remedy: what to do about it; empty where nothing is to be done.
    """

    section: str
    topic: str
    state: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        """Return it as a line; where it is longer than WIDTH, it goes on in the column of the text."""
        text = self.text + (f"; {self.remedy}" if self.remedy else "")
        head = f"  {self.topic:<{TOPIC}} {self.state:<{STATE}}"
        return textwrap.fill(
            " ".join(text.split()),
            WIDTH,
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_long_words=False,
            break_on_hyphens=False,
        )


def has_failure(findings: Iterable[Finding]) -> bool:
    return any(finding.state == FAILURE for finding in findings)


class Answer(NamedTuple):
    """Facts from a child process.

    Attributes:
        facts: by name, those before a failure too. `stage` is what it began last.
        failure: why there are no more; None if the probe ended as it should.
    """

    facts: dict[str, Any]
    failure: str | None = None


def ask(seconds: float, probe: str, *arguments: str) -> Answer:
    """Run a probe in a child process, whose processes are killed after so many seconds."""
    path = os.pathsep.join(filter(None, [str(program.ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "zoo.doctor.child", probe, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    failure = ""
    try:
        output, errors = process.communicate(timeout=seconds)
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        failure = f"did not end within {seconds:g} s"
        output, errors = process.communicate()
    facts: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith(MARK):
            facts |= json.loads(line.removeprefix(MARK))
    if process.returncode < 0 and not failure:
        failure = f"crashed with {signal.Signals(-process.returncode).name}"
    if not failure and not facts.keys() & {"error", "done"}:
        said = [line.strip()[:MAX_QUOTE] for line in f"{output}\n{errors}".splitlines() if line.strip()]
        failure = f"ended with exit code {process.returncode} and without an answer, after {said[-1:]}"
    if failure and "stage" in facts:
        failure += f" while {facts['stage']}"
    return Answer(facts, failure or facts.get("error"))


def report(**facts: Any) -> None:
    """Print facts for the parent process; a library may have left a line unfinished."""
    print("\n" + MARK + json.dumps(facts), flush=True)


def first_line(error: BaseException) -> str:
    """Return the message of an error in one line; its type too where the message alone says little."""
    text = str(error).strip().partition("\n")[0]
    known = text and isinstance(error, UserError | OSError | ImportError)
    return (text if known else f"{type(error).__name__}: {text or 'no message'}")[:MAX_ERROR]


def main(probe: str, *arguments: str) -> None:
    """Run a probe and end the process at once: not every framework ends well where nothing was computed."""
    try:
        module, function = PROBES[probe].split(":")
        getattr(importlib.import_module(module), function)(report, *arguments)
        report(done=True)
    except BaseException as error:  # a library may raise anything, SystemExit included
        report(error=first_line(error))
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
