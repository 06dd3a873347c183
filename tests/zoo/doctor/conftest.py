"""Fake libraries and frameworks for the diagnosis; child processes find them by the variables of their environment."""

import shutil
import subprocess

import pytest

# A driver whose answers are variables of the environment.
LIBCUDA = r"""
#include <stdlib.h>
#include <string.h>
static int number(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }
int cuDriverGetVersion(int *version) { *version = number("FAKE_CUDA"); return 0; }
int cuInit(unsigned flags) { if (getenv("FAKE_CRASH")) abort(); return number("FAKE_INIT"); }
int cuDeviceGetCount(int *count) { *count = number("FAKE_COUNT"); return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, "Fake GPU", size); return 0; }
int cuDeviceTotalMem_v2(size_t *size, int device) { *size = 80000000000; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = attribute == 75 ? 8 : 6; return 0; }
"""


@pytest.fixture(scope="session")
def libcuda(tmp_path_factory):
    """Folder of a library libcuda.so.1 that stands in for NVIDIA's driver."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "cuda.c").write_text(LIBCUDA)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "cuda.c"], check=True)
    return folder


@pytest.fixture
def fake_driver(libcuda, monkeypatch):
    """Return a function that sets up the driver for child processes."""

    def set_up(cuda=13000, count=1, **variables):
        monkeypatch.setenv("LD_LIBRARY_PATH", str(libcuda))
        for name, value in {"CUDA": cuda, "COUNT": count, **variables}.items():
            monkeypatch.setenv(f"FAKE_{name}", str(value))

    return set_up


@pytest.fixture
def fake_module(tmp_path, monkeypatch):
    """Return a function that makes a Python module for child processes."""

    def make(name, code):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return make
