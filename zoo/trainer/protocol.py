"""The common trainer interface: what the loop asks of a framework. Types and contracts, no code.

A framework's package zoo/trainer/<framework>/ offers `start(launch, device, port) -> World` and
`Trainer(Model, arch, objective, plan, world)`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from data.batch import Batch, Field
from zoo.tasks import classify

DeviceBatch = Any  # a batch on the device
StepOutput = Any  # what a step leaves behind, still on the device


@dataclass(frozen=True)
class Launch:
    """Who this process is among those started together."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # on its machine: the number of its GPU
    launcher: str = "single"
    address: str = "127.0.0.1"  # host of rank 0; a number, once the processes have met
    job: str = ""  # tells this start from others at the same address
    local_address: str = "127.0.0.1"  # of this process, set after the rendezvous


class Mode(NamedTuple):
    """How to compute. None: as the framework does best on this device."""

    compute: str  # fp32, fp16, bf16; as a wish also amp
    level: str | None = None  # of 16 bits: O1 the convolutions and products, O2 all but normalisations, O3 all
    channels_last: bool | None = None
    compile: bool | None = None


class World(Protocol):
    """This process's device, and the framework's own way to the devices of the other processes.

    start() joins all processes, by a free `port` of the machine of rank 0, and has done one all-reduce.
    """

    rank: int
    size: int
    device: str  # for people: "cpu", "cuda:0 (NVIDIA H100)"

    def resolve_mode(self, wish: Mode) -> Mode: ...

    """What is really done here, nothing left open (level None is fp32). Raises UserError for what can't be honoured."""

    def close(self) -> None: ...
    def exit_process(self, code: int) -> None: ...

    """All have parted: this process ends next, with this exit status. Where an engine does not end safely by itself,
    end it here."""


@dataclass(frozen=True)
class Param:
    """A parameter or a running statistic, by its canonical name."""

    name: str
    shape: tuple[int, ...]
    is_statistic: bool = False
    rows: tuple[int, int] | None = None  # split over ranks: this one holds these, [first, last), of shape[0]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Plan:
    """All that a compiled step must know beforehand.

    fields describe a training batch: the model's input, the targets of the objective, then noise for the model.
    param_group: canonical name -> (learning-rate factor, weight decay). A factor of 0 freezes the parameter; a batch
    normalisation whose weight and bias are frozen uses its running statistics.
    """

    fields: tuple[Field, ...]
    dropout_masks: tuple[str, ...]  # names of the fields that are noise
    param_group: Callable[[str], tuple[float, float]]
    mode: Mode = Mode("fp32", None, False, False)  # as resolved
    loss_scale: float = 65536.0  # initial, dynamic; for fp16 alone
    momentum: float = 0.9
    clip_norm: float | None = None
    accumulate: int = 1
    sync_bn: bool = False  # statistics of a batch over all ranks; else each rank its own
    fp16_allreduce: bool = False  # gradients travel between ranks as fp16
    clip_sharded: bool = True  # clip by the gradient of parameters split over ranks too, and clip theirs
    fp32_modules: tuple[str, ...] = ()  # names of the model's modules that compute in fp32 whatever the mode
    seed: int = 0  # of what a step draws, together with its number
    output: Any = classify.Scores()  # of the task: what predict makes of the model's output


class Trainer(Protocol):
    """Owns the tensors of one run; knows no schedule, data set, log or file."""

    params: tuple[Param, ...]

    def to_device(self, batch: Batch) -> DeviceBatch: ...

    """Copy a batch to the device ahead of time; may return before the copy is done. A training batch holds all fields
    of the plan and `valid`, one to predict only the model's input, perhaps at several scales."""

    def step(self, parts: Sequence[DeviceBatch], lr: float, number: int = 0) -> StepOutput: ...

    """One update from `accumulate` parts, by the mean loss over them all and over all ranks. An update whose gradient
    is not finite on any rank is skipped as a whole on all. number: of the updates before it; what a step draws goes by
    it. Never waits for the device, unless the framework can't skip there (Paddle) or a step draws (Partial FC)."""

    def read(self, output: StepOutput) -> dict[str, float]: ...

    """loss (this rank's share: the shares of all ranks add up to the mean), grad_norm (before clipping), scale, skipped
    (updates so far), consecutive_skips (updates skipped in a row). Waits."""

    def predict(self, device_batch: DeviceBatch, size: tuple[int, int] | None = None) -> np.ndarray: ...

    """The task's output for the input in a batch, in evaluation mode and fp32: (rows, ...), or (rows, *size) where it
    has pixels. Waits."""

    def sync_batch_stats(self) -> None: ...

    """Give all ranks the mean of their running statistics. Called by all, before an evaluation or a dump."""

    def state_dict(self) -> dict[str, np.ndarray]: ...

    """Weights and running statistics by canonical name, and the state of the update: momentum/<name>, scaler/<name>.
    Of a parameter split over ranks the rows held here, perhaps not copied: use them before the next step."""

    def load_state_dict(self, tensors: Mapping[str, np.ndarray]) -> None: ...

    """Take over any subset of what dump returns."""

    def nonfinite_report(self) -> str: ...

    """Which tensor is not finite, for a person. Waits."""
