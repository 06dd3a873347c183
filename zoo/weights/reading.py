"""Parts that all readers share: what is no weights, such as the page of a download site; 16-bit floats; messages.

Protocol buffers are parsed here and not by their library, which would hold every tensor twice.
"""

import codecs
import re
import zipfile
from collections.abc import Iterator

import numpy as np

from zoo.data.errors import UserError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
Value = int | memoryview
MAX_DIMS = 32  # of an array, of numpy before version 2
MAX_NUMBER = 1 << 29  # of a field, above any
HEAD = 512  # bytes to look at
TAR = 257  # offset of the name of the format
PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype|html|head|body|\?xml|!--|script|error)", re.IGNORECASE)
CONTROL = re.compile(rb"[^\t\n\r\x20-\x7e\x80-\xff]")
AGAIN = "download it again"
UNPACK = "unpack it, and give the file of weights in it"
BEGINNINGS = {  # of a file -> what it is
    b"\x1f\x8b": f"a gzip archive; {UNPACK}",
    b"BZh": f"a bzip2 archive; {UNPACK}",
    b"\xfd7zXZ": f"an xz archive; {UNPACK}",
    b"\x28\xb5\x2f\xfd": f"a zstd archive; {UNPACK}",
    b"7z\xbc\xaf\x27\x1c": f"a 7z archive; {UNPACK}",
    b"Rar!": f"a RAR archive; {UNPACK}",
    b"\x89HDF": "an HDF5 file, as Keras and MATLAB write; save the weights in PyTorch, Paddle or MindSpore",
    b"\x93NUMPY": "an array of numpy; save a state_dict",
    b"GGUF": "a GGUF file of a language model; give weights of a vision model",
    b"\x89PNG": "an image (PNG); give a file of weights",
    b"\xff\xd8\xff": "an image (JPEG); give a file of weights",
    b"%PDF": "a PDF document; give a file of weights",
}


def refuse(path: str, is_archive: bool = False) -> None:
    """Raise UserError, with the remedy, if a file is empty, a page, a text, an archive or another known format.

    Args:
        path: of a file; one that cannot be opened is left to its reader.
        is_archive: whether the weights are a ZIP archive, as those of PyTorch.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD)
    except OSError:
        return
    found = _what(path, head, is_archive)
    if found:
        raise UserError(f"{path} holds no weights: it is {found}")


def is_zip(path: str) -> bool:
    """Return whether a file is a ZIP archive in one piece."""
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile:  # of several disks
        return False


def widen(array: np.ndarray, is_bfloat16: bool = False) -> np.ndarray:
    """Return 16-bit floats as float32, and other arrays as they are.

    Args:
        array: of bfloat16, which numpy does not have, the bits as uint16: the upper half of a float32.
    """
    if is_bfloat16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _what(path: str, head: bytes, is_archive: bool) -> str | None:
    if not head:
        return f"empty; {AGAIN}"
    if not head.strip(b"\0"):
        return f"nothing but zeros, as a download that was cut leaves them; {AGAIN}"
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        return "a pointer of Git LFS, which stands for the file; get that with `git lfs pull`, or download it"
    if PAGE.match(head):
        return f"a page (HTML or XML), such as a login or an error of the site; {AGAIN}, from its direct address"
    if head[TAR : TAR + 5] == b"ustar":
        return f"a tar archive; {UNPACK}"
    if head.startswith(b"PK"):
        return _what_archive(path, is_archive)
    if head[8:10] == b'{"' and not path.endswith(".safetensors"):
        return "a safetensors file; give it a name that ends in .safetensors"
    text = head.strip()
    if not CONTROL.search(head) and _is_utf8(head):
        kind = "JSON" if text[:1] in (b"{", b"[") else "text"
        return f"{kind} that begins with {text[:40].decode(errors='replace')!r}, such as an error of the site; {AGAIN}"
    return next((what for beginning, what in BEGINNINGS.items() if head.startswith(beginning)), None)


def _is_utf8(head: bytes) -> bool:
    """Return whether bytes are UTF-8, of which the last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _what_archive(path: str, is_archive: bool) -> str | None:
    if not is_zip(path):
        return f"the beginning of a ZIP archive or of a file of PyTorch; {AGAIN}, to its end"
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return None  # its reader says why
    if not any(name.endswith("data.pkl") for name in names):
        return f"a ZIP archive of {len(names)} files, such as {', '.join(names[:2])}; {UNPACK}"
    if any("/code/" in name for name in names):
        return "a program (TorchScript); load it with torch.jit.load, and save its state_dict()"
    return None if is_archive else "a file of PyTorch (torch.save); give it a name that ends in .pth"


def parse_message(message: memoryview, fixed: bool = False) -> Iterator[tuple[int, Value]]:
    """Yield number and value, an integer or bytes, of each field of a message.

    Args:
        message: of one level; a field that holds another message is bytes.
        fixed: whether numbers of fixed size are allowed, which are bytes too.

    Raises:
        ValueError: The message is truncated or has a field of another wire type or an impossible number.
    """
    position = 0
    while position < len(message):
        key, position = _parse_varint(message, position)
        number, kind = key >> 3, key & 7
        if not 0 < number < MAX_NUMBER:  # protobuf's own parser cuts a key to 32 bits, and would see another field
            raise ValueError(f"a field of the number {number}")
        if kind == VARINT:
            value, position = _parse_varint(message, position)
            yield number, value
            continue
        if kind == BYTES:
            size, position = _parse_varint(message, position)
        elif fixed and kind in FIXED_SIZES:
            size = FIXED_SIZES[kind]
        else:
            raise ValueError(f"a field of wire type {kind}")
        if position + size > len(message):
            raise ValueError("it is truncated")
        yield number, message[position : position + size]
        position += size


def parse_packed(message: memoryview) -> list[int]:
    """Return the integers of a packed field. Raises ValueError if one is truncated."""
    values, position = [], 0
    while position < len(message):
        value, position = _parse_varint(message, position)
        values.append(value)
    return values


def _parse_varint(message: memoryview, position: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, lowest first, and the position after it. Raises ValueError."""
    value = 0
    for k, byte in enumerate(message[position : position + 10]):
        value |= (byte & 127) << 7 * k
        if byte < 128:
            if value >= 1 << 64:
                raise ValueError("a number of more than 64 bits")
            return value, position + k + 1
    raise ValueError("it is truncated")
