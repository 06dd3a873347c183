"""The device on which ONNX Runtime computes, and a graph on it, which agrees with the metadata of its file."""

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnxruntime

from zoo.data import host
from zoo.data.errors import Option, UserError, natural
from zoo.trainer.device import Device, select_device
from zoo.trainer.plan import Arithmetic, Mode
from zoo.trainer.world import Launch, Profiler

FATAL = 4  # log level: whatever goes wrong is raised, too

PROVIDERS = {"cuda": "CUDAExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}  # by the name of the device
CPU_PROVIDER = "CPUExecutionProvider"
FLOAT = "tensor(float)"
TYPES = {"float32": FLOAT, "uint8": "tensor(uint8)"}
FP32 = Mode("fp32", None, False, False)


@dataclass(frozen=True)
class World:
    """This process among those of an evaluation, which exchange nothing through ONNX Runtime."""

    rank: int
    size: int
    selected: Device
    threads: int

    @property
    def device(self) -> str:
        return f"cpu ({self.threads} threads)" if self.selected.type == "cpu" else str(self.selected)

    @property
    def cuda_index(self) -> int | None:
        """None: samples come from the host, also where a GPU computes."""
        return None

    @property
    def version(self) -> str:
        return onnxruntime.__version__

    @property
    def providers(self) -> list[Any]:
        """Execution providers as ONNX Runtime takes them, the first choice first."""
        if self.selected.type == "cpu":
            return [CPU_PROVIDER]
        return [(PROVIDERS[self.selected.type], {"device_id": str(self.selected.index)}), CPU_PROVIDER]

    def libraries(self) -> dict[str, str | None]:
        """See World in zoo/trainer/world.py; ONNX Runtime tells none of them."""
        return dict.fromkeys(("cuda", "cudnn", "nccl", "cann"))

    def accelerator(self) -> dict[str, Any] | None:
        if self.selected.type == "cpu":
            return None
        return {"name": str(self.selected), "memory_bytes": None}

    def peak_memory(self) -> int | None:
        return None

    def record_event(self) -> Any:
        """See World in zoo/trainer/world.py: the host waits for every prediction."""
        return None

    def profiler(self) -> Profiler:
        raise NotImplementedError("updates are profiled, and an exported model has none")

    def resolve_mode(self, requested: Mode) -> Mode:
        """See World in zoo/trainer/world.py: the graph itself says how it computes."""
        return FP32

    def set_arithmetic(self, arithmetic: Arithmetic) -> None:
        pass  # there is none to choose

    def arithmetic(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass

    def exit_process(self, code: int) -> None:
        pass


def start(launch: Launch, device: str, port: int = 0) -> World:
    """Select the device of this process.

    Args:
        launch: this process among those of the evaluation.
        device: auto, cpu, cuda, tensorrt, or one of these with a number, such as cuda:1.
    """
    selected = select_device(device, launch, tuple(PROVIDERS), _device_count, "ONNX Runtime")
    return World(launch.rank, launch.size, selected, _thread_count())


def _thread_count() -> int:
    """Return OMP_NUM_THREADS, or the number of cores that this process has for itself."""
    given = natural(os.environ.get("OMP_NUM_THREADS", ""))
    return given or max(1, int(host.core_share([host.cores()], 0, host.cpu_quota())))


def _device_count(kind: str) -> int:
    """Return the number of GPUs that the driver shows, 0 if this build of ONNX Runtime does not use them."""
    if PROVIDERS[kind] not in onnxruntime.get_available_providers():
        return 0
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


class GraphFile(Protocol):
    """An exported model as zoo.weights.onnx_file reads it: path, content and OnnxMetadata."""

    @property
    def path(self) -> str: ...
    @property
    def content(self) -> bytes: ...
    @property
    def metadata(self) -> Any: ...


class Session:
    """A loaded graph.

    Attributes:
        size: of the graph's input by dimension; None where it may vary.
    """

    def __init__(self, file: GraphFile, world: World):
        self.path, self.metadata = file.path, file.metadata
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = world.threads, 1
        options.log_severity_level = FATAL
        # Between batches, threads that read data need the cores.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        try:
            # Its fallback would print an error, and compute on the CPU where another device was asked for.
            self.runtime = onnxruntime.InferenceSession(
                file.content, options, providers=world.providers, enable_fallback=0
            )
        except Exception as error:  # its own classes, which have no common base
            raise UserError(f"{self.path}: ONNX Runtime cannot load this graph ({_reason(error)})") from None
        first = world.providers[0]
        if len(world.providers) > 1 and self.runtime.get_providers()[0] != first[0]:
            raise UserError(
                f"device: ONNX Runtime cannot start {first[0]} on {world.device}; install the CUDA libraries that "
                "onnxruntime-gpu needs, or use ",
                Option("--device", "cpu"),
            )
        states = self.metadata.states
        self.size = self._check("input", self.runtime.get_inputs(), {state.input: state.shape for state in states})
        self._check("output", self.runtime.get_outputs(), {state.output: state.shape for state in states})

    def run(self, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return the graph's outputs: that of the model, then the states.

        Args:
            inputs: by name; those of `states` too.
        """
        names = [self.metadata.output.name, *(state.output for state in self.metadata.states)]
        try:
            return self.runtime.run(names, dict(inputs))
        except Exception as error:  # as above
            shapes = ", ".join(f"{name} {array.shape}" for name, array in inputs.items())
            raise UserError(f"{self.path}: ONNX Runtime cannot run this graph on {shapes} ({_reason(error)})") from None

    def _check(self, kind: str, nodes: Any, states: Mapping[str, tuple[int, ...]]) -> tuple[int | None, ...]:
        """Return the size of the graph's input or output by dimension; nodes: of the graph, states: shapes by name."""
        main = getattr(self.metadata, kind)
        found = {node.name: (node.type, tuple(node.shape or ())) for node in nodes}
        if sorted(found) != sorted([main.name, *states]):
            self._refuse(f"{kind}s {', '.join([main.name, *states])}", ", ".join(found))
        for name, shape in states.items():
            if found[name][0] != FLOAT or found[name][1][1:] != shape[1:]:
                self._refuse(f"{name} float32 of {list(shape[1:])} per stream", f"{found[name]}")
        dtype, size = found[main.name]
        if kind == "input" and (dtype != TYPES[main.dtype] or len(size) != len(main.layout)):
            self._refuse(f"{main.dtype} {main.layout}", f"{dtype} with {len(size)} dimensions")
        return tuple(length if isinstance(length, int) else None for length in size)

    def _refuse(self, expected: str, found: str) -> None:
        raise UserError(
            f"{self.path}: its metadata and its graph do not agree: {expected[:200]} against {found[:200]}; export the "
            "checkpoint again"
        )


def _reason(error: Any) -> str:
    """Return the first line of a message without its prefix, which names no cause."""
    text = str(error).strip().partition("\n")[0]
    return text.rpartition("[ONNXRuntimeError] : ")[2][:300] or type(error).__name__
