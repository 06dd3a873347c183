"""Downloads by http and https: a file gets its name when it is complete, and goes on where it was cut."""

import http.client
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from zoo.data.errors import UserError
from zoo.weights import files

TIMEOUT_S = 20.0  # without a byte
CHUNK_BYTES = 1 << 18


class TransferError(Exception):
    """An address does not give its file, or not to the end."""


class NotDownloaded(UserError):
    """None of the addresses of a file gives it."""


def chunks(url: str, start: int = 0) -> Iterator[bytes]:
    """Yield what an address has, from the byte `start` on; nothing if it has no more.

    Raises:
        TransferError: The address is wrong, the network is absent, or the connection ended too early.
    """
    try:
        request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            skip = 0 if response.status == http.HTTPStatus.PARTIAL_CONTENT else start
            while chunk := response.read(CHUNK_BYTES):
                yield chunk[skip:]
                skip = max(0, skip - len(chunk))
            if response.length:  # bytes that were announced and did not come
                raise TransferError("the connection ended too early")
    except urllib.error.HTTPError as error:
        if not (start and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE):
            raise TransferError(str(error)) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise TransferError(str(error)) from None


def download(urls: Sequence[str], path: str, digits: str = "", mib: float | None = None) -> None:
    """Download a file, unless it is there, from the first of some addresses that gives it, and check its hash.

    What has come is in PATH.part until it is complete: the next address, or the next call, goes on from there.

    Args:
        urls: of the same file.
        path: of the file.
        digits: with which its SHA-256 begins.
        mib: its size, for the progress line.

    Raises:
        NotDownloaded: No address gives the file, or what they give has another hash.
        OSError: It cannot be written; nothing is left of it.
    """
    part, reasons = f"{path}.part", []
    for url in () if os.path.exists(path) else urls:
        try:
            _receive(url, part, mib)
            check_digits(part, digits)
            os.replace(part, path)
            return
        except (TransferError, files.DamagedFile) as error:
            reasons.append(f"{urlsplit(url).hostname}: {error}")
            if isinstance(error, files.DamagedFile) or not os.path.getsize(part):
                os.remove(part)
        except OSError:
            with suppress(OSError):
                os.remove(part)  # a full disk needs the room
            raise
    if reasons:
        note = f" (the next call goes on from {os.path.getsize(part) / 2**20:.1f} MiB)" if os.path.exists(part) else ""
        name = os.path.basename(path)
        raise NotDownloaded(f"{name} cannot be downloaded: {'; '.join(reasons)}{note}. Place {urls[0]} as {path}")


def check_digits(path: str, digits: str) -> str:
    """Return the SHA-256 of a file. Raises files.DamagedFile if it does not begin with these digits."""
    digest = files.sha256(path)
    if not digest.startswith(digits):
        raise files.DamagedFile(f"its SHA-256 begins with {digest[:8]}, not with {digits}")
    return digest


def _receive(url: str, path: str, mib: float | None) -> None:
    """Append what a file lacks of an address, and show a progress line on a terminal."""
    is_terminal, of_total, name = sys.stderr.isatty(), f" of {mib:.0f}" if mib else "", os.path.basename(url)
    print(f"downloading {url}", file=sys.stderr, flush=True)
    with open(path, "ab") as file:
        for chunk in chunks(url, file.tell()):
            file.write(chunk)
            if is_terminal:  # the cursor stays at the start: what is printed next takes the place of this line
                print(f"{name}: {file.tell() >> 20}{of_total} MiB", end="\r", file=sys.stderr, flush=True)
        file.flush()
        os.fsync(file.fileno())
