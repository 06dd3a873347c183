"""Readers with faults that the campaign must notice; a seed is read without any."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.campaign.fuzzing.readers import Reader
from zoo.data.errors import UserError

FILE, VALID, OUTSIDE = "a.txt", b"a valid file", "/tmp/vision-zoo-fuzz"


def _reader(fault: Callable[[Path], object], is_open: bool = False) -> Reader:
    def read(folder: Path) -> None:
        if (folder / FILE).read_bytes() != VALID:
            fault(folder)

    return Reader(lambda: [{FILE: VALID}], read, is_open)


def _refuse(text: str) -> None:
    raise UserError(text)


def _hang(_: Path) -> None:
    end = time.process_time() + 30
    while time.process_time() < end:
        pass


READERS = {
    "refuses": _reader(lambda folder: _refuse(f"{folder / FILE}: refused")),
    "names no file": _reader(lambda folder: _refuse("refused")),
    "need not name it": _reader(lambda folder: _refuse("refused"), is_open=True),
    "traceback": _reader(lambda folder: [][0]),
    "exit": _reader(lambda folder: exit(3)),
    "shell": _reader(lambda folder: os.system("true")),
    "writes": _reader(lambda folder: os.remove(OUTSIDE) if Path(OUTSIDE).write_text("x") else None),
    "canary": _reader(lambda folder: (folder / "executed").write_text("")),
    "eval": _reader(lambda folder: eval("1 + 1")),
    "memory": _reader(lambda folder: len(bytearray(b"x") * (300 << 20))),
    "crash": _reader(lambda folder: os.abort()),
    "hang": _reader(_hang),
}
