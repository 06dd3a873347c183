"""A kill at every sync, rename and removal: the work goes on, and the result is that of an undisturbed run."""

import os
import random

import pytest

from tests.helpers import packs
from tests.helpers.prepared import contents, image_folders


class Killed(BaseException):
    """The end of the process: nothing may be written after it."""


class Kill:
    """Count the operations on files and fail at one of them and all later ones; what is not synced may be lost."""

    def __init__(self, monkeypatch, moment):
        self.moment, self.count, self.random = moment, 0, random.Random(moment)
        for name in ("fsync", "replace", "rename"):
            monkeypatch.setattr(os, name, self._wrap(getattr(os, name), name))

    def _wrap(self, function, name):
        def wrapped(*arguments):
            self.count += 1
            if self.count >= self.moment:
                if name == "fsync" and self.count == self.moment and os.fstat(arguments[0]).st_size:
                    size = os.fstat(arguments[0]).st_size
                    if os.path.isfile(f"/proc/self/fd/{arguments[0]}"):
                        os.truncate(f"/proc/self/fd/{arguments[0]}", self.random.randint(0, size))
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
    moment, killed = 0, True
    while killed:
        moment, killed = moment + 1, False
        out = tmp_path / f"out{moment}"
        with pytest.MonkeyPatch.context() as patch:
            Kill(patch, moment)
            try:
                serial(kind, root, "--out", out, *form)
            except Killed:
                killed = True
        assert serial(kind, root, "--out", out, *form) == 1
        assert contents(out) == contents(wanted), moment
    assert moment > 30
