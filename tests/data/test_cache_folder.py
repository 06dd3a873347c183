"""The folder of a cache: whose files it holds, and what kills, other processes and power failures leave."""

import os
import random
import shutil
import subprocess
import sys
import time

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.prepared import contents
from zoo.data import cache_folder, cache_ledger
from zoo.data.cache_folder import NAME, CacheFolder
from zoo.data.cache_ledger import LAYOUT, MAGIC
from zoo.data.errors import UserError

BUDGET = 10**6


@pytest.fixture(autouse=True)
def any_free_space_suffices(monkeypatch):
    monkeypatch.setattr(cache_folder, "MIN_FREE", 0)


@pytest.fixture
def folder(tmp_path):
    made = CacheFolder(str(tmp_path / "fast"), BUDGET)
    made.open()
    return made


def store(folder, name, content):
    def write(file):
        file.write(content)
        return True

    return folder.store(name, len(content), write)


def test_other_files_in_the_folder_stay_as_they_are(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/thesis.txt").write_text("words")
    folder = CacheFolder(str(tmp_path / "own"), BUDGET)
    folder.open()
    assert store(folder, "abcdef.jpg", b"123") and folder.total() == 3
    assert sorted(os.listdir(tmp_path / "own")) == ["thesis.txt", NAME]
    assert (tmp_path / "own/thesis.txt").read_text() == "words"
    assert os.stat(folder.path).st_mode & 0o077 == 0  # a private data set stays private


@pytest.mark.parametrize("name, content", [("thesis.txt", b"words"), ("ledger", b"debts"), ("ledger", MAGIC)])
def test_a_folder_of_the_same_name_that_is_not_ours_is_refused(tmp_path, name, content):
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / name).write_bytes(content)
    with pytest.raises(UserError, match="holds files that are not of a cache, and nothing is ever written over; name"):
        CacheFolder(str(tmp_path), BUDGET).open()
    assert contents(tmp_path) == {f"{NAME}/{name}": content}


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"^data.cache: .*file.*: cannot be written \(Not a directory\); name another"):
        CacheFolder(str(tmp_path / "file"), BUDGET).open()


def test_a_kill_while_the_folder_is_made(tmp_path):
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "ledger.new").write_bytes(b"vis")
    CacheFolder(str(tmp_path), BUDGET).open()
    assert sorted(os.listdir(tmp_path / NAME)) == ["files", "ledger", "tmp"]


def test_a_copy_is_replaced(folder):
    assert store(folder, "abcdef.jpg", b"123") and store(folder, "abcdef.jpg", b"12345")
    assert folder.total() == 5 and contents(folder.path)["files/abc/def.jpg"] == b"12345"


def test_no_copy_beyond_the_budget(folder):
    assert store(folder, "abcdef", bytes(BUDGET - 1)) and folder.takes(1) and not folder.takes(2)
    assert not store(folder, "ghijkl", b"12") and store(folder, "ghijkl", b"1") and not folder.takes(1)
    assert store(folder, "abcdef", bytes(10)) and folder.total() == 11  # a smaller version makes room
    assert os.listdir(os.path.join(folder.path, "tmp")) == []


def test_a_rename_that_fails_is_not_counted(folder, monkeypatch):
    def fail(*_):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as context:
        context.setattr(os, "rename", fail)
        with pytest.raises(OSError, match="Input/output error"):
            store(folder, "abcdef", b"123")
    assert store(folder, "ghijkl", b"12") and folder.total() == 2


@pytest.mark.parametrize("renamed, total", [(False, 3), (True, 10)])
def test_a_kill_around_the_rename_is_counted_exactly(folder, monkeypatch, renamed, total):
    class Killed(BaseException):
        pass

    rename, write = os.rename, cache_ledger.write

    def kill(temporary, copy):
        if renamed:
            rename(temporary, copy)
        else:
            shutil.copy(temporary, f"{temporary}.kept")  # `store` removes its file, a killed process does not
        monkeypatch.setattr(cache_ledger, "write", lambda *_: None)
        raise Killed

    assert store(folder, "abcdef", b"123")
    monkeypatch.setattr(os, "rename", kill)
    with pytest.raises(Killed):
        store(folder, "ghijkl", b"1234567")
    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(cache_ledger, "write", write)
    for name in os.listdir(os.path.join(folder.path, "tmp")):
        path = os.path.join(folder.path, "tmp", name)
        rename(path, path.removesuffix(".kept"))
    folder.open()
    assert folder.total() == total and os.listdir(os.path.join(folder.path, "tmp")) == []
    assert store(folder, "mnopqr", b"1") and folder.total() == total + 1


def test_the_file_of_a_living_writer_is_not_removed(folder):
    dead = os.path.join(folder.path, "tmp", "dead")

    def write_while_another_run_starts(file):
        with open(dead, "wb"):
            pass
        folder.open()
        file.write(b"123")
        return True

    assert folder.store("abcdef", 3, write_while_another_run_starts)
    assert folder.total() == 3 and not os.path.exists(dead)


def test_copies_are_counted_anew_after_the_machine_was_started(folder, monkeypatch, tmp_path):
    store(folder, "abcdef", b"123")
    with open(os.path.join(folder.path, "ledger"), "r+b") as file:
        file.write(LAYOUT.pack(MAGIC, cache_folder._boot_id(), False, 77, 0, b""))
    folder.open()
    assert folder.total() == 77  # of this machine, which still runs: as the ledger says
    (tmp_path / "boot").write_text("another")
    monkeypatch.setattr(cache_folder, "BOOT_ID", tmp_path / "boot")
    folder.open()
    assert folder.total() == 3


def test_the_time_of_opening_is_later_than_all_copies(folder):
    store(folder, "abcdef", b"123")
    before = os.stat(folder.copy_path("abcdef")).st_ctime_ns
    time.sleep(0.02)
    opened = folder.open()
    time.sleep(0.02)
    store(folder, "ghijkl", b"123")
    assert before < opened < os.stat(folder.copy_path("ghijkl")).st_ctime_ns


def test_a_file_that_another_run_took_for_a_leftover(folder):
    def write(file):
        file.write(b"123")
        (name,) = os.listdir(os.path.join(folder.path, "tmp"))
        os.unlink(os.path.join(folder.path, "tmp", name))
        return True

    assert not folder.store("abcdef", 3, write) and folder.total() == 0
    assert store(folder, "abcdef", b"123") and folder.total() == 3


READ = """
import os, random, sys, threading, types
from zoo.data import cache, cache_folder

cache_folder.MIN_FREE = 0
root, folder, budget, times = sys.argv[1:]
local = cache.open_cache(types.SimpleNamespace(root=root, cache=folder, cache_gb=float(budget)))
paths = [os.path.join(root, name) for name in sorted(os.listdir(root))]
wrong = []

def read(path):
    with open(path, "rb") as file:
        return file.read()

def work(seed):
    for _ in range(int(times)):
        for path in random.Random(seed).sample(paths, len(paths)):
            wrong.extend([path] * (read(local(path)) != read(path)))

print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=work, args=(os.getpid() + number,)) for number in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(wrong))
"""


def write_files(root, count, size):
    """Write files of 4 to `size` bytes that differ."""
    root.mkdir()
    generator = random.Random(0)
    for number in range(count):
        (root / f"{number:04d}.bin").write_bytes(generator.randbytes(generator.randrange(4, size)))
    return root


def start(count, *arguments):
    """Start processes that read all files several times, in two threads each: root, folder, budget, times."""
    line = [sys.executable, "-c", READ, *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
    processes = [subprocess.Popen(line, **pipes) for _ in range(count)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    return processes


def check(root, folder, budget):
    """Check that all copies are complete, and that the ledger has counted them; return the bytes."""
    cache_of_set = CacheFolder(str(folder), int(budget * 1e9))
    cache_of_set.open()
    copies = contents(os.path.join(folder, NAME))
    assert not [name for name in copies if name.startswith("tmp")]
    sources = sorted(contents(root).values())
    found = sorted(content for name, content in copies.items() if name.startswith("files"))
    assert len(found) == len(set(found)) and set(found) <= set(sources)
    assert cache_of_set.total() == sum(map(len, found)) <= budget * 1e9
    return cache_of_set.total()


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1.0, 0.003])
def test_processes_and_threads_share_a_budget(tmp_path, budget):
    many = write_files(tmp_path / "set", 300, 40_000)
    processes = start(4, many, tmp_path / "fast", budget, 3)
    assert [process.communicate()[0] for process in processes] == ["0\n"] * 4
    total = check(many, tmp_path / "fast", budget)
    everything = sum(map(len, contents(many).values()))
    assert total == everything if budget == 1 else 0.9 * budget * 1e9 < total < everything


@pytest.mark.slow
def test_killed_processes_leave_whole_copies_and_an_exact_ledger(tmp_path):
    many = write_files(tmp_path / "set", 3000, 8_000)
    generator, totals = random.Random(1), []
    for _ in range(10):
        processes = start(2, many, tmp_path / "fast", 1.0, 10**6)
        time.sleep(generator.uniform(0, 0.05))
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        totals.append(check(many, tmp_path / "fast", 1.0))
    assert totals == sorted(totals) and totals[0] < totals[-1]
