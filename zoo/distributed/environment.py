"""What frameworks read from the environment when they are imported. What a user has set stays."""

import os
import socket

import psutil

from zoo.distributed.control_group import Group


def prepare(group: Group) -> None:
    """Divide a machine's cores among the processes that may use the same ones, and name the network they meet in."""
    if group.size == 1:
        return
    mine = [socket.gethostname(), sorted(os.sched_getaffinity(0))]
    sharing = group.all_gather(mine).count(mine)
    if sharing > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(mine[1]) // sharing)))
    interface = interface_of(group.launch.here)
    if interface:  # else gloo takes the one of the host name, which may be the loopback
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def interface_of(address: str) -> str | None:
    """The name of the network interface with an address, such as eth0."""
    return next(
        (
            name
            for name, entries in psutil.net_if_addrs().items()
            if address in (entry.address.partition("%")[0] for entry in entries)
        ),
        None,
    )
