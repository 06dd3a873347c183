"""The device of a process, from the setting `device` and the launcher's local rank; settings of a process on a CPU.

The C library gives large blocks back to the kernel when they are freed, and gets them again in the next operation, page
by page and filled with zeros: up to a fifth of an update. The MKL in Paddle's packages, which is of 2019, uses AVX2 on
Intel's processors alone; on others SSE2, which takes 2.5 times as long in fp32.
"""

import ctypes
import os
import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.data.errors import Option, UserError, natural
from zoo.trainer.world import Launch

CANN = "/usr/local/Ascend/ascend-toolkit/latest"  # where ASCEND_HOME_PATH does not name another folder
CANN_FILES = ("version.cfg", "*/ascend_toolkit_install.info", "*/ascend_nnae_install.info")
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
CPU_INFO = Path("/proc/cpuinfo")
VARIABLE = "MKL_DEBUG_CPU_TYPE"  # MKL from 2020.1 on ignores it and does not need it
AVX2 = "5"
BF16_FLAGS = ("avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16")  # of a processor with bf16 instructions; last: ARM
ISA_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")  # the first that is set counts
ISAS_WITHOUT_BF16 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI")


@dataclass(frozen=True)
class Device:
    """Device of a process: type ("cpu", "cuda", "npu") and index among the visible devices of this type."""

    type: str
    index: int = 0

    def __str__(self) -> str:
        return self.type if self.type == "cpu" else f"{self.type}:{self.index}"


def select_device(
    setting: str, launch: Launch, accelerators: Sequence[str], count: Callable[[str], int], framework: str
) -> Device:
    """Return the device that a process uses.

    Args:
        setting: auto, cpu, or an accelerator's type with or without an index, such as cuda or cuda:1.
        launch: this process. Each of several takes the device of its local rank, unless the launcher shows it only one.
        accelerators: types that the framework supports; `auto` takes the first that is present.
        count: type -> number of visible devices.
    """
    if setting == "auto":
        setting = next((kind for kind in accelerators if count(kind)), "cpu")
    kind, _, index = setting.partition(":")
    if setting == "cpu":
        return Device("cpu")
    if kind not in accelerators or (index and natural(index) is None):
        forms = ["auto", "cpu", *(form for kind in accelerators for form in (kind, f"{kind}:N"))]
        raise UserError(f"device: expected {', '.join(forms[:-1])} or {forms[-1]}, got {setting!r}")
    if launch.size > 1 and count(kind) > 1:
        index = str(launch.local_rank)
    device = Device(kind, int(index or 0))
    if device.index >= count(kind):
        raise UserError(
            f"device: there is no {device} here ({kind} devices that {framework} finds: {count(kind)}); use ",
            Option("--device", "cpu"),
        )
    return device


def dotted_cudnn(number: int | None) -> str | None:
    """Return cuDNN's version number as text: 90501 is 9.5.1; before 9, 8902 was 8.9.2."""
    if not number:
        return None
    major = 10000 if number >= 90000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def cann_version() -> str | None:
    """Return the version of Ascend's CANN toolkit; None if it is not installed."""
    folder = Path(os.environ.get("ASCEND_HOME_PATH", CANN))
    for pattern in CANN_FILES:
        for path in sorted(folder.glob(pattern)):
            match = re.search(r"(?:^version=|runtime_running_version=\[)(\d[^:\s\]]*)", path.read_text(), re.MULTILINE)
            if match:
                return match[1]
    return None


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
    if needs_variable():
        environ.setdefault(VARIABLE, AVX2)


def needs_variable() -> bool:
    """Return whether the processor has AVX2, and MKL does not use it."""
    vendor, flags = processor()
    return {"avx2", "fma"} <= flags and vendor in ("AuthenticAMD", "HygonGenuine")


def has_bf16_instructions(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the processor has bf16 instructions, and oneDNN may use them.

    With AVX-512 alone oneDNN computes bf16, too, in two to three times the time of fp32.
    """
    limit = next(filter(None, map(environ.get, ISA_VARIABLES)), "")
    return limit.upper() not in ISAS_WITHOUT_BF16 and not processor()[1].isdisjoint(BF16_FLAGS)


def is_slower_than_fp32(compute: str) -> bool:
    """Return whether a CPU takes longer for updates in a 16-bit type: for all but bf16 with its own instructions."""
    return compute == "fp16" or (compute == "bf16" and not has_bf16_instructions())


def processor() -> tuple[str, set[str]]:
    """Return vendor and flags of the processor; nothing where the system is not Linux."""
    try:
        first, _, _ = CPU_INFO.read_text().partition("\n\n")
    except OSError:
        return "", set()
    fields = dict(line.replace("\t", "").split(":", 1) for line in first.splitlines() if ":" in line)
    return fields.get("vendor_id", "").strip(), {*fields.get("flags", fields.get("Features", "")).split()}
