"""NVIDIA's driver and libraries: absent, broken, too old; files of ours stand in for them."""

import math
import shutil

import pytest

from zoo.doctor import nvidia
from zoo.doctor.nvidia import Driver, mismatch, required

SECONDS = 60.0


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without devices, and a function that puts one on its PCI bus."""
    monkeypatch.setattr(nvidia, "SYS", tmp_path / "sys")
    monkeypatch.setattr(nvidia, "DEV", tmp_path / "dev")
    (tmp_path / "dev").mkdir()

    def add(vendor, kind):
        folder = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")

    return add


def examine(version=None):
    found, findings = nvidia.examine(SECONDS, version)
    return found, [(finding.topic, finding.state, finding.text, finding.remedy) for finding in findings]


@pytest.fixture
def no_driver(monkeypatch):
    """No library of a driver, also where there is one."""
    monkeypatch.setattr(nvidia.child, "ask", lambda *arguments: nvidia.child.Answer({"library": False, "done": True}))


def test_neither_a_gpu_nor_a_driver(machine, no_driver):
    machine("0x8086", "0x030000")
    assert examine() == (Driver(), [("NVIDIA driver", "-", "no GPU on the PCI bus, and no driver", "")])


@pytest.mark.parametrize("kind", ["0x030000", "0x030200"])
def test_a_gpu_without_a_driver(machine, no_driver, kind):
    machine("0x10de", kind)
    found, [(topic, state, text, remedy)] = examine()
    assert found == Driver(expected=True) and (topic, state) == ("NVIDIA driver", "warn")
    assert text == "there is a GPU, but no driver: libcuda.so.1 is missing"
    assert "install NVIDIA's driver" in remedy and "--gpus all" in remedy


def test_a_device_file_is_a_gpu(machine, no_driver, tmp_path):
    (tmp_path / "dev/nvidiactl").touch()
    assert not examine()[0].expected
    (tmp_path / "dev/nvidia0").touch()
    assert examine()[0].expected


def test_a_driver_that_works(machine, fake_driver):
    fake_driver(cuda=12080, count=2)
    found, lines = examine("570.86")
    assert found.cuda == (12, 8) and found.expected
    assert lines[0] == ("NVIDIA driver", "ok", "driver 570.86, for CUDA up to 12.8", "")
    assert lines[2] == ("GPU 1", "ok", "Fake GPU, 80 GB, compute capability 8.6", "")


@pytest.mark.parametrize(
    "code, cause, remedy",
    [
        (803, "of different versions", "reboot"),
        (802, "not ready", "fabricmanager"),
        (100, "sees no GPU", "CUDA_VISIBLE_DEVICES"),
        (999, "unknown error", "nvidia_uvm"),
        (77, "cannot start", "dmesg"),
    ],
)
def test_a_driver_that_does_not_start(machine, fake_driver, code, cause, remedy):
    fake_driver(INIT=code)
    found, [(_, state, text, words)] = examine("580.65")
    assert state == "warn" and cause in text and f"CUDA error {code}" in text and remedy in words
    assert found == Driver(False, (13, 0), ())


def test_a_driver_that_crashes(machine, fake_driver):
    fake_driver(CRASH=1)
    _, [(_, state, text, _)] = examine()
    assert state == "warn" and "crashed with SIGABRT while starting the driver" in text


@pytest.mark.parametrize("build, fits", [("11.8", True), ("12.4", True), ("12.9", True), ("13.0", False)])
def test_a_driver_runs_its_own_major_version_and_older_ones(build, fits):
    assert (mismatch(build, Driver(True, (12, 4), ())) is None) == fits


def test_a_build_that_is_too_new_is_told_in_one_line():
    text, remedy = mismatch("13.0", Driver(True, (12, 4), ()))
    assert text == "it is built for CUDA 13.0, the driver runs CUDA up to 12.4"
    assert remedy == "install driver 580.65.06 or newer, or a build for CUDA 12.4"
    assert mismatch("13.0", Driver()) is None  # no driver: told elsewhere
    assert "install a newer driver" in mismatch("14.1", Driver(True, (13, 0), ()))[1]


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Return a function that makes NVIDIA's packages with some libraries; each is a copy of one of Python's own."""
    folder = tmp_path / "nvidia/cu13/lib"
    folder.mkdir(parents=True)
    (tmp_path / "nvidia/__init__.py").touch()  # hides the installed packages
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(names):
        for name in names:
            shutil.copy(math.__file__, folder / name)
        return folder

    return make


def test_a_missing_library_is_named(packages):
    names = [f"{name}.99" for name in required("torch", "13.0", None)]  # which no system has
    packages(name for name in names if name != "libcublas.so.13.99")
    assert "libcublas.so.13.99" in names
    assert nvidia.missing(SECONDS, names) == (["libcublas.so.13.99"], None)


def test_all_are_found(packages):
    names = required("paddle", "12.6", "9.5.1")
    packages(names)
    assert nvidia.missing(SECONDS, names) == ([], None)


def test_a_broken_file_is_no_library(packages):
    folder = packages(["libcudart.so.99"])
    (folder / "libcublas.so.99").write_bytes(b"")
    [text], failure = nvidia.missing(SECONDS, ["libcudart.so.99", "libcublas.so.99"])
    assert text.startswith("libcublas.so.99 (") and "file too short" in text and failure is None


def test_versions_of_a_build():
    assert "libcudnn.so.8" in required("mindspore", "11.6", None)
    assert "libcudnn.so.9" in required("torch", "12.6", None) and "libcudnn.so.8" in required("torch", "12.1", "8.9.2")
    assert "libnccl.so.2" in required("torch", "12.6", None) and "libnccl.so.2" not in required(
        "mindspore", "11.6", None
    )
    assert required("torch", "10.2", "8.0.5") == ()


def test_plugins_of_mindspore(tmp_path, monkeypatch):
    plugins = tmp_path / "mindspore/lib/plugin"
    plugins.mkdir(parents=True)
    (tmp_path / "mindspore/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "mindspore", raising=False)
    assert nvidia.mindspore_build() is None
    for version in ("11.6", "9.2", "11.1"):
        (plugins / f"libmindspore_gpu.so.{version}").touch()
    assert nvidia.mindspore_build() == "11.6"
