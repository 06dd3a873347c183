"""The device of this process and JAX's process group."""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh

from zoo.data import host
from zoo.data.errors import UserError
from zoo.trainer.device import select_device
from zoo.trainer.jax.parallel import AXIS, DEVICES
from zoo.trainer.plan import Arithmetic, Mode
from zoo.trainer.world import Launch, Profiler, UnsupportedPrecision

PLATFORMS = {"cuda": "gpu", "tpu": "tpu", "cpu": "cpu"}
CUDA = {"cuda": "nvidia-cuda-runtime", "cudnn": "nvidia-cudnn", "nccl": "nvidia-nccl"}  # distributions
SHARES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")  # of a GPU's memory that JAX may use
OVERLAP = "xla_gpu_enable_latency_hiding_scheduler"  # sums over ranks run beside the rest of the backward pass


@dataclass
class World:
    """This process among those of the run; collectives are part of the compiled functions.

    Attributes:
        mesh: the devices of each process, (ranks, devices); several without a launcher alone.
        compiler_options: of XLA.
    """

    rank: int
    size: int
    mesh: Mesh
    compiler_options: dict[str, Any] = field(default_factory=dict)

    @property
    def jax_device(self) -> jax.Device:
        return self.mesh.local_devices[0]

    @property
    def device(self) -> str:
        first, times = self.jax_device, self._times()
        if first.platform == "cpu":
            return f"{times}cpu ({len(host.cores())} threads)"
        where = f"{times}{first.platform}" if times else f"{first.platform}:{first.local_hardware_id}"
        return f"{where} ({first.device_kind})"

    @property
    def cuda_index(self) -> int | None:
        return self.jax_device.local_hardware_id if self.jax_device.platform == "gpu" else None

    @property
    def version(self) -> str:
        return jax.__version__

    def libraries(self) -> dict[str, str | None]:
        cuda = next((number for number in (12, 13) if _installed(f"jax-cuda{number}-plugin")), None)
        found = {name: _installed(f"{package}-cu{cuda}") or _installed(package) for name, package in CUDA.items()}
        return {**(found if cuda else dict.fromkeys(found)), "cann": None}

    def accelerator(self) -> dict[str, Any] | None:
        if self.jax_device.platform == "cpu":
            return None
        limit = (self.jax_device.memory_stats() or {}).get("bytes_limit")
        if limit and self.jax_device.platform == "gpu":
            share = next(filter(None, map(os.environ.get, SHARES)), 0.75)
            limit = round(limit / float(share))
        return {"name": f"{self._times()}{self.jax_device.device_kind}", "memory_bytes": limit}

    def peak_memory(self) -> int | None:
        return (self.jax_device.memory_stats() or {}).get("peak_bytes_in_use")

    def record_event(self) -> Any:
        return None

    def profiler(self) -> Profiler:
        from zoo.trainer.jax import profiling  # which most runs do without

        return profiling.Profiler()

    def resolve_mode(self, requested: Mode) -> Mode:
        """See World in zoo/trainer/world.py. `amp` is fp16 on a GPU and bf16 elsewhere; it is of level O1."""
        compute, is_gpu = requested.compute, self.jax_device.platform == "gpu"
        if compute == "amp":
            compute = "fp16" if is_gpu else "bf16"
        if requested.level not in (None, "O1"):
            raise UnsupportedPrecision(
                f"train.amp_level: JAX has O1 alone, there is no {requested.level}; leave it out"
            )
        if requested.channels_last is False:
            raise UserError(
                "train.channels_last: the models are channels last, and XLA chooses the layouts; leave it out"
            )
        if requested.compile not in (None, True):
            is_mode = isinstance(requested.compile, str)
            reason = f"{requested.compile} is a mode of torch.compile" if is_mode else "JAX compiles every update"
            raise UserError(f"train.compile: {reason}; leave it out")
        is_exact = compute == "exact"
        if is_exact:
            compute = "fp64"
        level = None if compute in ("fp32", "fp64") else "O1"
        return Mode(compute, level, True, True, is_exact)

    def set_arithmetic(self, arithmetic: Arithmetic) -> None:
        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if arithmetic.tf32 else "float32")
        self.compiler_options = {"xla_gpu_deterministic_ops": True} if arithmetic.deterministic else {}
        if self.size > 1 and self.jax_device.platform == "gpu":
            self.compiler_options[OVERLAP] = True

    def arithmetic(self) -> dict[str, Any]:
        precision = jax.config.values["jax_default_matmul_precision"]
        return {"jax_default_matmul_precision": precision, **self.compiler_options}

    def _times(self) -> str:
        devices = self.mesh.shape[DEVICES]
        return f"{devices} x " if devices > 1 else ""

    def close(self) -> None:
        if self.size > 1:
            jax.distributed.shutdown()

    def exit_process(self, code: int) -> None:
        """Return: JAX shuts down by itself."""


def start(launch: Launch, device: str, port: int = 0) -> World:
    """Select the device of this process and join the process group.

    Args:
        launch: this process among those of the run.
        device: auto, cpu, cuda, cuda:N, tpu or tpu:N; cpu:all, cuda:all or tpu:all for all devices that JAX has of the
            type, which one process divides each batch among.
        port: a free port of the machine of rank 0, if there are several processes.
    """
    if device.partition(":")[0] == "cpu":  # else JAX takes three quarters of the memory of every GPU that it sees
        jax.config.update("jax_platforms", "cpu")
    if launch.size > 1:  # before the devices are counted, which starts the back ends
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        own = [launch.local_rank] if _sees_all_gpus() else [0]  # JAX would take SLURM's number among those of the host
        jax.distributed.initialize(f"{launch.address}:{port}", launch.size, launch.rank, local_device_ids=own)
    selected = select_device(device.removesuffix(":all"), launch, ("cuda", "tpu"), _device_count, "JAX")
    platform = PLATFORMS[selected.type]
    if launch.size > 1:  # one device of each process, in the order of ranks
        devices = sorted(jax.devices(platform), key=lambda each: each.process_index)
    else:
        devices = jax.local_devices(backend=platform)
        devices = devices if device.endswith(":all") else [devices[selected.index]]
    if launch.size > 1:  # connects them: in the first update, XLA would wait 30 s for one that compiles for longer
        process_allgather(np.zeros(1))
    return World(launch.rank, launch.size, Mesh(np.array(devices).reshape(launch.size, -1), (AXIS, DEVICES)))


def _installed(distribution: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(distribution)
    return None


def _sees_all_gpus() -> bool:
    """Return whether a launcher has left it to the processes to choose their GPUs."""
    return "," in os.environ.get("CUDA_VISIBLE_DEVICES", ",")


def _device_count(kind: str) -> int:
    try:
        return len(jax.local_devices(backend=PLATFORMS[kind]))
    except RuntimeError:  # no such platform
        return 0
