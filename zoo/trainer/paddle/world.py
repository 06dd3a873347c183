"""This process's device, and the processes beside it."""
import os
from dataclasses import dataclass
from typing import Any, Dict, Mapping

import numpy as np
import paddle

from data.errors import UserError
from zoo.trainer.protocol import Launch, Mode


@dataclass(frozen=True)
class World:
    """One process alone."""
    rank: int
    size: int
    name: str   # Paddle's name of the device: cpu, gpu:0, npu:0
    place: Any

    @property
    def device(self) -> str:
        if self.name == "cpu":
            return f"cpu ({os.environ['OMP_NUM_THREADS']} threads)"
        kind, _, number = self.name.partition(":")
        return f"cuda:{number} ({paddle.device.cuda.get_device_name(int(number))})" if kind == "gpu" else self.name

    def has(self, compute: str) -> bool:
        """Whether the device has a 16-bit type. Where not, Paddle's auto_cast warns and goes on in fp32."""
        kind, _, number = self.name.partition(":")
        if kind == "gpu":
            return paddle.device.cuda.get_device_capability(int(number))[0] >= {"fp16": 7, "bf16": 8}[compute]
        return kind != "cpu" and (compute == "fp16" or paddle.amp.is_bfloat16_supported())

    def settle(self, wish: Mode) -> Mode:
        """`amp` is fp16 with loss scaling. Raises UserError for 16 bits on a CPU, where Paddle quietly keeps 32."""
        compute = "fp16" if wish.compute == "amp" else wish.compute
        if wish.channels_last:
            raise UserError("train.channels_last: only PyTorch's nets can be laid out so; leave it out")
        if compute == "fp32":
            return Mode(compute, None, False, bool(wish.compile))
        if self.name == "cpu":
            raise UserError(f"train.precision: Paddle has no 16-bit kernels for a CPU and would silently compute in "
                            f"fp32 instead of {wish.compute}; leave --amp out or use --framework torch")
        if not self.has(compute):
            other = "fp16" if self.has("fp16") else "fp32"
            raise UserError(f"train.precision: {self.device} has no {compute}; use {other}")
        if wish.level not in (None, "O1", "O2"):
            raise UserError(f"train.amp_level: Paddle has O1 and O2, there is no {wish.level}; leave it out")
        return Mode(compute, wish.level or "O1", False, bool(wish.compile))

    def sum(self, arrays: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        return dict(arrays)

    def close(self) -> None:
        pass


def start(launch: Launch, device: str) -> World:
    """The world of this process. device: auto, cpu, cuda or cuda:N, npu or npu:N. Raises UserError for one that is not
    there."""
    if device == "auto":
        device = next((kind for kind in ("cuda", "npu") if found(kind)), "cpu")
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda", "npu") or number and (kind == "cpu" or not number.isdigit()):
        raise UserError(f"device: expected auto, cpu, cuda, cuda:N, npu or npu:N, got {device!r}")
    if kind != "cpu" and int(number or 0) >= found(kind):
        raise UserError(f"device: there is no {device} here ({kind.upper()} devices that this Paddle finds: "
                        f"{found(kind)}); use --device cpu")
    name = "cpu" if kind == "cpu" else f"{'gpu' if kind == 'cuda' else kind}:{number or 0}"
    return World(launch.rank, launch.size, name, paddle.set_device(name))


def found(kind: str) -> int:
    """How many devices of a kind this build of Paddle can use."""
    if kind == "cuda":
        return paddle.device.cuda.device_count() if paddle.is_compiled_with_cuda() else 0
    return sum(device.startswith("npu") for device in paddle.device.get_available_custom_device() or ())
