"""Scheduler of MindSpore's cluster, through which the workers find each other: `scheduler PARENT`.

It ends with the process PARENT, which started it.
"""

import ctypes
import os
import signal
import sys

import mindspore
from mindspore import communication

PR_SET_PDEATHSIG = 1  # of Linux's prctl


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the workers, which save a checkpoint first
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # The kernel's signal, because no Python thread runs while MindSpore waits.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):  # it has ended while MindSpore was imported
        return
    mindspore.set_device("CPU")
    communication.init()  # returns when the last worker has left


if __name__ == "__main__":
    main()
