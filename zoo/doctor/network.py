"""Names, addresses and ports of this host, which the processes of a run meet at."""

import socket

from zoo.doctor.finding import OK, WARNING, Finding

SECTION = "machine"
LOCAL = "127.0.0.1"
OUTSIDE = ("192.0.2.1", 9)  # no host has this address; connecting a datagram socket sends nothing
TIMEOUT = 5.0  # seconds of a connection to this host


def examine() -> list[Finding]:
    """Return the lines about the host's name and its ports."""
    return [host_name(), ports()]


def host_name() -> Finding:
    """Return whether this host's name has an address; launchers give the name to the other processes."""
    name = socket.gethostname()
    try:
        addresses = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        remedy = f"add a line '{LOCAL} {name}' to /etc/hosts; runs of one process need no name"
        return Finding(SECTION, "host name", WARNING, f"{name} has no address ({reason})", remedy)
    return Finding(SECTION, "host name", OK, f"{name} is {', '.join(sorted(addresses))}")


def ports() -> Finding:
    """Return whether this host can listen and connect to itself, locally and on its own address."""
    own = own_address()
    addresses = list(dict.fromkeys([LOCAL, *([own] if own else [])]))
    for address in addresses:
        reason = _cannot_connect(address)
        if reason:
            remedy = "let a firewall or sandbox allow connections of this host to itself; runs of one process need none"
            return Finding(SECTION, "ports", WARNING, f"no connection to {address} of this host: {reason}", remedy)
    text = f"can listen on {' and '.join(addresses)}"
    return Finding(SECTION, "ports", OK, text if own else f"{text}; no other network")


def own_address() -> str | None:
    """Return the address from which this host would reach others; None without a network."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(OUTSIDE)
            return probe.getsockname()[0]
    except OSError:
        return None


def _cannot_connect(address: str) -> str | None:
    """Return why a connection to a free port of an address fails; None if it works."""
    try:
        with (
            socket.create_server((address, 0)) as listener,
            socket.create_connection(listener.getsockname()[:2], TIMEOUT) as client,
        ):
            client.sendall(b"0")
    except OSError as error:
        return error.strerror or str(error)
    return None
