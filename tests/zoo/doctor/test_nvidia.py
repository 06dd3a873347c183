"""NVIDIA's driver: absent, broken, too old; a library of ours stands in for it."""

import pytest

from zoo.doctor import nvidia
from zoo.doctor.nvidia import Driver, mismatch


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


@pytest.fixture
def no_driver(monkeypatch):
    """No library of a driver, also where there is one."""
    monkeypatch.setattr(nvidia.child, "ask", lambda *arguments: nvidia.child.Answer({"library": False, "done": True}))


def examine(version=None):
    found, findings = nvidia.examine(60.0, version)
    return found, [(finding.topic, finding.state, finding.text, finding.remedy) for finding in findings]


def test_neither_a_gpu_nor_a_driver(machine, no_driver):
    machine("0x8086", "0x030000")
    found, [(_, state, _, _)] = examine()
    assert (found, state) == (Driver(), "-")


@pytest.mark.parametrize("kind", ["0x030000", "0x030200", "device file"])
def test_a_gpu_without_a_driver(machine, no_driver, kind, tmp_path):
    (tmp_path / "dev/nvidiactl").touch()
    assert not examine()[0].expected
    if kind == "device file":
        (tmp_path / "dev/nvidia0").touch()
    else:
        machine("0x10de", kind)
    found, [(topic, state, text, remedy)] = examine()
    assert found == Driver(expected=True) and (topic, state) == ("NVIDIA driver", "warn")
    assert "libcuda.so.1 is missing" in text and "install NVIDIA's driver" in remedy and "--gpus all" in remedy


def test_a_driver_that_works(machine, fake_driver):
    fake_driver(cuda=12080, count=2)
    found, lines = examine("570.86")
    assert found.cuda == (12, 8) and found.expected
    assert lines[0] == ("NVIDIA driver", "ok", "driver 570.86, for CUDA up to 12.8", "")
    assert lines[2] == ("GPU 1", "ok", "Fake GPU, 80 GB, compute capability 8.6", "")


@pytest.mark.parametrize(
    "settings, cause, remedy",
    [
        ({"INIT": 803}, "of different versions (CUDA error 803)", "reboot"),
        ({"INIT": 100}, "sees no GPU", "CUDA_VISIBLE_DEVICES"),
        ({"count": 0}, "sees no GPU", "CUDA_VISIBLE_DEVICES"),
        ({"INIT": 77}, "cannot start (CUDA error 77)", "dmesg"),
        ({"CRASH": 1}, "crashed with SIGABRT while starting the driver", "reinstall"),
    ],
)
def test_a_driver_that_does_not_start(machine, fake_driver, settings, cause, remedy):
    fake_driver(**settings)
    found, [(_, state, text, words)] = examine("580.65")
    assert state == "warn" and cause in text and remedy in words
    assert found == Driver(False, (13, 0), ())


@pytest.mark.parametrize("build, fits", [("11.8", True), ("12.9", True), ("13.0", False)])
def test_a_driver_runs_its_own_major_version_and_older_ones(build, fits):
    assert (mismatch(build, Driver(True, (12, 4), ())) is None) == fits


def test_a_build_that_is_too_new_names_the_driver_that_it_needs():
    text, remedy = mismatch("13.0", Driver(True, (12, 4), ()))
    assert "CUDA 13.0" in text and "12.4" in text and "580.65.06" in remedy and "CUDA 12.4" in remedy
    assert mismatch("13.0", Driver()) is None  # no driver: told elsewhere
    assert "install a newer driver" in mismatch("14.1", Driver(True, (13, 0), ()))[1]
