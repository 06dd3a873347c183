"""This process's device, and the processes beside it."""

import os
from dataclasses import dataclass
from typing import Any

import paddle

from data.errors import UserError
from zoo.trainer.protocol import Launch, Mode


@dataclass(frozen=True)
class World:
    """This process among those of the run; their collectives go through paddle.distributed."""

    rank: int
    size: int
    name: str  # Paddle's name of the device: cpu, gpu:0, npu:0
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

    def resolve_mode(self, wish: Mode) -> Mode:
        """`amp` is fp16 with loss scaling. Raises UserError for 16 bits on a CPU, where Paddle quietly keeps 32."""
        compute = "fp16" if wish.compute == "amp" else wish.compute
        if wish.channels_last:
            raise UserError("train.channels_last: only PyTorch's models can be laid out so; leave it out")
        if compute == "fp32":
            return Mode(compute, None, False, bool(wish.compile))
        if self.name == "cpu":
            raise UserError(
                f"train.precision: Paddle has no 16-bit kernels for a CPU and would silently compute in "
                f"fp32 instead of {wish.compute}; leave --amp out or use --framework torch"
            )
        if not self.has(compute):
            other = "fp16" if self.has("fp16") else "fp32"
            raise UserError(f"train.precision: {self.device} has no {compute}; use {other}")
        if wish.level not in (None, "O1", "O2"):
            raise UserError(f"train.amp_level: Paddle has O1 and O2, there is no {wish.level}; leave it out")
        return Mode(compute, wish.level or "O1", False, bool(wish.compile))

    def close(self) -> None:
        if self.size > 1:
            paddle.distributed.destroy_process_group()

    def exit_process(self, code: int) -> None:
        pass


def start(launch: Launch, device: str, port: int = 0) -> World:
    """The world of this process. device: auto, cpu, cuda or cuda:N, npu or npu:N; several processes take the device of
    their local rank.

    port: a free one on the machine of rank 0. Raises UserError for a device that is not there.
    """
    if device == "auto":
        device = next((kind for kind in ("cuda", "npu") if found(kind)), "cpu")
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda", "npu") or (number and (kind == "cpu" or not number.isdigit())):
        raise UserError(f"device: expected auto, cpu, cuda, cuda:N, npu or npu:N, got {device!r}")
    if launch.size > 1 and kind != "cpu" and found(kind) > 1:  # else the launcher shows each its own device alone
        number = str(launch.local_rank)
    if kind != "cpu" and int(number or 0) >= found(kind):
        raise UserError(
            f"device: there is no {device} here ({kind.upper()} devices that this Paddle finds: "
            f"{found(kind)}); use --device cpu"
        )
    name = "cpu" if kind == "cpu" else f"{'gpu' if kind == 'cuda' else kind}:{number or 0}"
    place = paddle.set_device(name)
    if launch.size > 1:
        _join(launch, name, port)
    return World(launch.rank, launch.size, name, place)


def _join(launch: Launch, name: str, port: int) -> None:
    """Paddle reads its own launcher's variables; only the store at the master address is ever connected to.

    Not fleet.init, which makes more groups at once: with three processes on a CPU, one start in four failed so.
    """
    kind, _, number = name.partition(":")
    ends = [f"{launch.address}:{port + rank}" for rank in range(launch.size)]  # names of the ranks
    os.environ.update(
        {
            "PADDLE_TRAINER_ID": str(launch.rank),
            "PADDLE_TRAINERS_NUM": str(launch.size),
            "PADDLE_MASTER": ends[0],
            "PADDLE_TRAINER_ENDPOINTS": ",".join(ends),
            "PADDLE_CURRENT_ENDPOINT": ends[launch.rank],
            "PADDLE_RANK_IN_NODE": str(launch.local_rank),
            "PADDLE_LOCAL_RANK": str(launch.local_rank),
            "PADDLE_DISTRI_BACKEND": {"cpu": "gloo", "gpu": "nccl"}.get(kind, "xccl"),
            "MASTER_ADDR": launch.address,
            "MASTER_PORT": str(port),
        }
    )
    if kind != "cpu":
        os.environ[f"FLAGS_selected_{kind}s"] = number
    paddle.distributed.init_parallel_env()
    paddle.distributed.all_reduce(paddle.ones([1]))  # the first one makes the connections


def found(kind: str) -> int:
    """How many devices of a kind this build of Paddle can use."""
    if kind == "cuda":
        return paddle.device.cuda.device_count() if paddle.is_compiled_with_cuda() else 0
    return sum(device.startswith("npu") for device in paddle.device.get_available_custom_device() or ())
