"""CUDA's libraries that a framework's GPU build needs: found by the loader, or in packages of pip, or missing."""

import ctypes
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from zoo.cuda_libraries import LIBRARIES as CUDA_11
from zoo.doctor import child
from zoo.doctor.worker import Tell

# Major version of CUDA -> names of the files that its builds ask for, a library after those that it needs itself.
LIBRARIES = {
    11: tuple(name for name in CUDA_11 if not name.startswith("libcudnn")),
    12: (
        "libcudart.so.12",
        "libnvrtc.so.12",
        "libnvJitLink.so.12",
        "libcublasLt.so.12",
        "libcublas.so.12",
        "libcufft.so.11",
        "libcurand.so.10",
        "libcusparse.so.12",
        "libcusolver.so.11",
    ),
    13: (
        "libcudart.so.13",
        "libnvrtc.so.13",
        "libnvJitLink.so.13",
        "libcublasLt.so.13",
        "libcublas.so.13",
        "libcufft.so.12",
        "libcurand.so.10",
        "libcusparse.so.12",
        "libcusolver.so.12",
    ),
}
CUDNN = {11: "libcudnn.so.8", 12: "libcudnn.so.9", 13: "libcudnn.so.9"}
NCCL = "libnccl.so.2"
OWN_NCCL = ("mindspore",)  # frameworks that bring NCCL in a folder of their own


def required(framework: str, build: str, cudnn: str | None) -> tuple[str, ...]:
    """Return the names of the libraries that a build needs; none if its version of CUDA is not known here.

    Args:
        framework: name of the framework.
        build: the version of CUDA that it is built for, such as 12.6.
        cudnn: its version of cuDNN; None if it does not tell.
    """
    major = int(build.partition(".")[0])
    if major not in LIBRARIES:
        return ()
    first = cudnn.partition(".")[0] if cudnn else ""
    deep = f"libcudnn.so.{first}" if first.isdigit() else CUDNN[major]
    return (*LIBRARIES[major], deep, *(() if framework in OWN_NCCL else (NCCL,)))


def missing(seconds: float, names: Sequence[str]) -> tuple[list[str], str | None]:
    """Return those of the libraries that cannot be loaded, and why nothing is known, None if all were tried."""
    answer = child.ask(seconds, "libraries", *names)
    unusable = [f"{name} ({reason})" if reason else name for name, reason in answer.facts.get("missing", {}).items()]
    return unusable, answer.failure


def mindspore_build() -> str | None:
    """Return the newest version of CUDA that the installed MindSpore has a plugin for, such as 11.6; None without."""
    spec = importlib.util.find_spec("mindspore")
    folders = (spec.submodule_search_locations if spec else None) or ()
    plugins = [path.name for folder in folders for path in Path(folder).glob("lib/plugin/libmindspore_gpu.so.*")]
    versions = [name.removeprefix("libmindspore_gpu.so.") for name in plugins]
    return max(versions, key=lambda version: [int(part) for part in version.split(".")], default=None)


def package_folders() -> list[Path]:
    """Return the folders of libraries of NVIDIA's packages: nvidia/cublas/lib, or nvidia/cu13/lib."""
    spec = importlib.util.find_spec("nvidia")
    roots = (spec.submodule_search_locations if spec else None) or ()
    return [folder for root in roots for folder in sorted(Path(root).glob("*/lib"))]


def probe(tell: Tell, *names: str) -> None:
    """Load each library as the loader finds it, or else from NVIDIA's packages.

    Facts: `missing`, name -> why it cannot be loaded, empty if there is no such file.
    """
    folders, failed = package_folders(), {}
    for name in names:
        tell(stage=f"loading {name}")
        reason = _load(name, folders)
        if reason is not None:
            failed[name] = reason
    tell(missing=failed)


def _load(name: str, folders: Sequence[Path]) -> str | None:
    """Load a library with its symbols visible to those after it; return why it cannot be, None if it can."""
    reason = ""
    for path in (name, *(str(folder / name) for folder in folders if (folder / name).exists())):
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            return None
        except OSError as error:
            text = str(error)
            reason = "" if text.startswith(f"{name}: cannot open shared object") else text
    return reason
