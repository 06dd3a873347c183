"""Environment variables that the frameworks read when they are imported. Values set by the user are kept."""

import os
import socket

import psutil

from zoo.distributed.control_group import Group


def prepare(group: Group) -> None:
    """Divide the cores of a machine among the processes that share them, and name gloo's network interface."""
    if group.size == 1:
        return
    host_and_cores = [socket.gethostname(), sorted(os.sched_getaffinity(0))]
    sharing = group.all_gather(host_and_cores).count(host_and_cores)
    if sharing > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(host_and_cores[1]) // sharing)))
    interface = interface_of(group.launch.local_address)
    if interface:  # without it, gloo takes the interface of the host name, which may be the loopback
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def interface_of(address: str) -> str | None:
    """Return the name of the network interface that has a numeric address, such as eth0; None if there is none."""
    for name, entries in psutil.net_if_addrs().items():
        if address in (entry.address.partition("%")[0] for entry in entries):
            return name
    return None
