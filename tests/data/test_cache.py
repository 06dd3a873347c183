"""Copies of files: which path is read, the budget that processes share, and data sets that read through a cache."""

import dataclasses
import os
import pickle
import random
import shutil
import subprocess
import sys
import time
import warnings
from typing import NamedTuple

import pytest

from tests.data.loaders.sets import SETS
from tests.helpers import face_sets
from tests.helpers.paths import ROOT
from tests.helpers.prepared import all_samples, assert_equal_samples, contents, image_folders, serial_prepare
from zoo.data import cache
from zoo.data.datasets import faces, imagenet
from zoo.data.errors import UserError


class Settings(NamedTuple):
    root: str
    cache: str | None
    cache_gb: float = 100.0


@pytest.fixture(autouse=True)
def any_free_space_suffices(monkeypatch):
    monkeypatch.setattr(cache, "MIN_FREE", 0)


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "set").mkdir()
    return Settings(str(tmp_path / "set"), str(tmp_path / "fast"))


def write(settings, name, content, modified=None):
    path = os.path.join(settings.root, name)
    with open(path, "wb") as file:
        file.write(content)
    if modified is not None:
        os.utime(path, ns=(modified, modified))
    return path


def read(path):
    with open(path, "rb") as file:
        return file.read()


def held(settings):
    """Return the bytes that are counted, after a check that the copies have them and that nothing else is left."""
    found = contents(os.path.join(settings.cache, cache.NAME))
    total = int(found.pop("bytes"))
    assert total == sum(map(len, found.values())) and all(name.startswith("files") for name in found)
    return total


def test_without_a_folder_files_are_read_where_they_are(settings):
    local = cache.open_cache(settings._replace(cache=None))
    assert local("/data/x.jpg") == "/data/x.jpg" and cache.notes(settings._replace(cache=None)) == ()


def test_a_copy_is_made_once_and_has_the_bytes_of_the_file(settings, monkeypatch):
    path = write(settings, "a.jpg", bytes(range(256)) * 9000)
    local = cache.open_cache(settings)
    copy = local(path)
    assert copy.startswith(settings.cache) and copy.endswith(".jpg") and read(copy) == read(path)
    inode = os.stat(copy).st_ino
    assert local(path) == pickle.loads(pickle.dumps(local))(path) == cache.open_cache(settings)(path) == copy
    monkeypatch.chdir(settings.root)
    assert local("a.jpg") == copy and os.stat(copy).st_ino == inode
    assert held(settings) == 256 * 9000
    assert cache.notes(settings) == (f"data.cache: {settings.cache} holds 0.0 of 100 GB",)
    assert os.stat(local.path).st_mode & 0o077 == 0  # a private data set stays private


def test_paths_name_what_the_system_finds(settings, tmp_path, monkeypatch):
    """The parent of a linked folder is not that of the link; dots and slashes that change nothing are the same path."""
    monkeypatch.chdir(tmp_path)
    copy_path = cache.open_cache(settings).copy_path
    assert copy_path("link/../set/a.jpg") != copy_path("set/a.jpg") != copy_path("other/a.jpg")
    assert len({copy_path(path) for path in ("set/a.jpg", "./set//a.jpg", "set/./a.jpg", f"{tmp_path}/set/a.jpg")}) == 1


@pytest.mark.parametrize("content, modified", [(b"changed", 10**18), (b"other", 10**18 + 1)])
def test_a_file_that_has_changed_is_copied_anew(settings, content, modified):
    path = write(settings, "a.jpg", b"first", 10**18)
    local = cache.open_cache(settings)
    assert read(local(path)) == b"first"
    write(settings, "a.jpg", content, modified)
    assert read(local(path)) == content and local(path) != path and held(settings) == len(content)


def test_a_file_that_changes_while_it_is_copied_is_read_where_it_is(settings, monkeypatch):
    path, copy = write(settings, "a.jpg", b"first", 10**18), shutil.copyfileobj

    def write_meanwhile(source, target):
        copy(source, target)
        write(settings, "a.jpg", b"later", 10**18 + 1)

    monkeypatch.setattr(shutil, "copyfileobj", write_meanwhile)
    assert cache.open_cache(settings)(path) == path and held(settings) == 0


def test_what_cannot_be_copied_is_left_to_the_reader(settings):
    local = cache.open_cache(settings)
    missing, empty = os.path.join(settings.root, "missing.jpg"), write(settings, "empty.jpg", b"")
    pipe = os.path.join(settings.root, "pipe.jpg")
    os.mkfifo(pipe)
    removed = write(settings, "a.jpg", b"a")
    local(removed)
    os.remove(removed)
    paths = [missing, empty, pipe, removed, settings.root]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [local(path) for path in paths] == paths


def test_the_budget_is_kept(settings):
    paths = [write(settings, f"{number}.jpg", bytes(400)) for number in range(4)]
    small = write(settings, "small.jpg", bytes(100))
    local = cache.open_cache(settings._replace(cache_gb=1e-6))
    assert [local(path) == path for path in paths] == [False, False, True, True]
    assert local(small) != small and held(settings) == 900
    assert cache.open_cache(settings)(paths[2]) != paths[2] and held(settings) == 1300  # a larger budget goes on


def test_copies_are_counted_anew_where_the_count_is_lost(settings):
    cache.open_cache(settings)(write(settings, "a.jpg", b"12345"))
    with open(os.path.join(settings.cache, cache.NAME, "bytes"), "wb"):
        pass
    cache.open_cache(settings)
    assert held(settings) == 5


def test_files_that_killed_processes_leave_are_removed(settings):
    local = cache.open_cache(settings)
    for name, age in (("dead", 10**4), ("living", 0)):
        path = write(settings, name, b"a")
        os.utime(path, (0, time.time() - age))
        shutil.move(path, local.temporary)
    cache.open_cache(settings)
    assert os.listdir(local.temporary) == ["living"]


def test_a_full_disk_stops_copying_with_one_warning(settings, monkeypatch):
    paths = [write(settings, f"{number}.jpg", b"a") for number in range(3)]
    local = cache.open_cache(settings)
    first = local(paths[0])
    monkeypatch.setattr(cache, "MIN_FREE", 2**62)
    with pytest.warns(
        UserWarning, match=r"^data.cache: .*fast.*: less than .* GB would stay free there; files that are"
    ):
        assert local(paths[1]) == paths[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert local(paths[2]) == paths[2]
    assert local(paths[0]) == first  # what is there is still read
    assert cache.open_cache(settings._replace(cache_gb=1e-9))(paths[1]) == paths[1]  # no budget, no warning


def test_a_disk_that_takes_a_part_of_a_file(settings, monkeypatch):
    def fail(source, target):
        target.write(source.read(3))
        raise OSError(27, "File too large")

    path, local = write(settings, "a.jpg", bytes(100)), cache.open_cache(settings)
    monkeypatch.setattr(shutil, "copyfileobj", fail)
    with pytest.warns(UserWarning, match="File too large; files that are not there yet are read from data.root"):
        assert local(path) == path
    assert held(settings) == 0


def test_a_folder_that_cannot_be_used_is_refused(settings, tmp_path):
    for folder in (settings.root, os.path.join(settings.root, "cache")):
        with pytest.raises(UserError, match=r"^data.cache: .* lies in data.root, .*which is never written to"):
            cache.open_cache(settings._replace(cache=folder))
    assert os.listdir(settings.root) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"^data.cache: .*file.*: cannot be written \(Not a directory\); name another"):
        cache.open_cache(settings._replace(cache=str(tmp_path / "file")))


@pytest.mark.parametrize("name", SETS)
def test_samples_do_not_depend_on_the_cache(name, tmp_path):
    splits = SETS[name](tmp_path / "set")
    expected = all_samples(splits)
    settings = dataclasses.replace(splits[0].settings, cache=str(tmp_path / "fast"))
    load = faces.load if name == "faces" else sys.modules[type(settings).__module__].load
    splits = load(settings)
    assert_equal_samples(all_samples(splits), expected)
    count = held(settings)
    assert_equal_samples(all_samples(splits), expected)
    assert held(settings) == count > 0


def test_prepared_files_are_cached_and_packs_are_refused(tmp_path, monkeypatch):
    prepare = serial_prepare(monkeypatch)
    root = image_folders(tmp_path / "set")
    keys = {"size": 16, "cache": str(tmp_path / "fast")}
    assert prepare("imagenet", root, "--out", tmp_path / "out") == 0
    splits = imagenet.load(imagenet.Settings(root=str(tmp_path / "out"), **keys))
    expected = all_samples(splits)
    assert_equal_samples(all_samples(pickle.loads(pickle.dumps(splits))), expected)
    assert held(splits[0].settings) == sum(map(len, contents(root).values()))
    assert prepare("imagenet", root, "--pack", "--out", tmp_path / "packed") == 0
    with pytest.raises(UserError, match=r"^data.cache: keeps single files, but the samples of .*packed lie in packs"):
        imagenet.load(imagenet.Settings(root=str(tmp_path / "packed"), **keys))
    (tmp_path / "faces").mkdir()
    with pytest.raises(UserError, match="packs; copy them to the fast disk, set data.root to that folder"):
        face_sets.load(face_sets.write_set(tmp_path / "faces", "rec"), cache=str(tmp_path / "fast"))


READ = """
import os, random, sys, threading, types
from zoo.data import cache

cache.MIN_FREE = 0
root, folder, budget = sys.argv[1:]
local = cache.open_cache(types.SimpleNamespace(root=root, cache=folder, cache_gb=float(budget)))
paths = [os.path.join(root, name) for name in sorted(os.listdir(root))]
wrong = []

def read(path):
    with open(path, "rb") as file:
        return file.read()

def work(seed):
    for path in random.Random(seed).sample(paths, len(paths)):
        wrong.extend([path] * (read(local(path)) != read(path)))

threads = [threading.Thread(target=work, args=(os.getpid() + number,)) for number in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(wrong))
"""


@pytest.mark.slow
@pytest.mark.parametrize("budget", [1.0, 0.003])
def test_processes_and_threads_share_a_budget(settings, budget):
    generator = random.Random(0)
    for number in range(300):
        write(settings, f"{number}.bin", generator.randbytes(generator.randrange(4, 40_000)))
    command = [sys.executable, "-c", READ, settings.root, settings.cache, str(budget)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(3)]
    assert [process.communicate()[0] for process in processes] == ["0\n"] * 3
    total, everything = held(settings), sum(map(len, contents(settings.root).values()))
    assert total == everything if budget == 1 else 0.9 * budget * 1e9 < total <= budget * 1e9


def test_a_folder_that_others_can_fill_is_refused(settings, tmp_path, monkeypatch):
    cache.open_cache(settings)
    folder = tmp_path / "fast" / cache.NAME
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rename(tmp_path / "disk")
    folder.symlink_to(tmp_path / "disk")  # of its user
    cache.open_cache(settings)
    for mode in (0o777, 0o770):
        folder.chmod(mode)
        with pytest.raises(UserError, match="is not yours, or others can write to it"):
            cache.open_cache(settings)
    folder.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(UserError, match="is not yours, or others can write to it"):
        cache.open_cache(settings)


def test_a_link_that_somebody_else_has_made_is_refused(settings, tmp_path, monkeypatch):
    mine = os.stat(tmp_path)
    theirs = os.stat_result((mine.st_mode, *mine[1:4], os.geteuid() + 1, *mine[5:]))
    monkeypatch.setattr(os, "lstat", lambda path: theirs)
    with pytest.raises(UserError, match="is not yours, or others can write to it"):
        cache.open_cache(settings)
