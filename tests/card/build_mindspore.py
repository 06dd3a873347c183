"""NVIDIA's libraries of CUDA 11, and MindSpore's own kernels, where its GPU back end looks for them: mindspore.c."""

import re
import subprocess
import sys
from pathlib import Path

from tests.card.build import NVIDIA, symbols
from zoo.cuda_libraries import DRIVER, LIBRARIES

SOURCE = Path(__file__).with_name("mindspore.c")


def build(plugin: Path, out: Path) -> None:
    """Make a folder for LD_LIBRARY_PATH and PYTHONPATH, from MindSpore's folder of back ends.

    One library is the driver, and has the name of MindSpore's kernels inside, so that these are not loaded. The others,
    in packages like NVIDIA's, are empty and linked with it.
    """
    out.mkdir(parents=True, exist_ok=True)
    compile_c = ["gcc", "-O1", "-fPIC", "-w"]
    subprocess.run([*compile_c, "-c", SOURCE, "-o", out / "own.o"], check=True)
    back_end, kernels = plugin / "libmindspore_gpu.so.11.6", plugin / "gpu/libcuda_ops.so.11"
    missing = symbols("--undefined-only", back_end) - symbols("--defined-only", out / "own.o")
    names = {name for name in missing if re.match(NVIDIA, name)} | missing & symbols("--defined-only", kernels)
    lines = [f'int {name}() __attribute__((alias("{function(name)}")));' for name in sorted(names)]
    (out / "all.c").write_text("\n".join([f'#include "{SOURCE}"', *lines]))
    shared = [*compile_c, "-shared", f"-Wl,-soname,{kernels.name}"]
    subprocess.run([*shared, out / "all.c", "-o", out / DRIVER], check=True)
    for name, package in LIBRARIES.items():
        library = out / "nvidia" / package / "lib" / name
        library.parent.mkdir(parents=True, exist_ok=True)
        linked = [f"-Wl,-soname,{name}", "-Wl,--no-as-needed", out / DRIVER, "-x", "c", "/dev/null"]
        subprocess.run(["gcc", "-shared", *linked, "-o", library], check=True)
    (out / "nvidia/__init__.py").touch()  # or the packages beside PyTorch's or DALI's would hide these


def function(name: str) -> str:
    """Return the function of mindspore.c that takes the place of one that is not there."""
    return "handle" if "Create" in name else "algorithm" if re.match("cudnn.*Conv.*Algorithm", name) else "nothing"


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
