"""Hosts of a run: from --hosts, or from a file in the forms of Open MPI, MPICH and batch systems."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

from zoo.data.errors import UserError
from zoo.data.numerals import natural

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*|[0-9A-Fa-f:]*:[0-9A-Fa-f:.%a-z]*")  # a name or an IPv6 address
SLOTS = re.compile(r"slots=([1-9][0-9]{0,8})")
MAX_SLOTS = re.compile(r"max[_-]slots=([1-9][0-9]{0,8})")


def read(names: str | None, file: str | None, count: int, per_host: int) -> list[str]:
    """Return the hosts of a run, the one of rank 0 first.

    Args:
        names: value of --hosts; None for this host, or those of the file.
        file: value of --hostfile. One host per line: `n1`, `n1 slots=8` (Open MPI) or `n1:8` (MPICH). A host on several
            lines has a slot for each (the node file of a batch system). `#` starts a comment.
        count: number of hosts that are needed.
        per_host: processes that each host has to take.

    Raises:
        UserError: A line cannot be read, there are fewer or more hosts, or a host has fewer slots.
    """
    if names and file:
        raise UserError("--hosts and --hostfile: give one of them")
    entries: list[tuple[str, str, int | None]] = []  # place, host, slots
    if file:
        entries = [_entry(line, place) for place, line in _lines(file)]
    elif names:
        entries = [_entry(name.strip(), "--hosts") for name in names.split(",")]
    slots: dict[str, int | None] = {}
    for place, host, number in entries:
        if host in slots and not file:
            raise UserError(f"{place}: {host} is named twice; processes per host are the second number of 4x8")
        slots[host] = (slots[host] or 1) + (number or 1) if host in slots else number
    hosts = list(slots) or ["localhost"]
    if len(hosts) != count:
        raise UserError(
            f"{count}x{per_host} needs {count} hosts, but there are {len(hosts)}: {', '.join(hosts)}; "
            "name them with --hosts or --hostfile"
        )
    for host, number in slots.items():
        if number is not None and number < per_host:
            raise UserError(f"{file or '--hosts'}: {host} has {number} slots, but {count}x{per_host} needs {per_host}")
    return hosts


def check_address(address: str, is_local: bool) -> None:
    """Check the value of --address.

    Args:
        address: of rank 0.
        is_local: whether rank 0 runs on this host.

    Raises:
        UserError: It is not a name or address, unknown here, or not one of this host although rank 0 runs here.
    """
    if not NAME.fullmatch(address):
        raise UserError(f"--address {address}: is not the name or address of a host")
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UserError(f"--address {address}: {error.strerror}; give a numeric address") from None
    if not is_local:
        return
    family, kind, protocol, _, place = found[0]
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(place)
    except OSError as error:
        raise UserError(
            f"--address {address}: is not an address of this host, where rank 0 runs ({error.strerror})"
        ) from None


def _lines(file: str) -> Iterator[tuple[str, str]]:
    """Yield place and text of the lines that are not empty, without comments."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--hostfile {file}: {getattr(error, 'strerror', None) or error}") from None
    texts = [(f"{file}, line {number}", line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    if not any(text for _, text in texts):
        raise UserError(f"--hostfile {file}: no host in it; write one per line, such as `n1 slots=8`")
    yield from ((place, text) for place, text in texts if text)


def _entry(text: str, place: str) -> tuple[str, str, int | None]:
    """Return place, host and slots (None without a limit) of a line."""
    name, *settings = re.sub(r"\s*=\s*", "=", text).split() or [""]
    host, colon, number = name.rpartition(":")
    if not colon or ":" in host:
        host, number = name, ""  # no slots; several colons: an IPv6 address
    if not NAME.fullmatch(host):
        raise UserError(
            f"{place}: {text!r} is not the name or address of a host; users and ports belong into "
            "~/.ssh/config, or to --shell and --ssh-port"
        )
    slots = number or next((match[1] for match in map(SLOTS.fullmatch, settings) if match), "")
    unknown = [word for word in settings if not (SLOTS.fullmatch(word) or MAX_SLOTS.fullmatch(word))]
    if unknown or (colon and number and not natural(number)) or (number and settings):
        raise UserError(f"{place}: cannot read {text!r}; write `{host}`, `{host} slots=8` or `{host}:8`")
    return place, host, int(slots) if slots else None
