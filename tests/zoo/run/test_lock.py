"""A run's folder has one writer, for as long as its process lives."""

import errno
import fcntl
import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT
from zoo.data.errors import UserError
from zoo.run.folder import LOCK as FILE
from zoo.run.folder import FolderLock, is_run

HOLD = "import sys; from zoo.run.folder import FolderLock; lock = FolderLock(); lock.acquire(sys.argv[1]); "


def test_a_second_writer_is_refused_until_the_first_is_killed(tmp_path):
    words = [sys.executable, "-c", HOLD + "print('held', flush=True); input()", str(tmp_path)]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=f"is being written by process {holder.pid} on "):
            FolderLock().acquire(str(tmp_path))
        holder.kill()
    lock = FolderLock()
    lock.acquire(str(tmp_path))
    lock.acquire(str(tmp_path))  # of its own
    with pytest.raises(UserError):
        FolderLock().acquire(str(tmp_path))
    lock.release()
    FolderLock().acquire(str(tmp_path))
    assert (tmp_path / FILE).exists() and not is_run(str(tmp_path))  # the lock alone makes no run


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_file_system_without_locks(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, "refused")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = FolderLock()
    if number == errno.EIO:
        with pytest.raises(UserError, match="cannot write to .*: refused"):
            lock.acquire(str(tmp_path))
    else:
        lock.acquire(str(tmp_path))
        lock.release()
