"""Environment variables that the frameworks read when they are imported. Values set by the user are kept."""

import os
import socket

import psutil

from zoo.data import host
from zoo.distributed.control_group import Group


def prepare(group: Group) -> None:
    """Divide the cores of a machine among the processes that share them, and name gloo's network interface.

    Libraries count the cores of the affinity mask, but know neither the limit of a container nor other processes. With
    more threads than cores, each parallel operation waits for threads that do not run.
    """
    mine = [socket.gethostname(), host.cores()]
    ranks = group.all_gather(mine)
    local = [index for index, (name, _) in enumerate(ranks) if name == mine[0]]
    share = host.core_share([ranks[index][1] for index in local], local.index(group.rank), host.cpu_quota())
    if share < len(mine[1]):
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, int(share))))
    if group.size == 1:
        return
    interface = interface_of(group.launch.local_address)
    if interface:  # without it, gloo takes the interface of the host name, which may be the loopback
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def interface_of(address: str) -> str | None:
    """Return the name of the network interface that has a numeric address, such as eth0; None if there is none."""
    for name, entries in psutil.net_if_addrs().items():
        if address in (entry.address.partition("%")[0] for entry in entries):
            return name
    return None
