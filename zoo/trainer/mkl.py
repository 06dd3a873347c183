"""Matrix products of the MKL in Paddle's packages, which is of 2019, on AMD's processors.

It uses AVX2 on Intel's processors alone; on others SSE2, which takes 2.5 times as long in fp32.
"""

from collections.abc import MutableMapping
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
VARIABLE = "MKL_DEBUG_CPU_TYPE"  # MKL from 2020.1 on ignores it and does not need it
AVX2 = "5"


def prepare(environ: MutableMapping[str, str]) -> None:
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
