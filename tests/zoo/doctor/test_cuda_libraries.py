"""CUDA libraries that are found, missing or broken, in folders of ours."""

import math
import shutil

import pytest

from zoo.doctor import cuda_libraries
from zoo.doctor.cuda_libraries import required

SECONDS = 60.0


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
    assert cuda_libraries.missing(SECONDS, names) == (["libcublas.so.13.99"], None)


def test_all_are_found(packages):
    names = required("paddle", "12.6", "9.5.1")
    packages(names)
    assert cuda_libraries.missing(SECONDS, names) == ([], None)


def test_the_loader_finds_libraries_too(packages, monkeypatch, tmp_path):
    name = "libcufft.so.12.99"
    shutil.copy(math.__file__, tmp_path / name)
    packages([])
    assert cuda_libraries.missing(SECONDS, [name]) == ([name], None)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert cuda_libraries.missing(SECONDS, [name]) == ([], None)


def test_a_broken_file_is_no_library(packages):
    folder = packages(["libcudart.so.99"])
    (folder / "libcublas.so.99").write_bytes(b"")
    [text], failure = cuda_libraries.missing(SECONDS, ["libcudart.so.99", "libcublas.so.99"])
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
    assert cuda_libraries.mindspore_build() is None
    for version in ("11.6", "9.2", "11.1"):
        (plugins / f"libmindspore_gpu.so.{version}").touch()
    assert cuda_libraries.mindspore_build() == "11.6"
