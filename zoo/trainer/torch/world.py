"""This process's device, and the processes beside it."""

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from data.errors import UserError
from zoo.trainer.protocol import Launch, Mode


@dataclass(frozen=True)
class World:
    """This process among those of the run; their collectives go through torch.distributed."""

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

    def resolve_mode(self, wish: Mode) -> Mode:
        """`amp` is fp16 with loss scaling on a GPU and bf16 on a CPU; autocast is level O1."""
        compute, cuda = wish.compute, self.torch_device.type == "cuda"
        if compute == "amp":
            compute = "fp16" if cuda else "bf16"
        if compute == "bf16" and cuda and not self.has_bf16:
            raise UserError(f"train.precision: {self.device} has no bf16; use fp16")
        if wish.level not in (None, "O1"):
            raise UserError(f"train.amp_level: PyTorch's autocast is O1, there is no {wish.level}; leave it out")
        return Mode(compute, None if compute == "fp32" else "O1", wish.channels_last is not False, bool(wish.compile))

    def close(self) -> None:
        if self.size > 1:
            dist.destroy_process_group()

    def exit_process(self, code: int) -> None:
        pass


def start(launch: Launch, device: str, port: int = 0) -> World:
    """The world of this process. device: auto, cpu, cuda or cuda:N; several processes take the GPU of their local rank.

    port: a free one on the machine of rank 0. Raises UserError for a device that is not there.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise UserError(f"device: expected auto, cpu, cuda or cuda:N, got {device!r}")
    if kind == "cuda":
        if launch.size > 1 and torch.cuda.device_count() > 1:  # else the launcher shows each process its own GPU alone
            number = str(launch.local_rank)
        if int(number or 0) >= torch.cuda.device_count():
            raise UserError(
                f"device: there is no {device} here (CUDA devices found: {torch.cuda.device_count()}); use --device cpu"
            )
        device = f"cuda:{number or 0}"
        torch.cuda.set_device(device)
    if launch.size > 1:
        # A store of our own: under torchrun, a tcp:// address would mean the launcher's.
        store = dist.TCPStore(launch.address, port, launch.size, launch.rank == 0)
        dist.init_process_group(
            "nccl" if kind == "cuda" else "gloo",
            store=store,
            rank=launch.rank,
            world_size=launch.size,
            timeout=timedelta(minutes=30),
        )
        dist.all_reduce(torch.ones(1, device=device))  # the first one makes the connections
    return World(launch.rank, launch.size, torch.device(device))
