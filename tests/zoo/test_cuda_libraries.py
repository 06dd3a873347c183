"""Where MindSpore and Paddle 2 find the CUDA libraries of NVIDIA's Python packages, with packages made by the test."""

import _ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT
from zoo import cuda_libraries, frameworks
from zoo.cuda_libraries import LIBRARIES
from zoo.data import extras
from zoo.data.errors import UserError


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """site-packages with NVIDIA's packages, whose libraries can be loaded, and none of this machine's."""
    site, loadable = tmp_path / "site-packages", Path(_ctypes.__file__)
    for name, package in {**LIBRARIES, "libcublas.so.11.extra": "cublas", "libOpenCL.so.1": "cuda_runtime"}.items():
        file = site / "nvidia" / package / "lib" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(loadable)
    (site / "paddle" / "libs").mkdir(parents=True)
    (site / "paddle" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(site)])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)  # DALI's part of this package, and where it lies
    monkeypatch.delitem(sys.modules, "paddle", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/before")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    clear()
    yield site
    clear()


def clear():
    cuda_libraries._files.cache_clear()
    cuda_libraries.toolkit.cache_clear()


class Driver:
    """libcuda.so.1 that finds `devices` GPUs."""

    def __init__(self, version=12040, error=0, devices=1):
        self.version, self.error, self.devices = version, error, devices

    def cuDriverGetVersion(self, version):
        version._obj.value = self.version
        return 0

    def cuInit(self, flags):
        return self.error

    def cuDeviceGetCount(self, count):
        count._obj.value = self.devices
        return 0

    def cuGetErrorName(self, error, name):
        name._obj.value = b"CUDA_ERROR_NO_DEVICE"
        return 0


@pytest.fixture
def driver(monkeypatch):
    """Install a driver: driver(Driver()), or driver(None) for none. No other library of the system is found."""

    def install(found):
        monkeypatch.setattr(cuda_libraries, "_open", lambda name: found if name == cuda_libraries.DRIVER else None)

    return install


def test_mindspore_finds_a_toolkit_of_links(environment, driver, tmp_path):
    driver(Driver())
    cuda_libraries.prepare()
    home = Path(os.environ["CUDA_HOME"])
    assert home.parent == tmp_path / "cache" / "vision-zoo"
    told = subprocess.run([home / "bin" / "nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    assert "release 11.6," in told  # which MindSpore looks for
    assert os.environ["LD_LIBRARY_PATH"] == f"{home / 'lib64'}:/before"
    links = {path.name for path in (home / "lib64").iterdir() if path.exists()}
    assert links >= LIBRARIES.keys() | {"libcudart.so.11.6.55", "libcudnn.so", "libcublas.so.11.extra"}
    assert not [name for name in links if "OpenCL" in name]


def test_libraries_are_loaded_after_those_that_they_need(environment, driver, monkeypatch):
    driver(Driver())
    loaded = []
    monkeypatch.setattr(cuda_libraries.ctypes, "CDLL", lambda path: loaded.append(Path(path).name))
    cuda_libraries.prepare()
    assert sorted(loaded) == sorted(LIBRARIES)
    assert loaded.index("libcublasLt.so.11") < loaded.index("libcublas.so.11") < loaded.index("libcusolver.so.11")


@pytest.mark.parametrize(
    "change, present",
    [
        ("no driver", None),
        ("a package is missing", Driver()),
    ],
)
def test_nothing_is_changed_where_mindspore_cannot_use_a_gpu(environment, driver, change, present):
    driver(present)
    if change == "a package is missing":
        (environment / "nvidia/cufft/lib/libcufft.so.10").unlink()
        assert cuda_libraries.missing() == ["libcufft.so.10"]
    before = dict(os.environ)
    cuda_libraries.prepare()
    assert dict(os.environ) == before


def test_the_toolkit_is_made_once_and_anew_for_other_packages(environment):
    first = cuda_libraries.toolkit()
    changed = (first / "bin" / "nvcc").stat().st_mtime_ns
    clear()
    assert cuda_libraries.toolkit() == first and (first / "bin" / "nvcc").stat().st_mtime_ns == changed
    (environment / "nvidia/cublas/lib/libcublas.so.11.extra").unlink()
    clear()
    assert cuda_libraries.toolkit() != first
    assert len(list(first.parent.iterdir())) == 2  # nothing half made is left


def test_several_processes_make_the_toolkit(environment, monkeypatch):
    """One of them has just renamed its folder."""
    done = cuda_libraries.toolkit()
    answers = iter([False, True])  # whether the folder is there: before, and after the attempt
    monkeypatch.setattr(Path, "exists", lambda path: next(answers))
    assert cuda_libraries._build(done, cuda_libraries._files()) == done
    assert list(done.parent.iterdir()) == [done]


def test_a_home_that_cannot_be_written_to(environment, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cuda_libraries.tempfile, "tempdir", str(tmp_path))
    home = cuda_libraries.toolkit()
    assert home.is_relative_to(tmp_path) and (home / "lib64" / "libcudnn.so.8").exists()


@pytest.mark.parametrize(
    "present, reason",
    [
        (None, r"no NVIDIA driver is installed \(libcuda.so.1 cannot be loaded\)"),
        (Driver(version=10020), "the NVIDIA driver is one for CUDA 10.2; MindSpore needs one for CUDA 11"),
        (Driver(error=100), r"the NVIDIA driver finds no GPU that it can use \(CUDA_ERROR_NO_DEVICE, 100\)"),
        (Driver(devices=0), "the NVIDIA driver finds no GPU$"),
    ],
)
def test_why_there_is_no_gpu(environment, driver, present, reason):
    driver(present)
    assert re.search(reason, cuda_libraries.problem() or "")


def test_libraries_that_are_missing_are_named(environment, driver):
    driver(Driver())
    assert cuda_libraries.problem() is None
    (environment / "nvidia/cudnn/lib/libcudnn.so.8").unlink()
    clear()
    assert "CUDA 11 are not installed (libcudnn.so.8): pip install" in (cuda_libraries.problem() or "")


def test_a_toolkit_of_the_system_is_enough(environment, monkeypatch):
    """Its libraries are found by the linker, by LD_LIBRARY_PATH for example."""
    (environment / "nvidia/cudnn/lib/libcudnn.so.8").unlink()
    monkeypatch.setattr(cuda_libraries, "_open", lambda name: Driver())
    assert cuda_libraries.problem() is None


def test_links_for_paddle(environment, capsys):
    stale = environment / "paddle" / "libs" / "libcudnn.so"
    stale.symlink_to("/nowhere")
    assert cuda_libraries.main() == 0
    names = {path.name for path in stale.parent.iterdir() if path.exists()}
    assert names >= LIBRARIES.keys() | {"libcudnn.so", "libcublas.so", "libcublasLt.so"}
    assert f"Paddle finds {len(LIBRARIES) + 1} libraries" in capsys.readouterr().out


def test_links_need_paddle_and_the_packages(environment, capsys, monkeypatch):
    (environment / "nvidia/cudnn/lib/libcudnn.so.8").unlink()
    assert cuda_libraries.main() == 2
    assert "error: Paddle or CUDA 11 is not installed here: pip install" in capsys.readouterr().err
    monkeypatch.setattr(sys, "path", [])
    clear()
    with pytest.raises(UserError):
        cuda_libraries.link_for_paddle()


def test_a_framework_is_prepared_before_it_is_imported(monkeypatch):
    prepared = []
    monkeypatch.setattr(cuda_libraries, "prepare", lambda: prepared.append("prepared"))
    monkeypatch.delitem(sys.modules, "mindspore", raising=False)
    monkeypatch.setattr(frameworks.importlib, "import_module", prepared.append)
    frameworks.import_for("mindspore", "zoo.trainer.mindspore", frameworks.FRAMEWORKS, "the trainer")
    assert prepared == ["prepared", "cv2", "zoo.trainer.mindspore"]
    monkeypatch.setitem(sys.modules, "mindspore", object())
    frameworks.prepare("mindspore")  # too late: it is imported
    assert len(prepared) == 3
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    frameworks.prepare("torch")
    assert prepared[3:] == ["cv2"]  # the others find their libraries themselves


def test_names_of_the_extra():
    """Each folder is one of the packages of the extra cuda11."""
    text = (ROOT / "pyproject.toml").read_text()
    packages = {f"nvidia-{folder.replace('_', '-')}-cu11==" for folder in LIBRARIES.values()}
    assert not [name for name in packages if name not in text] and text.count("-cu11==") == len(packages) + 1  # NCCL


def test_a_framework_that_is_not_installed_is_named_with_its_extra(monkeypatch):
    module = "zoo.trainer.paddle.ops"
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "paddle", None)  # as if it were not there
    with pytest.raises(UserError, match=re.escape(extras.missing("paddle"))):
        frameworks.import_for("paddle", module, frameworks.FRAMEWORKS, "the trainer")
