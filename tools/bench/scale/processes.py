"""Processes of a calibration: started at once, waited for together, and ended together if one fails."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from zoo import program
from zoo.data.errors import UserError

TIMEOUT = 3600.0  # seconds
POLL_INTERVAL = 0.1  # seconds
MAX_LOG = 2000  # characters of a process that failed


class Command(NamedTuple):
    """A process to start.

    Attributes:
        words: its command line.
        variables: of its environment, beside those of this process.
        log: new file for its output.
    """

    words: Sequence[str]
    variables: Mapping[str, str]
    log: Path


def run(commands: Sequence[Command], timeout: float = TIMEOUT) -> None:
    """Run processes at once.

    Raises:
        UserError: one failed, with the end of its output, or they took longer than `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    with _started(commands) as processes:
        while None in (codes := [process.poll() for process in processes]) and not any(codes):
            if time.monotonic() > deadline:
                raise UserError(f"the calibration waited {timeout:.0f} s for a process; {_tail(commands[0].log)}")
            time.sleep(POLL_INTERVAL)
        failed = next((command for command, code in zip(commands, codes) if code), None)
        if failed:
            raise UserError(f"a process of the calibration failed; {_tail(failed.log)}")


@contextlib.contextmanager
def _started(commands: Sequence[Command]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start processes, and end what is left of them on the way out."""
    path = os.pathsep.join(filter(None, (str(program.ROOT), os.environ.get("PYTHONPATH", ""))))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            with open(command.log, "xb") as log:
                environment = {**os.environ, "PYTHONPATH": path, **command.variables}
                processes.append(subprocess.Popen(command.words, stdout=log, stderr=subprocess.STDOUT, env=environment))
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            process.wait()


def _tail(log: Path) -> str:
    return "the end of its output:\n" + log.read_text(encoding="utf-8", errors="replace")[-MAX_LOG:].strip()
