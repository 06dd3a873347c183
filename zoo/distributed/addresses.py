"""Addresses and ports of the hosts of a run."""

import socket
import zlib

from zoo.data.errors import UserError
from zoo.trainer.world import Launch

FIRST_PORT, PORT_RANGE, PORT_TRIES = 20000, 12000, 8  # below the ephemeral ports of common systems


def resolve(launch: Launch) -> str:
    """Return the numeric address of rank 0. Raises UserError if its host name is unknown."""
    try:
        return str(socket.getaddrinfo(launch.address, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:  # the latter: an empty or overlong label
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{launch.launcher} gives {launch.address!r} as the host of rank 0: {reason}; give the launcher "
            "a name that every host can resolve, or a numeric address"
        ) from None


def candidate_ports(launch: Launch) -> list[int]:
    """Return the ports that rank 0 may listen on: the same on all ranks, most likely others for another run."""
    offset = zlib.crc32(f"{launch.address} {launch.job}".encode()) % (PORT_RANGE - PORT_TRIES)
    return [FIRST_PORT + offset + number for number in range(PORT_TRIES)]


def free_port(address: str) -> int:
    """Return a port of this host that is not in use."""
    with socket.socket(address_family(address), socket.SOCK_STREAM) as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def address_family(address: str) -> int:
    """Return the socket family of a numeric address: IPv4 or IPv6."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET
