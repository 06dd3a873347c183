"""What each reading process is doing, in a small file in shared memory that outlives it: the samples it has begun."""

import glob
import mmap
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress

from zoo.data import shared_memory

SLOTS, SLOT = 16, 256  # threads of a process, and bytes of each: a length, and the name of its sample


class _Slot(threading.local):
    """Where this thread writes, in the file of this process; -1 before its first sample."""

    offset = -1


_slot, _guard = _Slot(), threading.Lock()
_memory: mmap.mmap | None = None  # of a reading process; others have none
_slots = 0


def open_board(token: str, stream: int) -> None:
    """Write what this process reads from now on, for the owner of a token. stream: number of its stream."""
    global _memory
    name = shared_memory.path(shared_memory.segment(token, f"board{stream}x"))
    with open(name, "x+b") as file:
        file.write(bytes(SLOTS * SLOT))
        file.flush()
        _memory = mmap.mmap(file.fileno(), SLOTS * SLOT)


def begin(name: Callable[[int], str], index: int) -> None:
    """Record that this thread begins to read a sample. name: returns that of an index."""
    if _memory is not None:
        _write(name(index))


def end() -> None:
    """Record that this thread reads no sample."""
    if _memory is not None:
        _write("")


def processes(token: str, stream: int) -> set[int]:
    """Return the reading processes of a stream, dead or alive."""
    pattern = re.compile(rf"{shared_memory.PREFIX}{token}-(\d+)-")
    matches = (pattern.match(os.path.basename(path)) for path in _files(token, stream))
    return {int(match[1]) for match in matches if match}


def read(token: str, stream: int, process: int) -> list[str]:
    """Return the samples that a reading process has begun and not finished, dead or alive."""
    samples = []
    for path in _files(token, stream, str(process)):
        with suppress(OSError), open(path, "rb") as file:
            content = file.read(SLOTS * SLOT)
            for offset in range(0, len(content), SLOT):
                length = min(int.from_bytes(content[offset : offset + 2], "little"), SLOT - 2)
                samples.append(content[offset + 2 : offset + 2 + length].decode(errors="replace"))
    return [sample for sample in samples if sample]


def _write(text: str) -> None:
    global _slots
    assert _memory is not None
    if _slot.offset < 0:
        with _guard:
            _slot.offset, _slots = _slots % SLOTS * SLOT, _slots + 1
    offset, content = _slot.offset, text.encode(errors="surrogateescape")[: SLOT - 2]
    _memory[offset + 2 : offset + 2 + len(content)] = content
    _memory[offset : offset + 2] = len(content).to_bytes(2, "little")


def _files(token: str, stream: int, process: str = "*") -> list[str]:
    return glob.glob(shared_memory.path(f"{shared_memory.PREFIX}{token}-{process}-board{stream}x*"))
