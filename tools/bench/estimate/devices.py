"""What a device has to compute, and whether and how fast it can."""

from typing import NamedTuple

from zoo.bench.report import accelerators
from zoo.data.errors import UserError

BACKWARD, RECOMPUTED = 3, 4  # operations of an update as multiples of a forward pass
FULL = 0.9  # share of the memory above which a run probably fails: the driver and the libraries take some
GIB = 2**30


class Work(NamedTuple):
    """What a device has to compute.

    Attributes:
        compute: type of the numbers.
        tf32: whether fp32 may be computed in TF32.
        flops: of a forward pass of a sample.
        checkpoints: whether activations are computed again.
        samples: per update and device.
        devices: number of devices.
        epoch: training samples of an epoch; None if not known.
    """

    compute: str
    tf32: bool
    flops: int
    checkpoints: bool
    samples: int
    devices: int
    epoch: int | None


def find(name: str) -> int:
    """Return the memory of an accelerator in bytes.

    Raises:
        UserError: it is not known.
    """
    size = accelerators.memory(name)
    if size is None:
        raise UserError(
            f"--on {name}: not known, or not sold with this memory; examples: H100, 'A100 40GB', 'V100 32GB', T4 "
            "(tools/bench/report/accelerators.py has all of them)"
        )
    return size * GIB


def describe(name: str, memory: int, work: Work) -> list[str]:
    """Return lines that say whether a process fits on an accelerator, and how fast it is at most.

    Args:
        name: of the accelerator.
        memory: bytes of the tensors of a process.
        work: of a process.
    """
    size = find(name)
    share = memory / size
    fits = "it fits" if share <= FULL else "it probably does not fit" if share <= 1 else "it does not fit"
    lines = [f"on {name}: {memory / GIB:.1f} of {size / GIB:.0f} GiB, {share:.0%}: {fits}"]
    peak = accelerators.peak(name, work.compute, work.tf32)
    factor = RECOMPUTED if work.checkpoints else BACKWARD
    operations = factor * work.flops * work.samples
    text = f"  an update of {work.samples} samples is {operations / 1e12:.2f} TFLOP"
    if peak is None:
        return [*lines, f"{text}; the peak in {work.compute} is not known"]
    seconds = operations / peak.flops
    lines.append(
        f"{text}: at least {1000 * seconds:.1f} ms at the peak in {peak.source} ({peak.flops / 1e12:g} TFLOP/s), "
        f"{work.samples / seconds:,.0f} samples/s"
    )
    if work.epoch:
        minutes = work.epoch / (work.samples * work.devices) * seconds / 60
        lines.append(f"  an epoch of {work.epoch:,} samples: at least {minutes:.3g} min; runs reach a part of the peak")
    return lines
