"""The device of this process and MindSpore's cluster.

Its arithmetic is set by `set_context`, although MindSpore recommends mindspore.device_context.gpu: the classes behind
that are not part of mindspore 2.8.0 where its GPU back end is not loaded, and they do not tell what is set.
"""

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, communication, ops
from mindspore._c_expression import MSContext, ms_ctx_param

from zoo import cuda_libraries, program
from zoo.data import host
from zoo.data.errors import Option, UserError
from zoo.trainer.device import cann_version, select_device
from zoo.trainer.plan import Arithmetic, Mode
from zoo.trainer.world import BEGIN_TIMEOUT, Launch, Profiler, UnsupportedPrecision, exit_now

TARGETS = {"cpu": "CPU", "cuda": "GPU", "npu": "Ascend"}
TF32 = ("conv_allow_tf32", "matmul_allow_tf32")
KERNELS = ("conv_fprop_algo", "conv_dgrad_algo", "conv_wgrad_algo")


@dataclass(frozen=True)
class World:
    """This process among those of the run; collectives go through MindSpore's own cluster."""

    rank: int
    size: int
    device_type: str  # cpu, cuda, npu
    device_index: int
    scheduler: subprocess.Popen | None = None  # of the cluster, which rank 0 starts

    @property
    def device(self) -> str:
        if self.device_type == "cpu":
            return f"cpu ({len(host.cores())} cores)"
        return f"{self.device_type}:{self.device_index} ({TARGETS[self.device_type]})"

    @property
    def cuda_index(self) -> int | None:
        return self.device_index if self.device_type == "cuda" else None

    @property
    def version(self) -> str:
        return mindspore.__version__

    def libraries(self) -> dict[str, str | None]:
        """See World in zoo/trainer/world.py. MindSpore does not tell its CUDA, cuDNN and NCCL."""
        cann = cann_version() if self.device_type == "npu" else None
        return {"cuda": None, "cudnn": None, "nccl": None, "cann": cann}

    def accelerator(self) -> dict[str, Any] | None:
        if self.device_type == "cpu":
            return None
        properties = mindspore.hal.get_device_properties(self.device_index, TARGETS[self.device_type])
        return {"name": properties.name, "memory_bytes": properties.total_memory}

    def peak_memory(self) -> int | None:
        return None if self.device_type == "cpu" else mindspore.runtime.max_memory_allocated()

    def record_event(self) -> None:
        pass

    def profiler(self) -> Profiler:
        from zoo.trainer.mindspore import profiling  # which most runs do without

        return profiling.Profiler(self.device_type)

    def resolve_mode(self, requested: Mode) -> Mode:
        """See World in zoo/trainer/world.py.

        `amp` is fp16, O1 is MindSpore's level `auto`; compiled is graph mode, which is the default, else pynative mode.
        On a GPU the default is O3, as in MindSpore's own model zoo: with normalizations in fp32 ResNet-50 takes 17.9 GB
        for 256 images, and 11.3 GB without.
        """
        compute = "fp16" if requested.compute == "amp" else requested.compute
        if compute == "bf16" and self.device_type != "npu":
            raise UnsupportedPrecision(f"train.precision: MindSpore has no bf16 on {self.device}; use fp16")
        if isinstance(requested.compile, str):
            raise UserError(
                f"train.compile: {requested.compile} is a mode of torch.compile; MindSpore takes true or false"
            )
        if requested.channels_last:
            raise UserError("train.channels_last: only PyTorch has this memory format; leave it out")
        if compute in ("fp64", "exact") and self.device_type != "cpu":
            raise UnsupportedPrecision(
                "train.precision: MindSpore computes fp64 on a CPU only; use ",
                Option("--device", "cpu"),
                " or another framework",
            )
        level = (
            None
            if compute in ("fp32", "fp64", "exact")
            else requested.level or ("O3" if self.device_type == "cuda" else "O1")
        )
        if compute == "exact":
            return Mode("fp64", level, False, requested.compile is not False, True)
        return Mode(compute, level, False, requested.compile is not False)

    def set_arithmetic(self, arithmetic: Arithmetic) -> None:
        """Set determinism for the process, and on a GPU TF32 and cuDNN's choice of kernels; nothing on a CPU.

        A process that has become deterministic stays so: MindSpore allows one change.
        """
        if arithmetic.deterministic and _device() != "CPU" and _parameter("deterministic") != "ON":
            mindspore.set_deterministic(True)
        if _device() == "GPU":
            kernels = "performance" if arithmetic.cudnn_benchmark else "normal"
            mindspore.set_context(
                gpu_config={**dict.fromkeys(TF32, arithmetic.tf32), **dict.fromkeys(KERNELS, kernels)}
            )

    def arithmetic(self) -> dict[str, Any]:
        of_gpus = (*TF32, *KERNELS) if _device() == "GPU" else ()
        return {} if _device() == "CPU" else {name: _parameter(name) for name in (*of_gpus, "deterministic")}

    def close(self) -> None:
        pass  # exit_process leaves the cluster, when all ranks have disconnected

    def exit_process(self, code: int) -> None:
        """End one of several processes without MindSpore's own teardown.

        The teardown sometimes crashes (signal 11) if other processes or the scheduler have ended before.
        """
        if self.size > 1:
            if self.scheduler:
                self.scheduler.kill()  # it would wait half a minute for processes that did not leave the cluster
            exit_now(code)


def start(launch: Launch, device: str, port: int = 0) -> World:
    """Select the device of this process and join the cluster.

    Args:
        launch: this process among those of the run.
        device: auto, cpu, cuda, cuda:N, npu or npu:N.
        port: a free port of the machine of rank 0, if there are several processes.
    """
    problem = cuda_libraries.problem() if device.partition(":")[0] == "cuda" else None
    if problem:
        raise UserError(f"device: there is no {device} here: {problem}; use ", Option("--device", "cpu"))
    selected = select_device(device, launch, ("cuda", "npu"), _device_count, "MindSpore")
    mindspore.set_device(TARGETS[selected.type], selected.index)
    if selected.type == "cuda":  # the default plan of memory loses gradients that 16-bit convolutions are to add to
        mindspore.set_context(memory_optimize_level="O1")
    scheduler = _join(launch, port) if launch.size > 1 else None
    return World(launch.rank, launch.size, selected.type, selected.index, scheduler)


def _join(launch: Launch, port: int) -> subprocess.Popen | None:
    """Join MindSpore's cluster; rank 0 also starts its scheduler."""
    for name in [name for name in os.environ if name.startswith(("OMPI_", "PMIX_", "PRTE_", "PMI_"))]:
        del os.environ[name]  # else MindSpore looks for MPI's own libraries
    os.environ.update(MS_WORKER_NUM=str(launch.size), MS_SCHED_HOST=launch.address, MS_SCHED_PORT=str(port))
    scheduler = None
    if launch.rank == 0:
        scheduler = subprocess.Popen(
            [sys.executable, "-m", "zoo.trainer.mindspore.scheduler", str(os.getpid())],
            cwd=program.ROOT,
            env={**os.environ, "MS_ROLE": "MS_SCHED"},
        )
    os.environ.update(MS_ROLE="MS_WORKER", MS_NODE_ID=str(launch.rank), MS_WORKER_IP=launch.local_address)
    _await_scheduler(launch.address, port)
    communication.init()
    ops.AllReduce()(Tensor(np.ones(1, np.float32))).asnumpy()  # opens the connections
    return scheduler


def _await_scheduler(address: str, port: int) -> None:
    """Wait until the scheduler listens.

    Without it, a worker would sleep for half a minute and block all of its Python threads.
    """
    deadline = time.monotonic() + BEGIN_TIMEOUT
    while time.monotonic() < deadline:
        try:
            socket.create_connection((address, port), 1).close()
            return
        except OSError:
            time.sleep(0.1)


def _device_count(kind: str) -> int:
    target = TARGETS[kind]
    try:
        return mindspore.hal.device_count(target) if mindspore.hal.is_available(target) else 0
    except RuntimeError:  # the back end is loaded, but the driver finds no GPU
        return 0


def _device() -> str:
    return mindspore.get_context("device_target")


def _parameter(name: str) -> Any:
    return MSContext.get_instance().get_param(getattr(ms_ctx_param, name))
