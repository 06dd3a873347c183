"""Digests of file contents: what they see, of files and of records, and that kept ones are never stale."""

import hashlib
import os
import time

import numpy as np
import pytest

from tests.helpers import packs
from tests.helpers.files import touch
from zoo.data import contents
from zoo.data.contents import Content

MIB = 1 << 20


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    monkeypatch.delenv("ZOO_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "vision-zoo" / "digests"


@pytest.fixture
def keeping(monkeypatch):
    """Digests are kept however quickly they were computed, and however young the files are."""
    monkeypatch.setattr(contents, "WORTH_KEEPING", -1.0)
    monkeypatch.setattr(contents, "SETTLED", -1)


def digest(files, root, full=False):
    return contents.digests(files, root, full).tobytes()


def noise(size, seed=0):
    return np.random.default_rng(seed).bytes(size)


def digest_of(tmp_path, content, full=False):
    touch(tmp_path, "file", content=content)
    return contents.digest_file(Content(str(tmp_path / "file")), full)


def expected(content, full):
    """The definition: length, then all bytes, or blocks of 4 KiB from the first byte to the last."""
    digest = hashlib.blake2b(len(content).to_bytes(8, "little"), digest_size=16)
    if full or len(content) <= 16384:
        digest.update(content)
    else:
        count = 3 + len(content) // (8 * MIB)
        for number in range(count):
            start = (len(content) - 4096) * number // (count - 1)
            digest.update(content[start : start + 4096])
    return digest.digest()


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("size", [0, 1, 16384, 16385, 9 * MIB])
def test_a_digest_is_over_length_and_blocks(tmp_path, size, full):
    assert digest_of(tmp_path, noise(size), full) == expected(noise(size), full)


@pytest.mark.parametrize("at, seen", [(0, True), (51_000, True), (99_999, True), (30_000, False)])
def test_a_large_file_is_sampled_and_a_full_digest_sees_all(tmp_path, at, seen):
    content = bytearray(noise(100_000))
    before = digest_of(tmp_path, content), digest_of(tmp_path, content, True)
    content[at] ^= 1
    after = digest_of(tmp_path, content), digest_of(tmp_path, content, True)
    assert (before[0] != after[0]) == seen and before[1] != after[1]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("size", [5, 20_000])
def test_a_record_has_the_digest_of_its_file(tmp_path, size, full):
    """Also one that is split where it holds the magic word, and one with more labels."""
    bodies = [noise(size), noise(size - size % 4)[4:] + packs.MAGIC, b"\xff\xd8\xff" + noise(size)]
    payloads = {0: packs.content(bodies[0], 7), 1: packs.content(bodies[1], 7), 2: packs.content(bodies[2], 1, 2)}
    offsets = packs.write(tmp_path, payloads)
    for key, body in enumerate(bodies):
        record = Content(str(tmp_path / "train.rec"), offsets[key])
        assert contents.digest_file(record, full) == expected(body, full), key


def test_missing_and_damaged_files_differ_from_others_and_never_fail(tmp_path):
    touch(tmp_path, "empty", content=b"")
    touch(tmp_path, "folder/a")
    touch(tmp_path, "cut.rec", content=packs.MAGIC + b"\xff\xff\xff\x1f" + bytes(24))
    touch(tmp_path, "noise.rec", content=noise(64))
    os.mkfifo(tmp_path / "pipe")
    places = [("empty",), ("gone",), ("folder",), ("cut.rec", 0), ("noise.rec", 0), ("noise.rec", 1000), ("pipe",)]
    for full in (False, True):
        found = {place: contents.digest_file(Content(str(tmp_path / place[0]), *place[1:]), full) for place in places}
        assert all(len(digest) == 16 for digest in found.values())
        assert found["gone",] != found["empty",] and found["noise.rec", 0] != found["gone",]
    missing = digest([Content(str(tmp_path / "gone"))], str(tmp_path))
    touch(tmp_path, "gone", content=b"")
    assert digest([Content(str(tmp_path / "gone"))], str(tmp_path)) != missing


def write_files(tmp_path, count):
    paths = [f"{number % 7}/{number}" for number in range(count)]
    for number, path in enumerate(paths):
        touch(tmp_path / "set", path, content=noise(50 + number, number))
    return [Content(str(tmp_path / "set" / path)) for path in paths]


def test_many_files_in_their_order(tmp_path):
    count = contents.TASK_SIZE * 3 + 5
    files = write_files(tmp_path, count)
    whole = b"".join(expected(noise(50 + number, number), False) for number in range(count))
    assert digest(files, str(tmp_path)) == whole == digest(iter(files), "elsewhere")


def test_kept_digests_are_not_computed_again(tmp_path, monkeypatch, keeping, cache):
    files = write_files(tmp_path, 600)
    first = digest(files, str(tmp_path))
    assert len(os.listdir(cache)) == 1
    asked, compute = [], contents._digest
    monkeypatch.setattr(contents, "_digest", lambda content, full: asked.append(content) or compute(content, full))
    monkeypatch.chdir(tmp_path)
    assert digest(files, ".") == first and not asked
    touch(tmp_path / "set", "1/1", content=b"another")
    changed = digest(files, str(tmp_path))
    assert changed != first and asked == [files[1]]
    assert digest([*files[:300], *files[:300]], str(tmp_path)) not in (first, changed) and len(asked) == 1
    digest(files, str(tmp_path), full=True)  # digests of another kind
    assert len(asked) == 601 and len(os.listdir(cache)) == 2


def test_a_file_of_the_same_size_and_time_is_not_taken_for_another(tmp_path, keeping):
    """Copies with `cp -p` have the time of their source, but not of its last change."""
    files = write_files(tmp_path, 3)
    first = digest(files, str(tmp_path))
    path = files[0].path
    stat = os.stat(path)
    time.sleep(0.05)  # longer than a step of the file system's clock
    touch(tmp_path, path, content=bytes(stat.st_size))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert os.stat(path).st_mtime_ns == stat.st_mtime_ns and os.stat(path).st_size == stat.st_size
    assert digest(files, str(tmp_path)) != first


def test_young_files_are_not_kept(tmp_path, monkeypatch, cache):
    """A later change could have the same time stamp, whose steps are milliseconds."""
    monkeypatch.setattr(contents, "WORTH_KEEPING", -1.0)
    files = write_files(tmp_path, 3)
    digest(files, str(tmp_path))
    (name,) = os.listdir(cache)
    assert len(np.load(cache / name)) == 0
    now = time.time_ns()
    monkeypatch.setattr(contents.time, "time_ns", lambda: now + 10**10)
    digest(files, str(tmp_path))
    assert len(np.load(cache / name)) == 3


def test_digests_of_records_are_kept_by_offset(tmp_path, monkeypatch, keeping):
    offsets = packs.write(tmp_path, {key: packs.content(noise(30, key), 0) for key in range(20)})
    records = [Content(str(tmp_path / "train.rec"), offset) for offset in offsets.values()]
    first = digest(records, str(tmp_path))
    monkeypatch.setattr(contents, "_digest", None)
    assert digest(records, str(tmp_path)) == first != digest(records[::-1], str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", noise(100), None])
def test_a_damaged_or_foreign_cache_is_ignored(tmp_path, keeping, cache, content):
    files = write_files(tmp_path, 3)
    first = digest(files, str(tmp_path))
    (name,) = os.listdir(cache)
    if content is None:
        np.save(cache / name, np.arange(12.0).reshape(4, 3))
    else:
        (cache / name).write_bytes(content)
    assert digest(files, str(tmp_path)) == first
    assert len(np.load(cache / name)) == 3


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, keeping):
    touch(tmp_path, "xdg", content=b"a file where the folder would be")
    files = write_files(tmp_path, 3)
    assert digest(files, str(tmp_path)) == digest(files, str(tmp_path))


def test_quick_digests_are_not_kept(tmp_path, cache):
    digest(write_files(tmp_path, 3), str(tmp_path))
    assert not cache.exists()


@pytest.mark.parametrize("count, frames", [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (40, [0, 20, 39]), (0, [0])])
def test_frames_that_stand_for_a_clip(count, frames):
    assert contents.sampled_frames(count) == frames
