"""Commands on a system without what Linux alone has, such as macOS: what they write is the same."""

import os
import subprocess
import sys

import pytest

from tests.helpers import clips, training
from tests.helpers.paths import ROOT

# Read by every Python process whose path has it, workers included. Packages that ask for the system keep their files.
WITHOUT_LINUX = """
import builtins, ctypes, io, os, socket, sys

del os.memfd_create, os.sched_getaffinity, os.sched_setaffinity, socket.SOCK_SEQPACKET
LINUX = ("/proc/", "/sys/", "/dev/shm")
ASKS_FOR_THE_SYSTEM = ("psutil", "multiprocessing")

def refuse(function):
    def call(path, *words, **keys):
        is_linux = isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(LINUX)
        if is_linux and not sys._getframe(1).f_globals.get("__name__", "").startswith(ASKS_FOR_THE_SYSTEM):
            raise FileNotFoundError(2, "no such file", os.fspath(path))
        return function(path, *words, **keys)
    return call

builtins.open = io.open = refuse(io.open)
os.stat, os.listdir, os.scandir, os.statvfs = map(refuse, (os.stat, os.listdir, os.scandir, os.statvfs))

class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name in ("prctl", "mallopt"):
            raise AttributeError(name)
        return super().__getattr__(name)

ctypes.CDLL = Library
"""

SMALL = [
    *(
        "-o",
        "model.pretrained=null",
        "-o",
        "model.width=8",
        "-o",
        "data.size=16",
        "-o",
        "data.segments=2",
        "-o",
        "train.eval_batch=2",
    ),
    *("-o", "train.save_every=1 steps", "-o", "train.log_every=1"),
]


@pytest.fixture
def without_linux(tmp_path):
    """Environment of a process without what Linux alone has."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(WITHOUT_LINUX)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(ROOT)])}


def zoo(words, environment, cwd):
    command = [sys.executable, "-m", "zoo", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=120)


@pytest.mark.slow
def test_training_from_packed_videos_by_workers(tmp_path, without_linux):
    for split, count in (("train", 4), ("val", 2)):
        for number in range(count):
            folder = tmp_path / "clips" / split / ("left", "right")[number % 2]
            folder.mkdir(parents=True, exist_ok=True)
            clips.encode(folder / f"{number}.mp4", clips.textured(8 + number))
    done = zoo(["data", "prepare", "folder", "clips", "--out", "packs", "--pack"], without_linux, tmp_path)
    assert done.returncode == 0, done.stderr
    written = []
    for name, environment in (("here", {**without_linux, "PYTHONPATH": str(ROOT)}), ("there", without_linux)):
        words = ["-o", "data.root=packs", "-o", "train.epochs=1", "-o", "train.batch=2", "-o", "data.workers=2"]
        words += [*SMALL, "--out", tmp_path / name, "--device", "cpu"]
        done = zoo(["train", "-c", training.K400, *words], environment, tmp_path)
        assert done.returncode == 0, done.stderr
        written.append(training.weights(tmp_path / name, 2))
    assert training.same(*written)


@pytest.mark.slow
def test_doctor_has_no_line_on_shared_memory(tmp_path, without_linux):
    done = zoo(["doctor", "--framework", "torch", "--quick"], without_linux, tmp_path)
    assert "processor" in done.stdout and "shared memory" not in done.stdout and "Traceback" not in done.stderr
