"""Run the command of a rank and record how it ended: `python -IS rank_process.py FILE COMMAND...`.

The file gets one line: the exit code (minus the signal that killed it) and the time. tools/launch.py finds in these
files which rank failed first. A program of its own with little of the standard library, because it stays in memory.
"""

import ctypes
import os
import signal
import sys
import time
from types import FrameType

PR_SET_PDEATHSIG = 1  # of Linux's prctl


def main(path: str, command: list[str]) -> None:
    """Run the command, pass signals on to it, record its end in the file, and end in the same way."""
    libc, parent = ctypes.CDLL(None), os.getpid()
    child = os.fork()
    if not child:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # who kills this process means the rank
        if os.getppid() == parent:
            os.execvp(command[0], command)
        os._exit(1)

    def forward(number: int, _frame: FrameType | None) -> None:
        os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(path, "w", encoding="ascii") as file:
        file.write(f"{code} {time.time():.3f}\n")
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):  # which cannot be handled anyway
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code if code >= 0 else 1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
