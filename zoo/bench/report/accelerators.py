"""Peak operations per second and memory of accelerators, by the data sheets of their makers, without sparsity.

    V100 T4 RTX 2080 Ti   nvidia.com: Tesla V100 and T4 data sheets, Turing architecture white paper
    A100 A10 A30 A40      nvidia.com: data sheets of the A series; GA102 white paper for RTX 3090 and A6000
    L4 L40S RTX 4090      nvidia.com: L4 and L40S data sheets, Ada architecture white paper
    H100 H200 B200        nvidia.com: H100, H200 and DGX B200 data sheets, halved where they state sparsity
    MI250X MI300X         amd.com: data sheets; MI250X is the whole card, which is two devices
    Ascend 910            e.huawei.com: Atlas 300T training card (model 9000)

16-bit numbers are those of tensor units that add in fp32. Where a device has TF32, its peak is what fp32 is measured
against, if the run allowed TF32 (train.tf32).
"""

import re
from typing import NamedTuple


class Peaks(NamedTuple):
    """Peak TFLOP/s of a device by the type of numbers; None where it does not compute with it in hardware."""

    fp32: float | None
    tf32: float | None
    fp16: float | None
    bf16: float | None
    fp64: float | None = None


class Peak(NamedTuple):
    flops: float  # operations per second
    source: str  # the type of numbers that it belongs to, or the option that gave it


Entry = tuple[str, Peaks, tuple[int, ...]]  # pattern of the name, peaks, memory in GB that the device is sold with
DEVICES: tuple[Entry, ...] = (  # the first pattern that is found in a name counts
    (r"\bB200\b", Peaks(75, 1100, 2250, 2250, 37), (180,)),
    (r"\bGH200\b|\bH200\b", Peaks(67, 494.7, 989.4, 989.4, 67), (141,)),
    (r"\bH100\b.*NVL", Peaks(60, 417.5, 835.5, 835.5, 60), (94,)),
    (r"\bH100\b.*PCIe", Peaks(51, 378, 756, 756, 51), (80,)),
    (r"\bH100\b", Peaks(67, 494.7, 989.4, 989.4, 67), (80,)),
    (r"\bA100\b|\bA800\b", Peaks(19.5, 156, 312, 312, 19.5), (40, 80)),
    (r"\bA30\b", Peaks(10.3, 82, 165, 165, 10.3), (24,)),
    (r"\bA40\b", Peaks(37.4, 74.8, 149.7, 149.7), (48,)),
    (r"\bA10\b", Peaks(31.2, 62.5, 125, 125), (24,)),
    (r"\bRTX A6000\b", Peaks(38.7, 77.4, 154.8, 154.8), (48,)),
    (r"\bRTX 3090\b(?! Ti)", Peaks(35.6, 35.6, 71, 71), (24,)),
    (r"\bRTX 4090\b(?! D)", Peaks(82.6, 82.6, 165.2, 165.2), (24,)),
    (r"\bL40S\b", Peaks(91.6, 183, 362, 362), (48,)),
    (r"\bL4\b", Peaks(30.3, 60, 121, 121), (24,)),
    (r"\bT4\b", Peaks(8.1, None, 65, None), (16,)),
    (r"\bRTX 2080 Ti\b", Peaks(13.4, None, 53.8, None), (11,)),
    (r"\bV100S\b", Peaks(16.4, None, 130, None, 8.2), (32,)),
    (r"\bV100\b.*PCIE|\bV100\b.*PCIe", Peaks(14, None, 112, None, 7), (16, 32)),
    (r"\bV100\b", Peaks(15.7, None, 125, None, 7.8), (16, 32)),
    (r"\bMI300X\b", Peaks(163.4, 653.7, 1307.4, 1307.4, 163.4), (192,)),
    (r"\bMI250X\b", Peaks(95.7, None, 383, 383, 95.7), (128,)),
    (r"Ascend ?910(?![BC])", Peaks(None, None, 256, None), (32,)),  # the 910B comes in variants of different speed
)


def peak(name: str | None, compute: str | None, tf32: bool = True, override_tflops: float | None = None) -> Peak | None:
    """Return the peak of an accelerator; None if it is not known.

    Args:
        name: of the device, by its driver; None for a CPU.
        compute: type of the numbers of convolutions and matrix products: fp32, fp16, bf16 or fp64.
        tf32: whether fp32 may be computed in TF32.
        override_tflops: peak in TFLOP/s that counts instead, for any device.
    """
    if override_tflops is not None:
        return Peak(override_tflops * 1e12, "--peak-tflops")
    found = _find(name)
    if found is None or compute not in Peaks._fields:
        return None
    peaks, _ = found
    kind = "tf32" if compute == "fp32" and tf32 and peaks.tf32 else compute
    tflops = getattr(peaks, kind)
    return Peak(tflops * 1e12, kind) if tflops else None


def memory(name: str) -> int | None:
    """Return the memory of an accelerator in GB: by its name, else the smallest that it is sold with.

    None if the device is not known, or is not sold with the memory in its name.
    """
    found = _find(name)
    if found is None:
        return None
    _, sizes = found
    given = re.search(r"(\d+) ?GB\b", name, re.IGNORECASE)
    if given is None:
        return min(sizes)
    return int(given[1]) if int(given[1]) in sizes else None


def _find(name: str | None) -> tuple[Peaks, tuple[int, ...]] | None:
    if name is None or re.match(r"\d+ x ", name):  # several devices of one process, which counts as one card
        return None
    return next(((peaks, sizes) for pattern, peaks, sizes in DEVICES if re.search(pattern, name, re.IGNORECASE)), None)
