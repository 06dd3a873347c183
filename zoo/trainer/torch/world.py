"""The device of this process and PyTorch's process group.

TF32 is set by the older names, from which PyTorch derives the newer `fp32_precision` (seen in 2.13). Set the other way
round, reading the older ones raises an error, and torch.compile reads them.
"""

import os
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from zoo.data.errors import Option, UserError
from zoo.trainer.device import dotted_cudnn, has_bf16_instructions, keep_freed_memory, select_device
from zoo.trainer.plan import Arithmetic, Mode
from zoo.trainer.world import Launch, Profiler, UnsupportedPrecision, exit_now

TIMEOUT = timedelta(minutes=30)  # of a collective
CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACE = ":4096:8"  # eight buffers of 4 MiB: with one of the two sizes that NVIDIA names, cuBLAS repeats its results


@dataclass(frozen=True)
class World:
    """This process among those of the run; collectives go through torch.distributed."""

    rank: int
    size: int
    torch_device: torch.device

    @property
    def device(self) -> str:
        if self.torch_device.type == "cuda":
            return f"{self.torch_device} ({torch.cuda.get_device_name(self.torch_device)})"
        if self.torch_device.type == "mps":
            return "mps"
        emulation = "" if self.has_bf16 else ", bf16 by rounding"
        return f"cpu ({torch.get_num_threads()} threads{emulation})"

    @property
    def cuda_index(self) -> int | None:
        return self.torch_device.index if self.torch_device.type == "cuda" else None

    @property
    def version(self) -> str:
        return torch.__version__.partition("+")[0]

    def libraries(self) -> dict[str, str | None]:
        has_nccl = torch.version.cuda and dist.is_nccl_available()
        return {
            "cuda": torch.version.cuda,
            "cudnn": dotted_cudnn(torch.backends.cudnn.version()),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if has_nccl else None,
            "cann": None,
        }

    def accelerator(self) -> dict[str, Any] | None:
        if self.torch_device.type != "cuda":
            return None
        properties = torch.cuda.get_device_properties(self.torch_device)
        return {"name": properties.name, "memory_bytes": properties.total_memory}

    def peak_memory(self) -> int | None:
        return torch.cuda.max_memory_allocated(self.torch_device) if self.torch_device.type == "cuda" else None

    def record_event(self) -> Any:
        if self.torch_device.type != "cuda":
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @property
    def has_bf16(self) -> bool:
        """Whether the device has bf16 instructions, and PyTorch uses them."""
        if self.torch_device.type == "cuda":
            return torch.cuda.is_bf16_supported(including_emulation=False)
        if self.torch_device.type == "mps":
            return torch.backends.mps.is_macos_or_newer(14, 0)
        has_onednn = torch.backends.mkldnn.is_available()  # not on macOS
        return has_onednn and torch.ops.mkldnn._is_mkldnn_bf16_supported() and has_bf16_instructions()

    def profiler(self) -> Profiler:
        from zoo.trainer.torch import profiling  # which most runs do without

        return profiling.Profiler(self.cuda_index is not None)

    def resolve_mode(self, requested: Mode) -> Mode:
        """See World in zoo/trainer/world.py. `amp` is fp16 on a GPU and bf16 on a CPU; autocast is level O1."""
        compute, kind = requested.compute, self.torch_device.type
        if compute == "amp":
            compute = "bf16" if kind == "cpu" else "fp16"
        if compute == "bf16" and kind != "cpu" and not self.has_bf16:
            raise UnsupportedPrecision(f"train.precision: {self.device} has no bf16; use fp16")
        if compute in ("exact", "fp64") and kind == "mps":
            raise UnsupportedPrecision("train.precision: mps has no fp64; use fp32, or a CPU")
        if requested.level not in (None, "O1"):
            raise UnsupportedPrecision(
                f"train.amp_level: PyTorch's autocast is O1, there is no {requested.level}; leave it out"
            )
        if compute == "exact":
            compute = "fp64"
        if requested.compile == "reduce-overhead" and kind != "cuda":
            raise UserError(f"train.compile: reduce-overhead records CUDA graphs, which {self.device} lacks; use true")
        if requested.compile and not any(map(shutil.which, (os.environ.get("CXX", ""), "g++", "clang++"))):
            raise UserError("train.compile: PyTorch needs g++ or clang++, which is not installed; leave it out")
        level = None if compute in ("fp32", "fp64") else "O1"
        # Where nothing is requested: not on mps, of which nobody has measured it.
        channels_last, is_exact = requested.channels_last, requested.compute == "exact"
        channels_last = kind != "mps" if channels_last is None else channels_last
        return Mode(compute, level, channels_last, requested.compile or False, is_exact)

    def set_arithmetic(self, arithmetic: Arithmetic) -> None:
        """Set TF32, choice of kernels, determinism and the sums of 16-bit matrix products, for the process.

        In a deterministic process, PyTorch raises a RuntimeError where it has no deterministic kernel for an operation.
        """
        if arithmetic.deterministic:
            os.environ.setdefault(CUBLAS_WORKSPACE, WORKSPACE)  # read when cuBLAS is used first
        if arithmetic.deterministic or torch.are_deterministic_algorithms_enabled():
            torch.use_deterministic_algorithms(arithmetic.deterministic)  # imports the compiler, which takes 0.7 s
        # It takes a tenth of the time, and nothing here reads such memory.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.deterministic = arithmetic.deterministic
        torch.backends.cuda.matmul.allow_tf32 = arithmetic.tf32
        torch.backends.cudnn.allow_tf32 = arithmetic.tf32
        torch.backends.cudnn.benchmark = arithmetic.cudnn_benchmark
        # By default cuBLAS may add up in 16 bits the parts of a sum that it has split.
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

    def arithmetic(self) -> dict[str, Any]:
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        return {
            "torch.backends.cuda.matmul.allow_tf32": matmul.allow_tf32,
            "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": (
                matmul.allow_fp16_reduced_precision_reduction
            ),
            "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction": (
                matmul.allow_bf16_reduced_precision_reduction
            ),
            "torch.backends.cudnn.allow_tf32": cudnn.allow_tf32,
            "torch.backends.cudnn.benchmark": cudnn.benchmark,
            "torch.backends.cudnn.deterministic": cudnn.deterministic,
            "torch.are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled(),
            CUBLAS_WORKSPACE: os.environ.get(CUBLAS_WORKSPACE),
        }

    def close(self) -> None:
        if self.size > 1:
            dist.destroy_process_group()

    def exit_process(self, code: int) -> None:
        """End one of several processes without Python's teardown.

        A thread of Gloo may still hold the tensors of the last collective, and aborts the process if it releases them
        while Python ends (seen in PyTorch 2.13, once in a hundred ends on a busy machine).
        """
        if self.size > 1:
            exit_now(code)


def start(launch: Launch, device: str, port: int = 0) -> World:
    """Select the device of this process and join the process group.

    Args:
        launch: this process among those of the run.
        device: auto, cpu, cuda, cuda:N or mps; `auto` never takes mps, on which no run has been compared.
        port: a free port of the machine of rank 0, if there are several processes.
    """
    accelerators = ("cuda",) if device == "auto" else ("cuda", "mps")
    selected = select_device(device, launch, accelerators, _device_count, "PyTorch")
    if selected.type == "mps" and launch.size > 1:
        raise UserError("device: mps is for one process; for several use ", Option("--device", "cpu"))
    if selected.type == "cpu":
        keep_freed_memory()
    if selected.type == "cuda":
        torch.cuda.set_device(str(selected))
        if torch.version.cuda:
            _check_build(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())
    if launch.size > 1:
        # A store of our own, because under torchrun a tcp:// address would refer to the launcher's.
        is_root = launch.rank == 0
        listener = _listen(launch.address, port) if is_root else None
        store = dist.TCPStore(launch.address, port, launch.size, is_root, master_listen_fd=listener)
        backend = "nccl" if selected.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=launch.rank, world_size=launch.size, timeout=TIMEOUT)
        dist.all_reduce(torch.ones(1, device=str(selected)))  # opens the connections
    return World(launch.rank, launch.size, torch.device(str(selected)))


def _check_build(capability: tuple[int, int], architectures: Sequence[str]) -> None:
    """Raise UserError unless this PyTorch was built for a GPU.

    Args:
        architectures: such as sm_75, whose kernels run on 7.5 and later ones of 7, and compute_90, which is compiled on
            the machine for 9.0 and all later ones.
    """
    for name in architectures:
        kind, _, digits = name.partition("_")
        built = divmod(int(digits.rstrip("af")), 10)
        if built <= capability and (kind == "compute" or built[0] == capability[0]):
            return
    number = ".".join(map(str, capability))
    # Builds for CUDA 13 begin at 7.5.
    remedy = "a newer one" if capability >= (7, 5) else "one for CUDA 12.6, from https://download.pytorch.org/whl/cu126"
    raise UserError(
        f"device: PyTorch {torch.__version__} was built for {', '.join(architectures)}, and this GPU has the compute "
        f"capability {number}; install {remedy}, or use ",
        Option("--device", "cpu"),
    )


def _listen(address: str, port: int) -> int:
    """Return the descriptor of a socket that listens at one address; a store by itself listens at all of the host."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=socket.SOMAXCONN).detach()


def _device_count(kind: str) -> int:
    return torch.cuda.device_count() if kind == "cuda" else int(torch.backends.mps.is_available())
