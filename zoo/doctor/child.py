"""Questions that a process of its own answers: it may crash, hang or print anything without harm to the diagnosis."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any, NamedTuple

from zoo import program
from zoo.doctor.worker import DONE, ERROR, MARK, STAGE

MAX_QUOTE = 80  # characters of what a process printed last
NOISE = ("Traceback", "File ", "Fatal Python error", "Extension modules", "Current thread", "<no Python frame>")


class Answer(NamedTuple):
    """What a child process found out.

    Attributes:
        facts: by name; what was told before a failure too.
        failure: why there are no more; None if the probe ended as it should.
    """

    facts: dict[str, Any]
    failure: str | None = None


def ask(seconds: float, probe: str, *arguments: str, environment: dict[str, str] | None = None) -> Answer:
    """Run a probe of zoo/doctor/worker.py.

    Args:
        seconds: after which its processes are killed.
        probe: its name.
        arguments: of the probe.
        environment: variables beside those of this process.
    """
    path = os.pathsep.join(filter(None, [str(program.ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "zoo.doctor.worker", probe, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, **(environment or {})},
        start_new_session=True,
    )
    ended = True
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        ended = False
        _kill(process)
        output, errors = process.communicate()
    except BaseException:
        _kill(process)
        raise
    facts = read_facts(output.decode("utf-8", "replace"))
    if not ended:
        return Answer(facts, f"did not end within {seconds:g} s{_doing(facts)}")
    return Answer(facts, _failure(facts, process.returncode, (output + b"\n" + errors).decode("utf-8", "replace")))


def read_facts(output: str) -> dict[str, Any]:
    """Return the facts among the lines of a child's output; lines that cannot be read are left out."""
    facts: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith(MARK):
            with suppress(ValueError):
                told = json.loads(line.removeprefix(MARK))
                if isinstance(told, dict):
                    facts.update(told)
    return facts


def _failure(facts: dict[str, Any], code: int, output: str) -> str | None:
    """Return why a process that has ended gave no complete answer; None if it did."""
    if isinstance(facts.get(ERROR), str):
        return facts[ERROR]
    if code < 0:
        return f"crashed with {_signal_name(-code)}{_doing(facts)}"
    if facts.get(DONE) is True:
        return None
    said = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith(MARK)]
    said = [line for line in said if not line.startswith(NOISE)]
    quoted = f", its last line is {said[-1][:MAX_QUOTE]!r}" if said else ""
    return f"ended with exit code {code} and without an answer{_doing(facts)}{quoted}"


def _doing(facts: dict[str, Any]) -> str:
    stage = facts.get(STAGE)
    return f" while {stage}" if isinstance(stage, str) else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _kill(process: subprocess.Popen) -> None:
    """Kill a process with those that it started in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
