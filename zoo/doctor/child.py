"""Questions that a process of its own answers: it may crash, hang or print anything without harm to the diagnosis.

The child (python -m zoo.doctor.child PROBE ARGUMENT ...) prints a fact as soon as it has found it out, so that it is
known even if the process crashes afterwards.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from zoo import program
from zoo.data.errors import UserError

Tell = Callable[..., None]  # facts by name
MARK = "diagnosis: "  # of a line with facts, among what libraries print
STAGE, ERROR, DONE = "stage", "error", "done"  # names of facts: what is done next, why it failed, whether it ended
MAX_ERROR = 400  # characters
PROBES = {  # name -> module and its function of (tell, *arguments)
    "driver": "zoo.doctor.nvidia:probe_driver",
    "libraries": "zoo.doctor.nvidia:probe_libraries",
    "device": "zoo.doctor.framework:probe",
    "update": "zoo.doctor.update:probe",
    "module": "zoo.doctor.machine:probe_module",
}
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
    """Run a probe in a child process.

    Args:
        seconds: after which its processes are killed.
        probe: its name.
        arguments: of the probe.
        environment: variables beside those of this process.
    """
    path = os.pathsep.join(filter(None, [str(program.ROOT), os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "zoo.doctor.child", probe, *arguments],
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


def tell(**facts: Any) -> None:
    """Print facts for the parent process; a library may have left a line unfinished."""
    print("\n" + MARK + json.dumps(facts), flush=True)


def first_line(error: BaseException) -> str:
    """Return the message of an error in one line; its type too where the message alone says little."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else "no message"
    known = isinstance(error, UserError | OSError | ImportError)
    return (text if known and lines else f"{type(error).__name__}: {text}")[:MAX_ERROR]


def main(probe: str, *arguments: str) -> None:
    """Run a probe and end the process at once: not every framework ends well where nothing was computed."""
    try:
        module, function = PROBES[probe].split(":")
        getattr(importlib.import_module(module), function)(tell, *arguments)
        tell(done=True)
    except BaseException as error:  # a library may raise anything, SystemExit included
        tell(error=first_line(error))
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
