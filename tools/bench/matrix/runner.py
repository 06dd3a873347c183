"""The process between the benchmark and a run: it ends the whole run when the benchmark ends, in whatever way.

It is started by its path and imports nothing of this project: a run may be that of another checkout.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

import psutil

PR_SET_CHILD_SUBREAPER = 36  # of Linux's prctl
POLL_INTERVAL = 0.1  # seconds
GRACE_PERIOD = 3.0  # seconds between asking processes to end and killing them


def run(command: Sequence[str]) -> int:
    """Run a command until it ends, or until the standard input is closed; then end all processes it has started.

    Returns:
        Its exit code, 128 + signal if it was killed.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans of the command become children of this process
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal sends them to all; the program closes the pipe
        signal.signal(number, signal.SIG_IGN)
    # Signals that are ignored stay so in a new program, unless they are reset before it starts.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_reset_signals)
    while process.poll() is None and not _is_closed():
        pass
    is_aborted = process.poll() is None
    _end(psutil.Process().children(recursive=True), 0.0 if is_aborted else GRACE_PERIOD)
    code = process.wait()
    return code if code >= 0 else 128 - code


def _is_closed() -> bool:
    """Wait a moment; return whether the standard input was closed."""
    return bool(select.select([sys.stdin], [], [], POLL_INTERVAL)[0]) and not os.read(0, 1)


def _reset_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _end(processes: Sequence[psutil.Process], delay: float) -> None:
    """End processes: after a delay in seconds by SIGTERM, then by SIGKILL."""
    _, alive = psutil.wait_procs(processes, delay)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in alive:
            with suppress(psutil.Error):
                process.send_signal(number)
        _, alive = psutil.wait_procs([*alive, *psutil.Process().children(recursive=True)], GRACE_PERIOD)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
