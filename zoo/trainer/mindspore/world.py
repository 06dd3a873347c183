"""This process's device, and the processes beside it."""

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import mindspore
import numpy as np
from mindspore import Tensor, communication, ops

from data.errors import UserError
from zoo.trainer.protocol import Launch, Mode

ROOT = Path(__file__).resolve().parents[3]
TARGETS = {"cpu": "CPU", "cuda": "GPU", "npu": "Ascend"}
START = 60.0  # seconds that the scheduler may take


@dataclass(frozen=True)
class World:
    """This process among those of the run; their collectives go through MindSpore's own cluster."""

    rank: int
    size: int
    device_type: str  # cpu, cuda, npu
    device_index: int
    scheduler: subprocess.Popen | None = None  # of MindSpore's cluster, which rank 0 has started

    @property
    def device(self) -> str:
        if self.device_type == "cpu":
            return f"cpu ({os.cpu_count()} cores)"
        return f"{self.device_type}:{self.device_index} ({TARGETS[self.device_type]})"

    def resolve_mode(self, wish: Mode) -> Mode:
        """`amp` is fp16 with loss scaling, O1 MindSpore's level `auto`, compiled is graph mode; else pynative."""
        compute = "fp16" if wish.compute == "amp" else wish.compute
        if compute == "bf16" and self.device_type != "npu":
            raise UserError(f"train.precision: MindSpore has no bf16 on {self.device}; use fp16")
        if wish.channels_last:
            raise UserError("train.channels_last: MindSpore's models are channels first; leave it out")
        return Mode(compute, None if compute == "fp32" else wish.level or "O1", False, wish.compile is not False)

    def close(self) -> None:
        pass  # leave() ends it, when all have parted

    def exit_process(self, code: int) -> None:
        """End one of several processes without MindSpore's own taking down, which now and then crashes (signal 11)
        where its neighbours or the scheduler have ended before it. Nothing is left to save then."""
        if self.size > 1:
            if self.scheduler:
                self.scheduler.kill()  # it would wait half a minute for news of processes that said no goodbye
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def start(launch: Launch, device: str, port: int = 0) -> World:
    """The world of this process. device: auto, cpu, cuda[:N] or npu[:N]; several processes take the device of their
    local rank.

    port: a free one on the machine of rank 0. Raises UserError for a device that is not there.
    """
    if device == "auto":
        device = next((kind for kind in ("cuda", "npu") if _count(kind)), "cpu")
    kind, _, number = device.partition(":")
    if kind not in TARGETS or (number and not (number.isdigit() and kind != "cpu")):
        raise UserError(f"device: expected auto, cpu, cuda, cuda:N, npu or npu:N, got {device!r}")
    if launch.size > 1 and kind != "cpu" and _count(kind) > 1:  # else the launcher shows each its own device alone
        number = str(launch.local_rank)
    if kind != "cpu" and int(number or 0) >= _count(kind):
        raise UserError(
            f"device: there is no {device} here ({TARGETS[kind]} devices that this MindSpore finds: "
            f"{_count(kind)}); use --device cpu"
        )
    mindspore.set_device(TARGETS[kind], int(number or 0))
    scheduler = _join(launch, port) if launch.size > 1 else None
    return World(launch.rank, launch.size, kind, int(number or 0), scheduler)


def _join(launch: Launch, port: int) -> subprocess.Popen | None:
    """Join MindSpore's cluster, whose scheduler rank 0 starts beside itself."""
    for name in [name for name in os.environ if name.startswith(("OMPI_", "PMIX_", "PRTE_", "PMI_"))]:
        del os.environ[name]  # else MindSpore looks for MPI's own libraries
    os.environ.update(MS_WORKER_NUM=str(launch.size), MS_SCHED_HOST=launch.address, MS_SCHED_PORT=str(port))
    scheduler = None
    if launch.rank == 0:
        scheduler = subprocess.Popen(
            [sys.executable, "-m", "zoo.trainer.mindspore.scheduler", str(os.getpid())],
            cwd=ROOT,
            env={**os.environ, "MS_ROLE": "MS_SCHED"},
        )
    os.environ.update(MS_ROLE="MS_WORKER", MS_NODE_ID=str(launch.rank), MS_WORKER_IP=launch.local_address)
    _await_scheduler(launch.address, port)
    communication.init()
    ops.AllReduce()(Tensor(np.ones(1, np.float32))).asnumpy()  # the first one makes the connections
    return scheduler


def _await_scheduler(address: str, port: int) -> None:
    """Until it listens: a worker that finds nobody there sleeps for half a minute, and lets none of its threads run."""
    limit = time.monotonic() + START
    while time.monotonic() < limit:
        try:
            socket.create_connection((address, port), 1).close()
            return
        except OSError:
            time.sleep(0.1)


def _count(kind: str) -> int:
    target = TARGETS[kind]
    return mindspore.hal.device_count(target) if mindspore.hal.is_available(target) else 0
