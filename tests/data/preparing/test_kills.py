"""A kill at every write, sync, rename and removal: the work goes on, and the result is that of an undisturbed run."""

import os
import random

import pytest

from tests.helpers import packs
from tests.helpers.prepared import contents, image_folders
from zoo.data.preparing import journal
from zoo.data.preparing.journal import Journal


class Killed(BaseException):
    """The end of the process: nothing may be written after it."""


class Kill:
    """Count the operations on files and fail at one of them and all later ones; a write is done in part."""

    def __init__(self, monkeypatch, moment):
        self.moment, self.count = moment, 0
        self.random = random.Random(moment)
        for name in ("fsync", "replace", "rename", "remove"):
            monkeypatch.setattr(os, name, self._wrap(getattr(os, name)))
        write = Journal._write

        def write_partly(file, parts):
            if self._is_over():
                content = b"".join(parts)
                if self.count == self.moment:
                    file.write(content[: self.random.randint(0, len(content))])
                raise Killed
            write(file, parts)

        monkeypatch.setattr(Journal, "_write", staticmethod(write_partly))

    def _is_over(self):
        self.count += 1
        return self.count >= self.moment

    def _wrap(self, function):
        def wrapped(*arguments):
            if self._is_over():
                raise Killed
            return function(*arguments)

        return wrapped


def face_folders(root):
    for identity in range(3):
        os.makedirs(root / f"person{identity}")
        for number in range(3):
            name = root / f"person{identity}" / f"{number}.png"
            name.write_bytes(packs.encoded_image(40 * identity + number, 16))
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, form, make",
    [
        ("folder", [], image_folders),
        ("imagenet", ["--resize", "16"], image_folders),
        ("faces", ["--pack"], face_folders),
    ],
)
def test_every_moment(tmp_path, serial, kind, form, make):
    root = make(tmp_path / "set")
    damaged = next(root.rglob("1.png"))
    damaged.write_bytes(damaged.read_bytes()[:60])
    wanted = tmp_path / "wanted"
    assert serial(kind, root, "--out", wanted, *form) == 1
    moment, out = 0, tmp_path / "out"
    while True:
        moment += 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(journal, "COMMIT_INTERVAL", -1.0)
            kill = Kill(patch, moment)
            try:
                serial(kind, root, "--out", out, *form)
                break
            except Killed:
                assert kill.count >= moment
        assert serial(kind, root, "--out", out, *form) == 1
        assert contents(out) == contents(wanted), moment
        out = tmp_path / f"out{moment}"
    assert moment > 40


def test_many_kills_of_one_preparation(tmp_path, serial):
    root = image_folders(tmp_path / "set")
    assert serial("folder", root, "--out", tmp_path / "wanted", "--pack") == 0
    done, kills = False, 0
    while not done:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(journal, "COMMIT_INTERVAL", -1.0)
            Kill(patch, 5 + kills)  # the listing is not divided, and must be done in one go
            try:
                done = serial("folder", root, "--out", tmp_path / "out", "--pack") == 0
            except Killed:
                kills += 1
    assert kills > 5 and contents(tmp_path / "out") == contents(tmp_path / "wanted")
