"""Copies of files: which path is read, what is compared when, and data sets that read through a cache."""

import dataclasses
import os
import pickle
import resource
import shutil
import subprocess
import sys
import time
import warnings
from typing import NamedTuple

import numpy as np
import pytest

from tests.data.loaders.sets import SETS
from tests.helpers import face_sets
from tests.helpers.paths import ROOT
from tests.helpers.prepared import contents, image_folders, serial_prepare
from zoo.data import cache, cache_folder, order
from zoo.data.cache_folder import NAME
from zoo.data.dataset import LoaderSettings
from zoo.data.datasets import faces, imagenet
from zoo.data.datasets.synthetic import Settings as SyntheticSettings
from zoo.data.errors import UserError
from zoo.data.stream import open_training

TICK = 0.02  # seconds; change times have the resolution of the kernel's clock, up to 10 ms


class Settings(NamedTuple):
    root: str
    cache: str | None
    cache_gb: float = 100.0


@pytest.fixture(autouse=True)
def any_free_space_suffices(monkeypatch):
    monkeypatch.setattr(cache_folder, "MIN_FREE", 0)


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
    """Return the bytes that the ledger counts, after a check that the copies have them."""
    sizes = map(len, contents(os.path.join(settings.cache, NAME, "files")).values())
    total = cache_folder.CacheFolder(settings.cache, 0).total()
    assert total == sum(sizes)
    return total


def test_without_a_folder_files_are_read_where_they_are(settings):
    local = cache.open_cache(settings._replace(cache=None))
    assert local("/data/x.jpg") == "/data/x.jpg" and cache.notes(settings._replace(cache=None)) == ()


def test_a_copy_is_made_once_and_has_the_bytes_of_the_file(settings):
    path = write(settings, "a.jpg", bytes(range(256)) * 9000)
    local = cache.open_cache(settings)
    copy = local(path)
    assert copy.startswith(settings.cache) and copy.endswith(".jpg") and read(copy) == read(path)
    inode = os.stat(copy).st_ino
    assert local(path) == cache.open_cache(settings)(path) == copy and os.stat(copy).st_ino == inode
    assert held(settings) == 256 * 9000 and os.listdir(os.path.join(settings.cache, NAME, "tmp")) == []
    assert cache.notes(settings) == (f"data.cache: {settings.cache} holds 0.0 of 100 GB",)


def test_files_of_one_name_in_two_sets_have_a_copy_each(settings, tmp_path):
    (tmp_path / "other").mkdir()
    other = settings._replace(root=str(tmp_path / "other"))
    paths = [write(each, "a.jpg", content, 10**18) for each, content in ((settings, b"one"), (other, b"two"))]
    assert [read(cache.open_cache(each)(path)) for each, path in zip((settings, other), paths)] == [b"one", b"two"]


def test_paths_name_what_the_system_finds(tmp_path, monkeypatch):
    """The parent of a linked folder is not that of the link; dots and slashes that change nothing are the same path."""
    monkeypatch.chdir(tmp_path)
    assert cache.copy_name("link/../set/a.jpg") != cache.copy_name("set/a.jpg")
    names = {cache.copy_name(path) for path in ("set/a.jpg", "./set//a.jpg", "set/./a.jpg", f"{tmp_path}/set/a.jpg")}
    assert len(names) == 1


def test_a_relative_path_is_that_of_the_current_folder(settings, monkeypatch):
    path = write(settings, "a.jpg", b"a")
    monkeypatch.chdir(settings.root)
    assert cache.open_cache(settings)("a.jpg") == cache.open_cache(settings)(path)


class Questions:
    """Counts the questions to the file system about a path."""

    def __init__(self, monkeypatch, path):
        self.count = 0
        ask, open_file = os.stat, cache.FileIO

        def counted(function):
            def call(file, *arguments, **options):
                self.count += file == path
                return function(file, *arguments, **options)

            return call

        monkeypatch.setattr(os, "stat", counted(ask))
        monkeypatch.setattr(cache, "FileIO", counted(open_file))


def test_the_file_is_asked_for_once_in_a_run(settings, monkeypatch):
    path = write(settings, "a.jpg", b"a")
    questions = Questions(monkeypatch, path)
    local = cache.open_cache(settings)
    local(path)
    assert questions.count == 1  # opened and copied
    local(path)
    pickle.loads(pickle.dumps(local))(path)  # another process of the run
    assert questions.count == 1
    resumed = cache.open_cache(settings)
    time.sleep(TICK)
    resumed(path)
    resumed(path)
    assert questions.count == 2


@pytest.mark.parametrize("content, modified", [(b"changed", 10**18), (b"other", 10**18 + 1)])
def test_a_file_that_has_changed_is_copied_anew_by_the_next_run(settings, content, modified):
    path = write(settings, "a.jpg", b"first", 10**18)
    local = cache.open_cache(settings)
    assert read(local(path)) == b"first"
    write(settings, "a.jpg", content, modified)
    assert read(local(path)) == b"first"  # a run takes the data set to stay as it is
    assert read(cache.open_cache(settings)(path)) == content and held(settings) == len(content)


def test_a_change_time_in_the_future_does_not_count(settings, monkeypatch):
    path = write(settings, "a.jpg", b"first", 10**18)
    cache.open_cache(settings)(path)
    write(settings, "a.jpg", b"later", 10**18 + 1)
    local = cache.open_cache(settings)
    local.started = 0  # the copy was made later than this
    monkeypatch.setattr(cache.time, "time_ns", lambda: 10**18)  # a clock that was set back
    assert read(local(path)) == b"later"


def test_a_file_that_changes_while_it_is_copied_is_read_where_it_is(settings, monkeypatch):
    path, read_blocks = write(settings, "a.jpg", b"first", 10**18), cache._blocks

    def write_meanwhile(source, size):
        yield from read_blocks(source, size)
        write(settings, "a.jpg", b"later", 10**18 + 1)

    monkeypatch.setattr(cache, "_blocks", write_meanwhile)
    assert cache.open_cache(settings)(path) == path and held(settings) == 0


def test_what_cannot_be_copied_is_left_to_the_reader(settings):
    local = cache.open_cache(settings)
    missing, empty = os.path.join(settings.root, "missing.jpg"), write(settings, "empty.jpg", b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [local(path) for path in (missing, empty, settings.root)] == [missing, empty, settings.root]
    vanished = write(settings, "a.jpg", b"a")
    local(vanished)
    os.remove(vanished)
    assert cache.open_cache(settings)(vanished) == vanished  # and not what it was


def test_the_budget_is_kept(settings):
    paths = [write(settings, f"{number}.jpg", bytes(400)) for number in range(4)]
    small = write(settings, "small.jpg", bytes(100))
    local = cache.open_cache(settings._replace(cache_gb=1e-6))
    assert [local(path) == path for path in paths] == [False, False, True, True]
    assert local(small) != small and held(settings) == 900
    assert cache.open_cache(settings)(paths[2]) != paths[2] and held(settings) == 1300  # a larger budget goes on


def test_a_full_disk_stops_copying_with_one_warning(settings, monkeypatch):
    paths = [write(settings, f"{number}.jpg", b"a") for number in range(3)]
    locals_ = [cache.open_cache(settings)] * 2
    first = locals_[0](paths[0])
    monkeypatch.setattr(cache_folder, "MIN_FREE", 2**62)
    with pytest.warns(UserWarning, match=r"^data.cache: .*fast: less than .* GB would stay free there; files that are"):
        assert locals_[0](paths[1]) == paths[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [local(paths[2]) for local in locals_] == [paths[2]] * 2
    assert locals_[0](paths[0]) == first  # what is there is still read
    monkeypatch.setattr(cache_folder, "MIN_FREE", 0)
    assert locals_[0](paths[1]) == paths[1]  # not in this run
    assert cache.open_cache(settings)(paths[1]) != paths[1]


WRITE_ERROR = """
import sys, types
from zoo.data import cache, cache_folder
cache_folder.MIN_FREE = 0
local = cache.open_cache(types.SimpleNamespace(root=sys.argv[1], cache=sys.argv[2], cache_gb=1.0))
print([local(path) == path for path in sys.argv[3:]])
"""


def test_a_disk_that_takes_a_part_of_a_file(settings):
    small, large = write(settings, "small.jpg", bytes(100)), write(settings, "large.jpg", bytes(5 << 20))
    done = subprocess.run(
        [sys.executable, "-c", WRITE_ERROR, settings.root, settings.cache, small, large, large, small],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20)),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert done.stdout == "[False, True, True, False]\n"
    assert done.stderr.count("File too large; files that are not there yet are read from data.root") == 1
    assert held(settings) == 100 and os.listdir(os.path.join(settings.cache, NAME, "tmp")) == []


def test_a_folder_within_the_data_set_is_refused(settings):
    for folder in (settings.root, os.path.join(settings.root, "cache")):
        with pytest.raises(UserError, match=r"^data.cache: .* lies in data.root, .*which is never written to"):
            cache.open_cache(settings._replace(cache=folder))
    assert os.listdir(settings.root) == []


@pytest.mark.parametrize("name", SETS)
def test_samples_do_not_depend_on_the_cache(name, tmp_path):
    splits = SETS[name](tmp_path / "set")
    expected = all_samples(splits)
    settings = dataclasses.replace(splits[0].settings, cache=str(tmp_path / "fast"))
    load = faces.load if name == "faces" else sys.modules[type(settings).__module__].load
    assert_equal(all_samples(load(settings)), expected)  # copies
    splits = load(settings)
    time.sleep(TICK)
    assert_equal(all_samples(splits), expected)  # compares
    shutil.rmtree(tmp_path / "set")
    assert_equal(all_samples(splits), expected)


def all_samples(splits):
    return [
        split.sample(index, order.generator(0, "augment", index)) for split in splits for index in range(len(split))
    ]


def assert_equal(samples, expected):
    assert len(samples) == len(expected) > 0
    for one, other in zip(samples, expected):
        assert one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)


def test_a_list_of_faces_and_a_list_of_pairs(tmp_path):
    (tmp_path / "set").mkdir()
    face_sets.write_set(tmp_path / "set", "list")
    lines = [f"images/p{n % 6}/{n % 5}.png images/p{(n + n % 2) % 6}/{(n + 1) % 5}.png {1 - n % 2}" for n in range(10)]
    (tmp_path / "set/pairs.txt").write_text("\n".join(lines))
    keys = {"cache": str(tmp_path / "fast"), "verification": ("pairs.txt",)}
    expected = all_samples(face_sets.load(tmp_path / "set", verification=("pairs.txt",)))
    train, val = face_sets.load(tmp_path / "set", **keys)
    time.sleep(TICK)
    assert_equal(all_samples((train, val)), expected)
    assert (
        faces.describe(train, val).checksum
        == faces.describe(*face_sets.load(tmp_path / "set", verification=("pairs.txt",))).checksum
    )
    shutil.rmtree(tmp_path / "set/images")
    assert_equal(all_samples((train, val)), expected)


def test_prepared_files_are_cached_and_packs_are_refused(tmp_path, monkeypatch):
    prepare = serial_prepare(monkeypatch)
    root = image_folders(tmp_path / "set")
    keys = {"size": 16, "cache": str(tmp_path / "fast")}
    assert prepare("imagenet", root, "--out", tmp_path / "out") == 0
    splits = imagenet.load(imagenet.Settings(root=str(tmp_path / "out"), **keys))
    time.sleep(TICK)
    expected = all_samples(splits)
    shutil.rmtree(root / "train")
    assert_equal(all_samples(pickle.loads(pickle.dumps(splits))), expected)
    shutil.rmtree(root)
    root = image_folders(tmp_path / "set")
    assert prepare("imagenet", root, "--pack", "--out", tmp_path / "packed") == 0
    with pytest.raises(UserError, match=r"^data.cache: keeps single files, but the samples of .*packed lie in packs"):
        imagenet.load(imagenet.Settings(root=str(tmp_path / "packed"), **keys))
    (tmp_path / "faces").mkdir()
    with pytest.raises(UserError, match=r"packs \(0.0 GB\); copy them to the fast disk, set data.root to that folder"):
        face_sets.load(face_sets.write_set(tmp_path / "faces", "rec"), cache=str(tmp_path / "fast"))


def test_unusable_settings():
    with pytest.raises(ValueError, match="cache_gb: must be above 0"):
        LoaderSettings(cache="/tmp", cache_gb=0)
    with pytest.raises(ValueError, match="cache: synthetic data have no files"):
        SyntheticSettings(cache="/tmp")


@pytest.mark.slow
def test_worker_processes_fill_the_cache(tmp_path):
    keys = {"cache": str(tmp_path / "fast"), "workers": 2, "threads": 2}
    batches = []
    for options in ({}, keys, keys):
        train, _ = SETS["images"](tmp_path / "set", **options)
        batches.append([batch["image"].copy() for batch, _ in open_training(train, 0, 4, 0, 5)])
    assert all(np.array_equal(one, other) for more in batches[1:] for one, other in zip(batches[0], more))
    assert held(Settings("", str(tmp_path / "fast"))) == sum(
        os.path.getsize(tmp_path / "set" / train.name(index)) for index in range(len(train))
    )
