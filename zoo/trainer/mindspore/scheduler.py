"""Scheduler of MindSpore's cluster, through which the workers find each other: `scheduler PARENT`.

It ends with the process PARENT, which started it.
"""

import signal
import sys

import mindspore
from mindspore import communication

from zoo.data import host


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the workers, which save a checkpoint first
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    host.end_with_parent(int(sys.argv[1]), by_kernel=True)  # no Python thread runs while MindSpore waits
    mindspore.set_device("CPU")
    communication.init()  # returns when the last worker has left


if __name__ == "__main__":
    main()
