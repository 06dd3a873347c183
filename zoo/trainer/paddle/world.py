"""The device of this process and Paddle's process group."""

import os
from dataclasses import dataclass
from typing import Any

import paddle
from paddle.base import core

from zoo.data.errors import Option, UserError
from zoo.trainer.device import cann_version, keep_freed_memory, select_device
from zoo.trainer.paddle import fp64
from zoo.trainer.plan import Arithmetic, Mode
from zoo.trainer.world import Launch, Profiler, UnsupportedPrecision

CUDNN_TF32, CUBLAS_TF32 = "FLAGS_cudnn_allow_tf32", "FLAGS_cublas_allow_tf32"
BENCHMARK = "FLAGS_cudnn_exhaustive_search"
DETERMINISTIC = ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic")
OVERRIDE = "NVIDIA_TF32_OVERRIDE"  # NVIDIA's libraries read it, and it prevails: 0 forbids TF32
MIN_COMPUTE_CAPABILITY = {"fp16": 7, "bf16": 8}  # of a GPU


@dataclass(frozen=True)
class World:
    """This process among those of the run; collectives go through paddle.distributed."""

    rank: int
    size: int
    name: str  # Paddle's name of the device: cpu, gpu:0, npu:0
    place: Any

    @property
    def device(self) -> str:
        if self.name == "cpu":
            return f"cpu ({os.environ['OMP_NUM_THREADS']} threads)"
        kind, _, index = self.name.partition(":")
        return f"cuda:{index} ({paddle.device.cuda.get_device_name(int(index))})" if kind == "gpu" else self.name

    @property
    def cuda_index(self) -> int | None:
        kind, _, index = self.name.partition(":")
        return int(index) if kind == "gpu" else None

    @property
    def version(self) -> str:
        return paddle.__version__

    def libraries(self) -> dict[str, str | None]:
        has_cuda = paddle.is_compiled_with_cuda()
        cudnn = paddle.version.cudnn() if has_cuda else None
        # Paddle gives its NCCL as NCCL does: 22602 is 2.26.2. Paddle 2.6 does not tell it.
        nccl = int(getattr(paddle.version, "nccl", int)() or 0) if has_cuda else 0
        return {
            "cuda": paddle.version.cuda() if has_cuda else None,
            "cudnn": str(cudnn) if cudnn else None,
            "nccl": f"{nccl // 10000}.{nccl // 100 % 100}.{nccl % 100}" if nccl else None,
            "cann": cann_version() if self.name.startswith("npu") else None,
        }

    def accelerator(self) -> dict[str, Any] | None:
        if self.name == "cpu":
            return None
        kind, _, index = self.name.partition(":")
        if kind == "gpu":
            properties = paddle.device.cuda.get_device_properties(self.name)
        else:  # not by paddle.device.get_device_properties, which refuses NPUs
            properties = getattr(core, "get_device_properties")(kind, int(index))  # noqa: B009
        return {
            "name": properties.name or self.name,  # a custom device may have neither
            "memory_bytes": properties.total_memory or None,
        }

    def peak_memory(self) -> int | None:
        if self.name == "cpu":
            return None
        of_device = paddle.device.cuda if self.name.startswith("gpu") else paddle.device
        return of_device.max_memory_allocated(self.name)

    def record_event(self) -> None:
        pass

    def has(self, compute: str) -> bool:
        """Return whether the device has a 16-bit type. Without it, Paddle's auto_cast warns and computes in fp32."""
        kind, _, index = self.name.partition(":")
        if kind == "gpu":
            return paddle.device.cuda.get_device_capability(int(index))[0] >= MIN_COMPUTE_CAPABILITY[compute]
        return kind != "cpu" and (compute == "fp16" or paddle.amp.is_bfloat16_supported())

    def profiler(self) -> Profiler:
        from zoo.trainer.paddle import profiling  # which most runs do without

        return profiling.Profiler(self.name.startswith("gpu"))

    def resolve_mode(self, requested: Mode) -> Mode:
        """See World in zoo/trainer/world.py. `amp` is fp16; there are no 16 bits on a CPU."""
        compute = "fp16" if requested.compute == "amp" else requested.compute
        if isinstance(requested.compile, str):
            raise UserError(
                f"train.compile: {requested.compile} is a mode of torch.compile; Paddle takes true or false"
            )
        if requested.channels_last:
            raise UserError("train.channels_last: only PyTorch has this memory format; leave it out")
        if compute in ("fp64", "exact"):
            self._require_fp64(requested)
            return Mode("fp64", None, False, False, compute == "exact")
        if compute == "fp32":
            return Mode(compute, None, False, bool(requested.compile))
        if self.name == "cpu":
            raise UnsupportedPrecision(
                f"train.precision: Paddle has no 16-bit kernels for a CPU and would silently compute in "
                f"fp32 instead of {requested.compute}; leave ",
                Option("--amp", True),
                " out or use ",
                Option("--framework", "torch"),
            )
        if not self.has(compute):
            alternative = "fp16" if self.has("fp16") else "fp32"
            raise UnsupportedPrecision(f"train.precision: {self.device} has no {compute}; use {alternative}")
        if requested.level not in (None, "O1"):
            raise UnsupportedPrecision(
                f"train.amp_level: Paddle computes O1 here; with weights in fp32, its {requested.level} would round "
                "nothing more; leave it out"
            )
        return Mode(compute, "O1", False, bool(requested.compile))

    def _require_fp64(self, requested: Mode) -> None:
        if self.name != "cpu" and not self.name.startswith("gpu"):
            raise UnsupportedPrecision(
                f"train.precision: fp64 is for CPUs and GPUs, not for {self.name}; use ", Option("--device", "cpu")
            )
        if requested.compile:
            raise UserError("train.compile: Paddle cannot compile fp64, whose kernels round; leave train.compile out")

    def set_arithmetic(self, arithmetic: Arithmetic) -> None:
        """Set TF32, cuDNN's choice of kernels and determinism for the process.

        By default Paddle 2.6 uses TF32 in both libraries, 3.3 in cuDNN alone. Both have switches; a GPU build of
        3.3 has flags, too.
        """
        if not paddle.is_compiled_with_cuda():
            return
        if arithmetic.deterministic and self.cuda_index is not None:  # whose kernel adds up gradients in any order
            fp64.replace_interpolation(paddle.float32, paddle.float16, paddle.bfloat16)
        switches: Any = core
        switches.set_cublas_switch(arithmetic.tf32)
        switches.set_cudnn_switch(arithmetic.tf32)
        flags = {
            **dict.fromkeys((CUDNN_TF32, CUBLAS_TF32), arithmetic.tf32),
            BENCHMARK: arithmetic.cudnn_benchmark,
            **dict.fromkeys(DETERMINISTIC, arithmetic.deterministic),
        }
        paddle.set_flags({name: value for name, value in flags.items() if core.globals().is_public(name)})

    def arithmetic(self) -> dict[str, Any]:
        if not paddle.is_compiled_with_cuda():
            return {}
        switches: Any = core
        return {
            "cublas_switch": switches.get_cublas_switch(),
            "cudnn_switch": switches.get_cudnn_switch(),
            **paddle.get_flags(
                [
                    name
                    for name in (CUDNN_TF32, CUBLAS_TF32, BENCHMARK, *DETERMINISTIC)
                    if core.globals().is_public(name)
                ]
            ),
            OVERRIDE: os.environ.get(OVERRIDE),
        }

    def close(self) -> None:
        if self.size > 1:
            paddle.distributed.destroy_process_group()

    def exit_process(self, code: int) -> None:
        pass


def start(launch: Launch, device: str, port: int = 0) -> World:
    """Select the device of this process and join the process group.

    Args:
        launch: this process among those of the run.
        device: auto, cpu, cuda, cuda:N, npu or npu:N.
        port: a free port of the machine of rank 0, if there are several processes.
    """
    selected = select_device(device, launch, ("cuda", "npu"), _device_count, "Paddle")
    name = str(selected).replace("cuda", "gpu")
    place = paddle.set_device(name)
    if name == "cpu":
        keep_freed_memory()
    if launch.size > 1:
        _join(launch, name, port)
    return World(launch.rank, launch.size, name, place)


def _join(launch: Launch, name: str, port: int) -> None:
    """Join the process group through the variables of Paddle's own launcher.

    Paddle connects only to the store at the master address. Not fleet.init, which creates more groups at once: with
    three processes on a CPU, one start in four failed.
    """
    kind, _, index = name.partition(":")
    endpoints = [f"{launch.address}:{port + rank}" for rank in range(launch.size)]  # names of the ranks
    os.environ.update(
        {
            "PADDLE_TRAINER_ID": str(launch.rank),
            "PADDLE_TRAINERS_NUM": str(launch.size),
            "PADDLE_MASTER": endpoints[0],
            "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
            "PADDLE_CURRENT_ENDPOINT": endpoints[launch.rank],
            "PADDLE_RANK_IN_NODE": str(launch.local_rank),
            "PADDLE_LOCAL_RANK": str(launch.local_rank),
            "PADDLE_DISTRI_BACKEND": {"cpu": "gloo", "gpu": "nccl"}.get(kind, "xccl"),
            "MASTER_ADDR": launch.address,
            "MASTER_PORT": str(port),
        }
    )
    if kind != "cpu":
        os.environ[f"FLAGS_selected_{kind}s"] = index
    paddle.distributed.init_parallel_env()
    paddle.distributed.all_reduce(paddle.ones([1]))  # opens the connections


def _device_count(kind: str) -> int:
    """Return the number of devices of a type that this build of Paddle can use."""
    if kind == "cuda":
        return paddle.device.cuda.device_count() if paddle.is_compiled_with_cuda() else 0
    return sum(device.startswith("npu") for device in paddle.device.get_available_custom_device() or ())
