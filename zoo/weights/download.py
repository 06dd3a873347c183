"""Downloads by https, and by http where the address says so: a file gets its name when it is complete and checked.

Only files whose hash is known go on where they were cut: what else is joined of two answers could be of two files.
"""

import http.client
import os
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote, urlsplit

from zoo.data.errors import UserError
from zoo.weights import files

TIMEOUT_S = 20.0  # without a byte
DEADLINE_S = 7200.0  # of a file
CHUNK_BYTES = 1 << 18
MAX_BYTES = 1 << 30  # of a file whose size is not known
ROUNDED_BYTES = 1 << 10  # by which sizes in MiB are off at most
URL_CHARACTERS = "%/:=&?~#+!$,;'@()*[]"  # that an address holds as they are


class TransferError(Exception):
    """An address does not give its file, or not to the end."""


class NotDownloaded(UserError):
    """None of the addresses of a file gives it."""


def chunks(url: str, start: int = 0, deadline_s: float = DEADLINE_S) -> Iterator[bytes]:
    """Yield what an address has, from the byte `start` on; nothing if it has no more.

    Redirects lead to https, from an http:// address to http as well, and nowhere else.

    Raises:
        TransferError: The address is wrong, the network is absent, or the connection ended too early or lasts too long.
    """
    try:
        if "@" in urlsplit(url).netloc:
            raise TransferError("addresses with a user or a password are not taken")
        request = urllib.request.Request(
            quote(url, URL_CHARACTERS), headers={"Range": f"bytes={start}-"} if start else {}
        )
        with _opener(deadline_s) as (opener, is_late), opener.open(request, timeout=TIMEOUT_S) as response:
            skip = 0 if response.status == http.HTTPStatus.PARTIAL_CONTENT else start
            while (chunk := response.read1(CHUNK_BYTES)) and not is_late.is_set():
                yield chunk[skip:]
                skip = max(0, skip - len(chunk))
            if is_late.is_set():
                raise TimeoutError
            if response.length:  # bytes that were announced and did not come
                raise TransferError("the connection ended too early")
    except urllib.error.HTTPError as error:
        if error.code // 100 == 3:
            raise TransferError(f"HTTP Error {error.code}: it leads to an address that is not followed") from None
        if not (start and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE):
            raise TransferError(str(error)) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise TransferError(str(error)) from None


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        scheme, target = urlsplit(req.full_url).scheme.lower(), urlsplit(newurl)
        if target.scheme.lower() not in {"https", scheme} or "@" in target.netloc:
            raise TransferError(f"it leads to {target.scheme}://{target.hostname}, which is not followed from {scheme}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Watched(urllib.request.AbstractHTTPHandler):
    """Adds the sockets of its connections to a list."""

    def __init__(self, sockets: list[socket.socket]):
        super().__init__()
        self.sockets = sockets

    def do_open(self, http_class: Any, req: Any, **arguments: Any) -> Any:
        def connection(*words: Any, **options: Any) -> Any:
            made = http_class(*words, **options)
            connect = made.connect

            def connect_and_keep() -> None:
                connect()
                self.sockets.append(made.sock)

            made.connect = connect_and_keep
            return made

        return super().do_open(connection, req, **arguments)


class _Http(_Watched, urllib.request.HTTPHandler):
    pass


class _Https(_Watched, urllib.request.HTTPSHandler):
    pass


@contextmanager
def _opener(deadline_s: float) -> Iterator[tuple[urllib.request.OpenerDirector, threading.Event]]:
    """Give an opener for http and https alone, whose connections end after some time, and whether they have."""
    sockets: list[socket.socket] = []
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        for each in sockets:
            with suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)  # below TLS, whose reader gets an error

    opener = urllib.request.OpenerDirector()
    for handler in (
        *(urllib.request.ProxyHandler(), _Http(sockets), _Https(sockets), _Redirects()),
        *(urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPErrorProcessor()),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    timer = threading.Timer(deadline_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield opener, is_late
    except (OSError, ValueError, http.client.HTTPException):
        if is_late.is_set():
            raise TransferError(f"it takes more than {deadline_s:g} s") from None
        raise
    finally:
        timer.cancel()


def download(urls: Sequence[str], path: str, digits: str = "", mib: float | None = None) -> None:
    """Download a file, unless it is there, from the first of some addresses that gives it, and check it.

    If its hash is known, what has come is in PATH.part until it is complete: the next address, or the next call, goes
    on from there.

    Args:
        digits: with which its SHA-256 begins.

    Raises:
        NotDownloaded: No address gives the file, or what they give has another hash or size.
        OSError: It cannot be written; nothing is left of it.
    """
    part, reasons = f"{path}.part", []
    for url in () if os.path.exists(path) else urls:
        try:
            _receive(url, part, mib, "ab" if digits else "wb")
            check_file(part, digits, mib)
            os.replace(part, path)
            return
        except (TransferError, files.DamagedFile) as error:
            reasons.append(f"{urlsplit(url).hostname}: {error}")
            if isinstance(error, files.DamagedFile) or not digits or not os.path.getsize(part):
                os.remove(part)
        except OSError:
            with suppress(OSError):
                os.remove(part)  # a full disk needs the room
            raise
    if reasons:
        note = f" (the next call goes on from {os.path.getsize(part) / 2**20:.1f} MiB)" if os.path.exists(part) else ""
        name = os.path.basename(path)
        raise NotDownloaded(f"{name} cannot be downloaded: {'; '.join(reasons)}{note}. Place {urls[0]} as {path}")


def check_file(path: str, digits: str, mib: float | None) -> str:
    """Return the SHA-256 of a file. Raises files.DamagedFile if it, or the size, is not what is published."""
    size = os.path.getsize(path)
    if mib and abs(size - mib * 2**20) > ROUNDED_BYTES:
        raise files.DamagedFile(f"it has {size / 2**20:.3f} MiB, not {mib}")
    digest = files.sha256(path)
    if not digest.startswith(digits):
        raise files.DamagedFile(f"its SHA-256 begins with {digest[:8]}, not with {digits}")
    return digest


def _receive(url: str, path: str, mib: float | None, mode: str) -> None:
    """Write or append what a file lacks of an address, and show a progress line on a terminal."""
    is_terminal, of_total, name = sys.stderr.isatty(), f" of {mib:.0f}" if mib else "", os.path.basename(url)
    limit = int(mib * 2**20) + ROUNDED_BYTES if mib else MAX_BYTES
    print(f"downloading {url}", file=sys.stderr, flush=True)
    with open(path, mode) as file:
        for chunk in chunks(url, file.tell()):
            file.write(chunk)
            if file.tell() > limit:
                raise files.DamagedFile(f"it has more than {limit / 2**20:.1f} MiB")
            if is_terminal:  # the cursor stays at the start: what is printed next takes the place of this line
                print(f"{name}: {file.tell() >> 20}{of_total} MiB", end="\r", file=sys.stderr, flush=True)
        file.flush()
        os.fsync(file.fileno())
