"""Segments of shared memory: whose they are, room for them, and what dead runs left."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.helpers.files import touch
from tests.helpers.paths import ROOT
from zoo.data import host, readers, shared_memory
from zoo.data.errors import UserError

OWNER = """
import os, signal, sys
from zoo.data import host, shared_memory
host.SHARED_MEMORY = sys.argv[1]
token = shared_memory.claim()
for name in (shared_memory.segment(token), shared_memory.segment(token, "board0x"), f"sem.vision-zoo-{token}-ab_1"):
    open(shared_memory.path(name), "w").close()
print(token, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder in place of /dev/shm, in which this process owns nothing yet."""
    monkeypatch.setattr(host, "SHARED_MEMORY", str(tmp_path))
    monkeypatch.setattr(shared_memory, "_owned", None)
    yield tmp_path
    shared_memory.release()


@pytest.fixture
def owner(folder):
    """Another process that owns segments, and its token."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    yield process, process.stdout.readline().strip()
    process.kill()
    process.communicate()


def test_what_a_dead_run_left_is_removed_and_all_else_stays(folder, owner):
    process, token = owner
    mine = [f"{token}.lock", f"{token}-{process.pid}-0", f"{token}-{process.pid}-board0x1"]
    theirs = {*(f"vision-zoo-{name}" for name in mine), f"sem.vision-zoo-{token}-ab_1"}
    foreign = {"psm_1234", "sem.mp-abcd", "vision-zoo-", "vision-zoo-short-1", "vision-zoo-" + "g" * 16 + ".lock"}
    for name in foreign:
        touch(folder, name)
    orphan = f"vision-zoo-{'0' * 16}-77-5"  # its owner's lock is gone
    touch(folder, orphan)
    assert shared_memory.sweep() == [orphan]
    assert set(os.listdir(folder)) == theirs | foreign
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert set(shared_memory.sweep()) == theirs and set(os.listdir(folder)) == foreign


def test_an_owner_that_ends_takes_its_lock_along(folder, owner):
    process, token = owner
    process.communicate("")
    assert f"vision-zoo-{token}.lock" not in os.listdir(folder)
    assert len(shared_memory.sweep()) == 3 and os.listdir(folder) == []


def test_a_token_is_kept_until_it_is_released(folder):
    token = shared_memory.claim()
    assert shared_memory.claim() == token and os.listdir(folder) == [f"vision-zoo-{token}.lock"]
    assert shared_memory.sweep() == []
    shared_memory.release()
    shared_memory.release()
    assert os.listdir(folder) == [] and shared_memory.claim() != token


def test_links_and_the_files_of_others_are_left_alone(folder, monkeypatch):
    touch(folder, "precious")
    os.symlink(folder / "precious", folder / f"vision-zoo-{'1' * 16}.lock")
    shared_memory.sweep()
    assert (folder / "precious").exists()
    touch(folder, f"vision-zoo-{'2' * 16}-1-1")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert shared_memory.sweep() == []


def test_an_array_has_its_pages_at_once(monkeypatch):
    token = shared_memory.claim()
    array = readers.shared_array(token, (3, 1000), np.int16)
    path = shared_memory.path(array.shm.name.lstrip("/"))
    assert array.shape == (3, 1000) and array.dtype == np.int16 and os.path.basename(path).startswith("vision-zoo-")
    assert os.stat(path).st_blocks * 512 >= 6000
    array.unlink_on_del()
    del array
    deadline = time.monotonic() + 60
    while os.path.exists(path) and time.monotonic() < deadline:  # Grain may remove it in a thread
        time.sleep(0.01)
    assert not os.path.exists(path)
    assert readers.shared_array(token, (0, 4), np.uint8).shape == (0, 4)


def test_no_room_for_an_array(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    token, before = shared_memory.claim(), set(os.listdir(host.SHARED_MEMORY))
    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(host, "free_shared_memory", lambda: 2**20)
    with pytest.raises(UserError, match=r"has 1.0 MB free, and an array of a batch takes 1.5 MB; .*--shm-size"):
        readers.shared_array(token, (3, 2**19), np.uint8)
    assert not [name for name in set(os.listdir(host.SHARED_MEMORY)) - before if token in name]


TINY = """
import numpy as np
from zoo.data import readers, shared_memory
from zoo.data.errors import UserError
token, arrays = shared_memory.claim(), []
try:
    while True:
        arrays.append(readers.shared_array(token, (300_000,), np.uint8))
        arrays[-1][:] = 1
except UserError as error:
    print(len(arrays), error)
for array in arrays:
    array.unlink_on_del()
"""


@pytest.mark.slow
def test_a_full_shared_memory_is_an_error_and_no_sigbus():
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("needs a file system of its own in place of /dev/shm")
    mounted = subprocess.run(
        ["unshare", "-m", "bash", "-c", f"mount -t tmpfs -o size=1m tmpfs /dev/shm && exec {sys.executable} -"],
        input=TINY,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if "mount" in mounted.stderr:
        pytest.skip("this container may not mount anything")
    assert mounted.returncode == 0 and mounted.stdout.startswith("3 /dev/shm has 0.1 MB free"), mounted
