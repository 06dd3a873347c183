"""Settings of a process on a CPU: memory of tensors, and matrix products of an old MKL.

The C library gives large blocks back to the kernel when they are freed, and gets them again in the next operation, page
by page and filled with zeros: up to a fifth of an update.

The MKL in Paddle's packages, which is of 2019, uses AVX2 on Intel's processors alone; on others SSE2, which takes 2.5
times as long in fp32.
"""

import ctypes
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
CPU_INFO = Path("/proc/cpuinfo")
VARIABLE = "MKL_DEBUG_CPU_TYPE"  # MKL from 2020.1 on ignores it and does not need it
AVX2 = "5"


def keep_freed_memory(environ: Mapping[str, str] = os.environ) -> bool:
    """Let freed blocks of any size stay with this process; return whether that was possible.

    Args:
        environ: variables of this process; those that glibc reads (MALLOC_..., GLIBC_TUNABLES) count instead.
    """
    if any(name.startswith("MALLOC_") for name in environ) or "GLIBC_TUNABLES" in environ:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    never, none = -1, 0
    return bool(mallopt(M_TRIM_THRESHOLD, never) and mallopt(M_MMAP_MAX, none))


def prepare_mkl(environ: MutableMapping[str, str]) -> None:
    """Let MKL use AVX2 where the processor has it. To be called before a library with MKL is loaded.

    Args:
        environ: variables of this process; a value that is set remains.
    """
    try:
        text = CPU_INFO.read_text()
    except OSError:  # not Linux
        return
    if needs_variable(text):
        environ.setdefault(VARIABLE, AVX2)


def needs_variable(cpu_info: str) -> bool:
    """Return whether /proc/cpuinfo describes a processor that has AVX2, and on which MKL does not use it."""
    first, _, _ = cpu_info.partition("\n\n")
    fields = dict(line.replace("\t", "").split(":", 1) for line in first.splitlines() if ":" in line)
    has_avx2 = {"avx2", "fma"} <= set(fields.get("flags", "").split())
    return has_avx2 and fields.get("vendor_id", "").strip() in ("AuthenticAMD", "HygonGenuine")
