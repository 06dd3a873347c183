"""Settings of the x264 encoder that depend on the processor."""

from functools import lru_cache


@lru_cache(maxsize=1)
def cpu_parameters() -> tuple[str, ...]:
    """Return parameters that make x264 deterministic: its AVX-512 code gives different bytes in every run."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            has_avx512 = "avx512" in file.read()
    except OSError:
        has_avx512 = False
    return ("asm=avx2",) if has_avx512 else ()
