"""This process's device, and the processes beside it."""
import os
from dataclasses import dataclass
from typing import Dict, Mapping

import mindspore
import numpy as np

from data.errors import UserError
from zoo.trainer.protocol import Launch, Mode

TARGETS = {"cpu": "CPU", "cuda": "GPU", "npu": "Ascend"}


@dataclass(frozen=True)
class World:
    """One process alone."""
    rank: int
    size: int
    kind: str    # cpu, cuda, npu
    number: int

    @property
    def device(self) -> str:
        if self.kind == "cpu":
            return f"cpu ({os.cpu_count()} cores)"
        return f"{self.kind}:{self.number} ({TARGETS[self.kind]})"

    def settle(self, wish: Mode) -> Mode:
        """`amp` is fp16 with loss scaling, O1 MindSpore's level `auto`, compiled is graph mode; else pynative."""
        compute = "fp16" if wish.compute == "amp" else wish.compute
        if compute == "bf16" and self.kind != "npu":
            raise UserError(f"train.precision: MindSpore has no bf16 on {self.device}; use fp16")
        if wish.channels_last:
            raise UserError("train.channels_last: MindSpore's nets are channels first; leave it out")
        return Mode(compute, None if compute == "fp32" else wish.level or "O1", False, wish.compile is not False)

    def sum(self, arrays: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        return dict(arrays)

    def close(self) -> None:
        pass


def start(launch: Launch, device: str) -> World:
    """The world of this process. device: auto, cpu, cuda[:N] or npu[:N]. Raises UserError for one that is not there."""
    if device == "auto":
        device = next((kind for kind in ("cuda", "npu") if _count(kind)), "cpu")
    kind, _, number = device.partition(":")
    if kind not in TARGETS or number and not (number.isdigit() and kind != "cpu"):
        raise UserError(f"device: expected auto, cpu, cuda, cuda:N, npu or npu:N, got {device!r}")
    if kind != "cpu" and int(number or 0) >= _count(kind):
        raise UserError(f"device: there is no {device} here ({TARGETS[kind]} devices that this MindSpore finds: "
                        f"{_count(kind)}); use --device cpu")
    mindspore.set_device(TARGETS[kind], int(number or 0))
    return World(launch.rank, launch.size, kind, int(number or 0))


def _count(kind: str) -> int:
    target = TARGETS[kind]
    return mindspore.hal.device_count(target) if mindspore.hal.is_available(target) else 0
