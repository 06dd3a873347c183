"""Interface between the training loop and a framework: types and contracts, no code.

A back end is a package zoo/trainer/<framework>/ with `start(launch, device, port) -> World` and
`Trainer(Model, arch, objective, plan, world)`. That of exported models, zoo/trainer/onnx/, has an `OnnxModel`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from zoo.data.batch import Batch
from zoo.data.loaders.packed import DeviceImages

Tensor = Any  # of the framework, on the device
DeviceBatch = dict[str, Tensor]  # by field name


@dataclass(frozen=True)
class Param:
    """Parameter or running statistic of a model or an objective.

    Attributes:
        shape: of the whole tensor, also if it is sharded.
        rows: the rows [first, last) of a sharded parameter that this rank holds; None if it is not sharded.
    """

    name: str
    shape: tuple[int, ...]
    is_statistic: bool = False
    rows: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)


NO_IMAGES: Mapping[str, DeviceImages] = MappingProxyType({})


class Shard(Protocol):
    """The rows of a sharded parameter that this rank holds: [first, last) of num_rows."""

    num_rows: int
    first: int
    last: int


class Objective(Protocol):
    """Training loss of a task.

    The loss of an update is the sum of `total` over all micro-batches and ranks, divided by the sum of `count`. It is
    never a mean of means, so it does not depend on how samples are distributed over micro-batches and ranks.

    Attributes:
        targets: names of the fields that `total` takes.
        equal_counts: every rank has the same `count` in every update, so that the ranks need not exchange it.
        shards: the objective's own parameters, which are sharded over ranks, by canonical name; mostly empty.
        statistics: its running statistics by name, tensors that are the same on all ranks; mostly empty. `total` moves
            them in place, once for each micro-batch. The trainer saves them, and takes a move back if it skips the
            update.
    """

    @property
    def targets(self) -> tuple[str, ...]: ...
    @property
    def equal_counts(self) -> bool: ...
    @property
    def shards(self) -> Mapping[str, Any]: ...
    @property
    def statistics(self) -> Mapping[str, Any]: ...

    def begin(self, micro_batches: Sequence[DeviceBatch], step: int) -> Sequence[DeviceBatch]:
        """Prepare an update of the sharded parameters.

        Args:
            step: number of the update, from 0; what is sampled is a function of the plan's seed and this number.

        Returns:
            The micro-batches, perhaps with fields of the objective's own.
        """
        ...

    def count(self, batch: DeviceBatch) -> int | Tensor:
        """Return the number of items (samples, pixels) of a micro-batch that the mean loss is taken over."""
        ...

    def total(self, output: Any, *targets: Tensor) -> Tensor:
        """Return the sum of the losses of a micro-batch, computed in fp32, or in fp64 if the mode is.

        In MindSpore this is `construct`, and an objective with shards also returns its gradients.

        Args:
            targets: the fields `targets` of the micro-batch, as `begin` returned it.
        """
        ...


class StepOutput(NamedTuple):
    """Result of an update: 0-d tensors on the device, or floats; Trainer.read waits for them.

    Attributes:
        loss: this rank's share of the mean loss over all samples of the update; the ranks' shares add up to it.
        grad_norm: norm of the gradient of the mean loss, before clipping.
        skipped: updates skipped so far because their gradient was not finite.
        consecutive_skips: the last updates that were skipped in a row.
    """

    loss: Any
    grad_norm: Any
    scale: Any
    skipped: Any
    consecutive_skips: Any


class Inference(Protocol):
    """The half of a trainer that predicts; an exported model has no other (zoo/trainer/onnx/)."""

    def to_device(self, batch: Batch, images: Mapping[str, DeviceImages] = NO_IMAGES) -> DeviceBatch:
        """Copy a batch to the device. Called by any thread, also while another one is in `step` or `predict`.

        Args:
            batch: all fields of the plan and `valid`, to train; to predict, only the model's input, perhaps at
                several scales.
            images: fields that the batch lacks, because they have been decoded on the device.

        Returns:
            Tensors that stay valid, whatever becomes of the arguments, until the update that they are for has run.
        """
        ...

    def predict(
        self, device_batch: DeviceBatch, size: tuple[int, int] | None = None, averaged: bool = False
    ) -> np.ndarray:
        """Return the task's predictions, computed in evaluation mode. Waits for the device.

        They are computed in fp32, or fp64; with Plan.eval_mixed in 16 bits, and only the output is converted.

        Args:
            size: height and width of the predictions where they have pixels; None for those of the input.
            averaged: by the moving average of the weights, which the plan must have.

        Returns:
            (N, ...), or (N, *size) where predictions have pixels.
        """
        ...

    def features(self, device_batch: DeviceBatch) -> np.ndarray:
        """Return the maps of the model's `forward_features`, computed as those of `predict`. Waits for the device.

        Returns:
            (N, C, h, w), of clips (N * frames, C, h, w).
        """
        ...

    def predict_frame(self, device_batch: DeviceBatch, state: Sequence[Tensor]) -> tuple[np.ndarray, Sequence[Tensor]]:
        """Return the logits of the next frame of a stream, and the state for the one after it. Waits for the device.

        They are computed as those of `predict`, by a model that has `forward_frame`.

        Args:
            device_batch: the model's input, with one frame per clip.
            state: what the call for the frame before returned; for the first frame, zeros from `to_device`.

        Returns:
            (N, classes), and tensors on the device.
        """
        ...


class Trainer(Inference, Protocol):
    """Owner of the tensors of a run: model, optimizer and loss scale. Knows no schedule, data set, log or file.

    Attributes:
        params: every parameter, then every running statistic, then every sharded parameter.
        statistics: running statistics of the objective, which are not among `params`.
        gathers_state: whether `state_dict` exchanges tensors between ranks.
    """

    @property
    def params(self) -> tuple[Param, ...]: ...

    @property
    def statistics(self) -> tuple[Param, ...]: ...

    @property
    def gathers_state(self) -> bool: ...

    def step(self, micro_batches: Sequence[DeviceBatch], lr: float, step: int) -> StepOutput:
        """Run one update on the mean loss over all micro-batches and ranks.

        An update whose gradient is not finite on any rank is skipped on all ranks. Does not wait for the device,
        unless the objective samples (Partial FC in Paddle, MindSpore and JAX).

        Args:
            step: number of the update, from 0; what is sampled is a function of the plan's seed and this number.
        """
        ...

    def read(self, output: StepOutput) -> dict[str, float]:
        """Wait for the result of an update and return it by the field names of StepOutput."""
        ...

    def sync_batch_stats(self) -> None:
        """Average the running statistics and their moving averages over ranks.

        Called by all ranks, before an evaluation or a checkpoint.
        """
        ...

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return weights, running statistics, their moving averages and optimizer state, as float32 arrays.

        In fp64, float64 ones.

        With `gathers_state`, called by all ranks, because it exchanges the slots of the optimizer.

        Returns:
            By canonical name; moving averages as ema/<name>, slots of the optimizer as optimizer/<slot>/<name>, running
            statistics of the objective as objective/<name>, the loss scale as scaler/<name>. Of a sharded parameter
            only this rank's rows, perhaps without a copy: use them before the next step.
        """
        ...

    def load_state_dict(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Load any subset of what `state_dict` returns, in any floating-point type.

        A moving average starts from what is loaded for it (zoo.trainer.state.with_averages), never from weights.

        Raises:
            KeyError: a name is unknown.
        """
        ...

    def gradients(self) -> dict[str, np.ndarray]:
        """Return the gradients of the last step. Called by all ranks, because MindSpore's are averaged only here.

        Returns:
            By canonical name and in canonical layout, copied: the gradient of the mean loss over all micro-batches and
            ranks of each trained parameter, without loss scale, clipping and weight decay; rounded in an exact run. Of
            a sharded parameter this rank's rows; under Partial FC only the rows that the step used, in ascending order.
        """
        ...

    def nonfinite_report(self) -> str:
        """Name the weights, running statistics and gradients of the last step that are not finite. Waits."""
        ...
