"""Memory, disks and limits that are too small; the sizes are patched in."""

import errno
import resource
from collections import namedtuple
from pathlib import Path

import pytest

from zoo.doctor import host
from zoo.doctor.finding import gigabytes

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def free(monkeypatch):
    """Return a function that sets the free bytes of every file system."""
    return lambda size: monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(1e12, 1e12 - size, size))


def test_dockers_shared_memory(free):
    free(64e6)
    finding = host.shared_memory()
    assert finding.state == "warn" and finding.text == "64 MB free in /dev/shm, little for data workers and NCCL"
    assert "--shm-size" in finding.remedy and "data.workers=0" in finding.remedy
    free(8e9)
    assert host.shared_memory()[2:] == ("ok", "8.0 GB free in /dev/shm", "")


def test_no_shared_memory(monkeypatch):
    def fail(path):
        raise OSError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr("shutil.disk_usage", fail)
    assert host.shared_memory().state == "warn" and "cannot be used" in host.shared_memory().text


def test_a_full_disk_prevents_training(free, tmp_path):
    free(3e6)
    finding = host.disk("this folder", tmp_path)
    assert finding.state == "FAIL" and finding.text == f"3 MB free in {tmp_path}: no room for a run"
    free(2e9)
    assert host.disk("this folder", tmp_path).state == "warn"
    free(50e9)
    assert host.disk("this folder", tmp_path).state == "ok"


def test_a_folder_that_is_not_there_counts_as_the_one_above(free, tmp_path):
    free(50e9)
    assert host.disk("caches", tmp_path / "a/b").text == f"50 GB free in {tmp_path / 'a/b'}"


def test_a_folder_that_cannot_be_written_to(free):
    free(50e9)
    finding = host.disk("this folder", Path("/proc/self"))
    assert finding.state == "warn" and "cannot be written to" in finding.text and "--out" in finding.remedy


def test_each_file_system_is_one_line(monkeypatch):
    named = host.folders()
    assert next(iter(named)) == "this folder" and named["this folder"] == Path.cwd()
    devices = [host._existing(path).stat().st_dev for path in named.values()]
    assert len(set(devices)) == len(devices)


def test_no_temporary_folder_can_be_written_to(monkeypatch, tmp_path):
    def fail():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(host.tempfile, "gettempdir", fail)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "gone"))
    assert host._temporary() == tmp_path / "gone"


def test_limits(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 65536))
    assert host.open_files().state == "warn" and host.open_files().remedy == "ulimit -n 65536"
    monkeypatch.setattr(resource, "getrlimit", lambda which: (-1, -1))  # no limit
    assert host.open_files().state == "ok"


def test_little_memory(monkeypatch):
    monkeypatch.setattr(host.resources, "available_memory", lambda: 1e9)
    assert host.memory(8_000_000_000).text == "1.0 GB of 8.0 GB free" and host.memory(8_000_000_000).state == "warn"


@pytest.mark.parametrize("size, words", [(64e6, "64 MB"), (1.26e9, "1.3 GB"), (80e9, "80 GB")])
def test_sizes(size, words):
    assert gigabytes(size) == words
