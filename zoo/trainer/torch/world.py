"""This process's device, and the processes beside it."""
from dataclasses import dataclass
from typing import Dict, Mapping

import numpy as np
import torch

from data.errors import UserError
from zoo.trainer.protocol import Launch, Mode


@dataclass(frozen=True)
class World:
    """One process alone."""
    rank: int
    size: int
    torch_device: torch.device

    @property
    def device(self) -> str:
        if self.torch_device.type == "cuda":
            return f"{self.torch_device} ({torch.cuda.get_device_name(self.torch_device)})"
        rounding = "" if self.has_bf16 else ", bf16 by rounding"
        return f"cpu ({torch.get_num_threads()} threads{rounding})"

    @property
    def has_bf16(self) -> bool:
        """Whether the device multiplies bf16 numbers itself."""
        if self.torch_device.type == "cuda":
            return torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()

    def settle(self, wish: Mode) -> Mode:
        """`amp` is fp16 with loss scaling on a GPU and bf16 on a CPU; autocast is level O1."""
        compute, cuda = wish.compute, self.torch_device.type == "cuda"
        if compute == "amp":
            compute = "fp16" if cuda else "bf16"
        if compute == "bf16" and cuda and not self.has_bf16:
            raise UserError(f"train.precision: {self.device} has no bf16; use fp16")
        if wish.level not in (None, "O1"):
            raise UserError(f"train.amp_level: PyTorch's autocast is O1, there is no {wish.level}; leave it out")
        return Mode(compute, None if compute == "fp32" else "O1", wish.channels_last is not False, bool(wish.compile))

    def sum(self, arrays: Mapping[str, np.ndarray]) -> Dict[str, np.ndarray]:
        return dict(arrays)

    def close(self) -> None:
        pass


def start(launch: Launch, device: str) -> World:
    """The world of this process. device: auto, cpu, cuda or cuda:N. Raises UserError for one that is not there."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or number and not number.isdigit():
        raise UserError(f"device: expected auto, cpu, cuda or cuda:N, got {device!r}")
    if kind == "cuda":
        if int(number or 0) >= torch.cuda.device_count():
            raise UserError(f"device: there is no {device} here (CUDA devices found: {torch.cuda.device_count()}); "
                            "use --device cpu")
        device = f"cuda:{number or 0}"
        torch.cuda.set_device(device)
    return World(launch.rank, launch.size, torch.device(device))
