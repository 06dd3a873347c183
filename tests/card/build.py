"""The library in whose place PyTorch's CUDA build looks for NVIDIA's: device.c, and functions that return 0."""

import re
import subprocess
import sys
from pathlib import Path

NVIDIA = r"(__cuda|cu[A-Z]|cuda[A-Z]|cublas|cudnn|cufft|cufile|cupti|curand|cusolver|cusparse|nccl|nvml|nvrtc|nvshmem)"
COUNTED = r"cublas\w*(Gemm|gemm|gemv|Matmul)(Ex|\w*Batched\w*)?|cudnn(BackendExecute|\w*(Forward|Backward)\w*Ex)"
BY_NAME = ("torch/include/c10/cuda/driver_api.h", "triton/backends/nvidia/driver.c")  # that look functions up by name
OPENED = ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1")  # when needed


def build(packages: Path, out: Path) -> None:
    """Compile the library for the PyTorch in a folder of packages, and give it the names of NVIDIA's."""
    out.mkdir(parents=True, exist_ok=True)
    compile_c = ["gcc", "-O1", "-fPIC", "-w"]
    subprocess.run([*compile_c, "-c", Path(__file__).with_name("device.c"), "-o", out / "device.o"], check=True)
    torch = sorted((packages / "torch/lib").glob("*.so"))
    missing = symbols("--undefined-only", *torch)
    for file in BY_NAME:
        missing |= set(re.findall(r"\b(?:cu[A-Z]|nvml)\w+", (packages / file).read_text()))
    names = sorted(name for name in missing - symbols("--defined-only", out / "device.o") if re.match(NVIDIA, name))
    lines = ["void card_count(const char *, const char *, long);"]
    for name in names:
        count = f'card_count("call", "{name}", 0); ' if re.fullmatch(COUNTED, name) else ""
        lines.append(f"long {name}() {{ {count}return 0; }}")
    (out / "rest.c").write_text("\n".join(lines))
    library = out / "libcard.so"
    subprocess.run([*compile_c, "-shared", out / "device.o", out / "rest.c", "-o", library], check=True)
    for name in {*OPENED, *(name for name in needed(*torch) if re.match("lib(cu|nccl|nvrtc|nvshmem)", name))}:
        (out / name).unlink(missing_ok=True)
        (out / name).symlink_to(library.name)


def symbols(kind: str, *files: Path) -> set[str]:
    """Return the names, without versions, of the dynamic symbols of libraries, or the symbols of object files."""
    dynamic = [] if files[0].suffix == ".o" else ["--dynamic"]
    printed = subprocess.run(["nm", *dynamic, kind, *files], capture_output=True, text=True, check=True).stdout
    return {words[-1].partition("@")[0] for line in printed.splitlines() if len(words := line.split()) > 1}


def needed(*files: Path) -> set[str]:
    """Return the names of the libraries that libraries are linked with."""
    printed = subprocess.run(["readelf", "-d", *files], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", printed))


if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]))
