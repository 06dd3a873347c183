"""Paths to NVIDIA's Python packages for CUDA 11 (the extra cuda11), in which neither MindSpore nor Paddle 2 looks.

MindSpore chooses its GPU back end by the version that $CUDA_HOME/bin/nvcc prints, and the packages have no nvcc. So
MindSpore gets a folder that looks like a CUDA toolkit; the libraries are loaded before it is imported, because
LD_LIBRARY_PATH is read only when a process starts. Paddle 2 opens libraries by names without a version, which the
packages do not have. `python -m zoo.cuda_libraries` makes links of these names beside Paddle's own libraries, once for
an environment.
"""

import ctypes
import functools
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from zoo.data import extras
from zoo.data.errors import UserError

# Name of each library that MindSpore's back end is linked with -> folder of its package in nvidia/. Each comes after
# those that it needs.
LIBRARIES = {
    "libcudart.so.11.0": "cuda_runtime",
    "libnvrtc.so.11.2": "cuda_nvrtc",
    "libcublasLt.so.11": "cublas",
    "libcublas.so.11": "cublas",
    "libcudnn.so.8": "cudnn",
    "libcurand.so.10": "curand",
    "libcufft.so.10": "cufft",
    "libcusparse.so.11": "cusparse",
    "libcusolver.so.11": "cusolver",
}
PATTERN = "lib[cn]*.so.*"  # all of a package, except for libOpenCL, which OpenCV would find
DRIVER = "libcuda.so.1"
MIN_DRIVER = 11000  # the oldest CUDA of a driver on which all libraries of CUDA 11 run
# MindSpore 2.8 has a back end for CUDA 11.1 and one for 11.6. The libraries of 11.8 are compatible with the latter.
NVCC = '#!/bin/sh\necho "Cuda compilation tools, release 11.6, V11.6.124"\n'
RUNTIME_OF_NVCC = "libcudart.so.11.6.55"  # MindSpore takes the version from this name, too


def prepare() -> None:
    """Let MindSpore find the CUDA libraries of the Python environment. To be called before it is imported.

    Nothing happens without these packages, or without a driver; a CUDA toolkit of the system is used as it is set up.
    """
    if not missing() and _open(DRIVER):
        home = toolkit()
        # An nvcc of another version would hide the back end, so a CUDA_HOME of the user is replaced.
        os.environ["CUDA_HOME"] = str(home)
        _add_library_path(home / "lib64")  # is read by child processes, such as those that compile kernels
        _load(home / "lib64")


def missing() -> list[str]:
    """Return the names of LIBRARIES that no installed package has."""
    found = {path.name for path in _files()}
    return [name for name in LIBRARIES if name not in found]


def problem() -> str | None:
    """Return why MindSpore cannot use a GPU of this machine; None if it can, as far as one can tell beforehand."""
    driver = _open(DRIVER)
    if driver is None:
        return f"no NVIDIA driver is installed ({DRIVER} cannot be loaded)"
    lacking = [name for name in missing() if not _open(name)]
    if lacking:
        return (
            f"libraries of CUDA 11 are not installed ({', '.join(lacking)}): "
            f"{extras.install_command('mindspore,cuda11')}, or make setup-gpu FRAMEWORK=mindspore"
        )
    return _driver_problem(driver)


def link_for_paddle() -> int:
    """Link the libraries into Paddle's folder of libraries, where it looks first, and return their number."""
    spec = importlib.util.find_spec("paddle")
    if not spec or not spec.submodule_search_locations or missing():
        raise UserError(f"Paddle or CUDA 11 is not installed here: {extras.install_command('paddle-gpu')}")
    folder = Path(spec.submodule_search_locations[0]) / "libs"
    _link(folder, _files())
    return len(_files())


@functools.cache
def toolkit() -> Path:
    """Make the folder of links, unless it is there, and return it: bin/nvcc and lib64/.

    It is in `vision-zoo` in $XDG_CACHE_HOME or ~/.cache; in a new temporary folder, if nothing can be written there.
    """
    files = _files()
    digest = hashlib.sha256("\n".join([NVCC, *map(str, files)]).encode()).hexdigest()[:12]
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return _build(caches / "vision-zoo" / f"cuda11-{digest}", files)
    except (OSError, RuntimeError):  # not writable, or the user has no home
        return _build(Path(tempfile.mkdtemp(prefix="vision-zoo-")) / "cuda11", files)


def _build(home: Path, files: Sequence[Path]) -> Path:
    if (home / "lib64" / RUNTIME_OF_NVCC).exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{home.name}-", dir=home.parent))
    for folder in ("bin", "lib64"):
        (work / folder).mkdir()
    (work / "bin" / "nvcc").write_text(NVCC)
    (work / "bin" / "nvcc").chmod(0o755)
    work.chmod(0o755)
    _link(work / "lib64", files)
    (work / "lib64" / RUNTIME_OF_NVCC).symlink_to("libcudart.so")
    try:
        work.rename(home)  # at once, because several processes may do this at the same time
    except OSError:
        shutil.rmtree(work)
        if not (home / "lib64" / RUNTIME_OF_NVCC).exists():
            raise
    return home


def _link(folder: Path, files: Sequence[Path]) -> None:
    """Link each file under its name with and without a version; links that are there are replaced."""
    for path in files:
        for name in (path.name, path.name.partition(".so")[0] + ".so"):
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(path)


@functools.cache
def _files() -> tuple[Path, ...]:
    """Return the shared libraries of NVIDIA's packages for CUDA 11, sorted: <site-packages>/nvidia/cublas/lib/..."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    packages = {*LIBRARIES.values(), "nccl"}  # NCCL for Paddle; MindSpore brings its own
    return tuple(
        sorted(path for folder in folders for name in packages for path in folder.glob(f"{name}/lib/{PATTERN}"))
    )


def _load(folder: Path) -> None:
    """Load the libraries, so that a library that is linked with them finds them: LD_LIBRARY_PATH is read too early."""
    for name in LIBRARIES:
        ctypes.CDLL(str(folder / name))


def _open(name: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _driver_problem(driver: ctypes.CDLL) -> str | None:
    version, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    if version.value < MIN_DRIVER:
        found = f"{version.value // 1000}.{version.value % 1000 // 10}"
        return f"the NVIDIA driver is one for CUDA {found}; MindSpore needs one for CUDA 11 or later"
    error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if error:
        name = ctypes.c_char_p()
        driver.cuGetErrorName(error, ctypes.byref(name))
        return f"the NVIDIA driver finds no GPU that it can use ({(name.value or b'CUDA error').decode()}, {error})"
    return None if count.value else "the NVIDIA driver finds no GPU"


def _add_library_path(folder: Path) -> None:
    rest = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = f"{folder}:{rest}" if rest else str(folder)


def main() -> int:
    """Make the links for Paddle."""
    try:
        print(f"Paddle finds {link_for_paddle()} libraries of CUDA 11")
        return 0
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
