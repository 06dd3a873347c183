"""Files by http:// and https:// addresses, each downloaded for one prediction."""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from zoo.data import addresses, sources
from zoo.data.errors import BadSample
from zoo.weights.download import TransferError, chunks

SCHEMES = ("http://", "https://")
MAX_BYTES = 1 << 30
DEADLINE_S = 600.0


def is_url(source: str) -> bool:
    """Return whether a text is the address of a file; one that leads into an archive is opened as in data.root."""
    is_archive = sources.ARCHIVE.fullmatch(source) and not addresses.has_secret(source)
    return source.lower().startswith(SCHEMES) and not is_archive


def file_name(source: str) -> str:
    """Return the path of a file, or an address without its query: both end in the name of the file."""
    return re.split("[?#]", source)[0] if is_url(source) else source


def without_secrets(address: str) -> str:
    """Return an address without user, password, query and fragment, which may hold a key."""
    return re.split("[?#]", re.sub(r"(?<=://)[^/]*@", "", address))[0]


def shown_name(source: str) -> str:
    """Return a file's name as it is printed and written: of an address without secrets, with a digest of its query."""
    if not is_url(source):
        return source
    query = source[len(file_name(source)) :]
    return without_secrets(source) + (f"?sha256={hashlib.sha256(query.encode()).hexdigest()[:8]}" if query else "")


@contextmanager
def local_path(source: str) -> Iterator[str]:
    """Give the path of a file; what has an address is downloaded, and removed afterwards. Raises BadSample."""
    if not is_url(source):
        yield source
        return
    with tempfile.NamedTemporaryFile(suffix=os.path.splitext(file_name(source))[1]) as file:
        try:
            for chunk in chunks(source, deadline_s=DEADLINE_S):
                file.write(chunk)
                if file.tell() > MAX_BYTES:
                    raise BadSample(f"has more than {MAX_BYTES >> 20} MiB; download it yourself first")
        except (OSError, TransferError) as error:
            raise BadSample(f"cannot be downloaded ({error}); check the address") from None
        file.flush()
        yield file.name
