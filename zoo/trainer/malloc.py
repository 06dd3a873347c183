"""Memory of tensors on a CPU, which this process keeps from one update to the next.

The C library gives large blocks back to the kernel when they are freed, and gets them again in the next operation, page
by page and filled with zeros: up to a fifth of an update.
"""

import ctypes
import os
from collections.abc import Mapping

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


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
