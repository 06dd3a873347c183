"""The limit of open files of a process (`ulimit -n`), of which rank 0 needs two per other rank."""

import resource

from zoo.data.errors import UserError

RESERVE = 512  # files beside the connections: libraries, devices, data workers, connections that wait


def ensure(connections: int) -> None:
    """Raise the soft limit of this process if it is too low for this many connections.

    Raises:
        UserError: The hard limit does not allow it.
    """
    needed = connections + RESERVE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UserError(
            f"rank 0 needs {needed} open files for its {connections} connections, but this host allows {hard} per "
            f"process; start it where `ulimit -Hn` is {needed} or more"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
