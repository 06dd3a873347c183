"""The plugin that makes a device `npu` of the host's memory, with kernels of 16 bits and collectives."""

import subprocess
from pathlib import Path

SOURCES = ("device.cc", "kernels.cc", "collectives.cc")
LIBRARIES = ("phi_core", "phi", "common")
PLUGIN = "libnpu.so"


def build(paddle: Path, out: Path) -> None:
    """Compile the plugin for the Paddle in a folder: the environment variable CUSTOM_DEVICE_ROOT is to name `out`."""
    out.mkdir(parents=True, exist_ok=True)
    headers = paddle / "include"
    compile_cc = ["g++", "-std=c++17", "-O1", "-fPIC", "-w", "-shared", "-DPADDLE_WITH_CUSTOM_DEVICE"]
    compile_cc += [f"-I{headers}", f"-I{headers / 'third_party'}", f"-L{paddle / 'libs'}"]
    sources = [Path(__file__).with_name(name) for name in SOURCES]
    subprocess.run([*compile_cc, *sources, "-o", out / PLUGIN, *(f"-l{name}" for name in LIBRARIES)], check=True)


def missing(paddle: Path) -> str:
    """Return what the plugin cannot be built without, "" if it is all there."""
    needed = (
        paddle / "include/paddle/phi/backends/device_ext.h",
        *(paddle / f"libs/lib{name}.so" for name in LIBRARIES),
    )
    return ", ".join(str(path) for path in needed if not path.exists())
