"""Trainer in MindSpore."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn
from mindspore import dtype as mstype
from mindspore import ops as mint
from mindspore.common.initializer import initializer

from zoo.data.batch import Batch
from zoo.data.loaders.packed import DeviceImages
from zoo.trainer import numpy_ops, state, update
from zoo.trainer.mindspore import ops, parallel
from zoo.trainer.mindspore.layers import PixelNormalization, convert_prelu, convert_sync_batchnorm, convert_to_fp64
from zoo.trainer.mindspore.model import (
    checkpoint,
    checkpointed_cells,
    convert_precision,
    is_statistic,
    named_tensors,
    to_tensors,
)
from zoo.trainer.mindspore.optimizer import MovingAverage
from zoo.trainer.mindspore.update import (
    Accumulate,
    LossAndGradients,
    LossScaler,
    TrainStep,
    Update,
    build_objective,
    scalar,
)
from zoo.trainer.mindspore.world import World
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import NO_IMAGES, Param, StepOutput
from zoo.trainer.state import ema_key, slot_key

DeviceBatch = dict[str, Tensor]


class Trainer:
    """Trainer in MindSpore; see zoo/trainer/protocol.py for the contracts of its methods.

    Args:
        objective: section `task:` of the recipe, with the loss.
        plan: everything else that a step needs.
    """

    def __init__(self, Model: type[nn.Cell], arch: Any, objective: Any, plan: Plan, world: World):
        mindspore.set_context(mode=mindspore.GRAPH_MODE if plan.mode.compile else mindspore.PYNATIVE_MODE)
        self.plan, self.mode, self.world_size = plan, plan.mode, world.size
        self.on_cpu = world.device_type == "cpu"
        self.dtype = mstype.float64 if self.mode.is_fp64 else mstype.float32  # of parameters, momentum and losses
        self.model = Model(arch).set_train(False)  # predicts in this type, unless the plan says otherwise
        if self.mode.is_fp64:
            convert_to_fp64(self.model)
        self.tensors = named_tensors(self.model)
        self._freeze()
        self.trainable = {name: tensor for name, tensor in self.tensors.items() if tensor.requires_grad}
        self.slots = tuple(  # for each slot of the optimizer, that of every trained parameter
            ParameterTuple(
                Parameter(initializer("zeros", tensor.shape, self.dtype), slot_key(slot, name), requires_grad=False)
                for name, tensor in self.trainable.items()
            )
            for slot in plan.optimizer.slots
        )
        self.gathers_state = False
        self.scaler = LossScaler(plan.adapts_scale, plan.first_scale)
        self.objective: Any = build_objective(objective, arch, plan, world)
        self.arch = arch
        self.shards: Mapping[str, Any] = self.objective.shards
        self.tensors.update((name, shard.values) for name, shard in self.shards.items())
        self.params = tuple(self._describe(name, tensor) for name, tensor in self.tensors.items())
        self.objective_statistics: Mapping[str, Parameter] = self.objective.statistics
        self.statistics = tuple(
            state.describe(name, tensor.shape, True, None) for name, tensor in self.objective_statistics.items()
        )
        self.kept_statistics = [  # those before the update
            Parameter(initializer("zeros", tensor.shape, tensor.dtype), f"kept/{name}", requires_grad=False)
            for name, tensor in self.objective_statistics.items()
        ]
        self.inputs = (plan.fields[0].name, *plan.dropout_masks)
        self.preprocess = PixelNormalization(plan.fields[0], self.dtype)
        self.predictor = self._build_predictor(Model, arch)
        self.frame_predictor: FramePredictor | None = None  # built for a stream
        self.feature_predictor: FeaturePredictor | None = None  # built when asked for
        self.ema: MovingAverage | None = None
        if plan.ema:
            self._build_average(Model, arch)
        self.train_forward = self._build_training_model(Model, arch)
        self._build_step()
        self.scaled_gradients: Sequence[Tensor] = ()  # of the last step on this rank
        self.last_scale: Any = None  # the loss scale of the last step

    def to_device(self, batch: Batch, images: Mapping[str, DeviceImages] = NO_IMAGES) -> DeviceBatch:
        # MindSpore takes DLPack on Ascend alone, so images take the way over the host.
        batch = {**batch, **{name: value.on_host() for name, value in images.items()}}
        tensors = to_tensors(batch)
        if self.mode.is_fp64:  # a model that divides bytes by a number would do it in fp32
            masks = self.plan.dropout_masks
            tensors.update((name, tensors[name].astype(mstype.float64)) for name in masks if name in tensors)
        return tensors

    def step(self, micro_batches: Sequence[DeviceBatch], lr: float, step: int) -> StepOutput:
        self.scaled_gradients = ()  # frees their memory
        micro_batches = self.objective.begin(micro_batches, step)
        for kept, statistic in zip(self.kept_statistics, self.objective_statistics.values()):
            mint.assign(kept, statistic)
        count = self._global_count(micro_batches)
        rate, number = scalar(lr, self.dtype), scalar(step + 1.0)
        if len(micro_batches) == 1:
            values, self.scaled_gradients = self.train_step(rate, number, count, *self._fields(micro_batches[0]))
            return self._output(values, number)
        # Gradients are passed as arguments of their own, because a tuple would be a constant to the compiler, which
        # would compile anew for every call.
        loss, gradients = self.loss_and_gradients(count, *self._fields(micro_batches[0]))
        for batch in micro_batches[1:]:
            share, more = self.loss_and_gradients(count, *self._fields(batch))
            loss, *gradients = self.accumulate(loss, *gradients, share, *more)
        self.scaled_gradients = gradients
        return self._output(self.update(rate, number, micro_batches[0].get("index"), loss, *gradients), number)

    def read(self, output: StepOutput) -> dict[str, float]:
        return {name: float(value.asnumpy()) for name, value in output._asdict().items()}

    def predict(
        self, device_batch: DeviceBatch, size: tuple[int, int] | None = None, averaged: bool = False
    ) -> np.ndarray:
        predictor = self.averaged_predictor if averaged else self.predictor
        return self.plan.output.predict(ops, self.arch, predictor, list(device_batch.values()), size).asnumpy()

    def features(self, device_batch: DeviceBatch) -> np.ndarray:
        if self.feature_predictor is None:
            self.feature_predictor = FeaturePredictor(self.preprocess, self.predictor.model, self.dtype)
        return self.feature_predictor(device_batch[self.inputs[0]]).asnumpy()

    def predict_frame(self, device_batch: DeviceBatch, state: Sequence[Tensor]) -> tuple[np.ndarray, Sequence[Tensor]]:
        if self.frame_predictor is None:
            self.frame_predictor = FramePredictor(self.preprocess, self.predictor.model, self.dtype)
        logits, *state = self.frame_predictor(device_batch[self.inputs[0]], *state)
        return logits.asnumpy(), state

    def sync_batch_stats(self) -> None:
        if self.world_size > 1:
            kinds = [self.tensors, self.ema.averages] if self.ema else [self.tensors]
            statistics = [tensor for tensors in kinds for name, tensor in tensors.items() if is_statistic(name)]
            parallel.all_reduce_mean(statistics, self.world_size)

    def state_dict(self) -> dict[str, np.ndarray]:
        sharded = state.sharded_keys(self.shards, self.plan.optimizer.slots)
        arrays = {key: tensor.asnumpy() for key, tensor in self._state().items()}
        return {key: array if key in sharded else array.copy() for key, array in arrays.items()}

    def load_state_dict(self, tensors: Mapping[str, np.ndarray]) -> None:
        targets = self._state()
        for key, array in tensors.items():
            dtype = mindspore.dtype_to_nptype(targets[key].dtype)
            source = Tensor.from_numpy(np.asarray(array, dtype, order="C"))
            if self.on_cpu:
                targets[key].copy_(source)  # an assignment would leave a second copy in MindSpore's memory pool
            else:
                mint.assign(targets[key], source)

    def gradients(self) -> dict[str, np.ndarray]:
        scale, arrays = self.last_scale.asnumpy(), [tensor.asnumpy() for tensor in self.scaled_gradients]
        model_gradients = arrays[: len(self.trainable)]
        if self.world_size > 1:  # those of shards are sums over ranks already
            model_gradients = parallel.means_over_ranks(model_gradients, self.world_size)
        shard_gradients = arrays[len(self.trainable) :]
        arrays = [*model_gradients, *shard_gradients]
        if self.mode.rounds_gradients:
            arrays = update.round_gradients(numpy_ops, model_gradients, shard_gradients)
        return {name: array / scale for name, array in zip([*self.trainable, *self.shards], arrays)}

    def nonfinite_report(self) -> str:
        gradients = dict(zip([*self.trainable, *self.shards], self.scaled_gradients))
        return state.nonfinite_report(
            self.params, self.tensors, gradients, lambda tensor: bool(np.isfinite(tensor.asnumpy()).all())
        )

    def _output(self, values: Sequence[Tensor], number: Tensor) -> StepOutput:
        """Return the result of update `number`, after what comes behind it.

        The moving average takes its weights; if it was skipped, the objective's statistics go back.
        """
        output = StepOutput(*values)
        self.last_scale = output.scale
        if self.ema:
            self.ema(number, output.skipped, output.consecutive_skips)
        for kept, statistic in zip(self.kept_statistics, self.objective_statistics.values()):
            mint.assign(statistic, mint.select(output.consecutive_skips == 0, statistic, kept))
        return output

    def _global_count(self, micro_batches: Sequence[DeviceBatch]) -> Tensor:
        """Return the number of items that the mean loss of the update is taken over, on all ranks."""
        count = sum(self.objective.count(batch) for batch in micro_batches)
        if self.objective.equal_counts:
            return scalar(self.world_size * count, self.dtype)
        return mint.maximum(parallel.all_reduce(count, self.world_size), scalar(1.0, self.dtype))

    def _state(self) -> dict[str, Parameter]:
        tensors = {**self.tensors}
        if self.ema:
            tensors.update((ema_key(name), tensor) for name, tensor in self.ema.averages.items())
        for i, slot in enumerate(self.plan.optimizer.slots):
            tensors.update((slot_key(slot, name), tensor) for name, tensor in zip(self.trainable, self.slots[i]))
            tensors.update((slot_key(slot, name), shard.slots[i]) for name, shard in self.shards.items())
        tensors.update((state.statistic_key(name), tensor) for name, tensor in self.objective_statistics.items())
        tensors[update.SCALE_KEY] = self.scaler.scale
        tensors[update.GOOD_STEPS_KEY] = self.scaler.good_steps
        tensors[update.SKIPPED_KEY] = self.scaler.skipped
        return tensors

    def _fields(self, batch: DeviceBatch) -> tuple[Tensor, ...]:
        return tuple(batch[name] for name in self.inputs + self.objective.targets)

    def _freeze(self) -> None:
        for name, parameter in self.tensors.items():
            parameter.name = name
            parameter.requires_grad = not (is_statistic(name) or self.plan.is_frozen(name))

    def _copy_model(self, Model: type[nn.Cell], arch: Any) -> nn.Cell:
        """Return another model with the same tensors.

        A single model would be compiled anew at every change between training and evaluation, or of the precision.
        """
        model = Model(arch)
        for (_, source), (_, cell) in zip(self.model.cells_and_names(), model.cells_and_names()):
            for key, parameter in source._params.items():
                setattr(cell, key, parameter)
        return model

    def _build_predictor(self, Model: type[nn.Cell], arch: Any) -> "Predictor":
        model = self.model
        if self.plan.eval_mixed:
            model = convert_precision(self._copy_model(Model, arch).set_train(False), self.plan)
        return Predictor(self.preprocess, model, self.dtype)

    def _build_average(self, Model: type[nn.Cell], arch: Any) -> None:
        """Build the moving average, a model with tensors of its own, and the predictor of this model."""
        assert self.plan.ema
        model = Model(arch).set_train(False)
        if self.mode.is_fp64:
            convert_to_fp64(model)
        self.ema = MovingAverage(self.plan.ema, model, self.tensors, self.shards, self.dtype, self.on_cpu)
        if self.plan.eval_mixed:
            model = convert_precision(model, self.plan)
        self.averaged_predictor = Predictor(self.preprocess, model, self.dtype)

    def _build_training_model(self, Model: type[nn.Cell], arch: Any) -> nn.Cell:
        """Return a second model with the same tensors, in training mode and the precision of the training."""
        model = self._copy_model(Model, arch)
        for _, cell in model.cells_and_names():
            if isinstance(cell, nn.BatchNorm2d) and not (cell.gamma.requires_grad or cell.beta.requires_grad):
                cell.use_batch_statistics = False  # frozen
        model.set_train(True)
        cells = checkpointed_cells(model, self.plan)
        if self.mode.is_fp64:
            model = convert_to_fp64(model, self.world_size if self.plan.sync_bn else 1)
        elif self.plan.sync_bn and (self.world_size > 1 or self.on_cpu):
            convert_sync_batchnorm(model, self.world_size, self.on_cpu)
        if self.on_cpu and not self.mode.is_mixed:
            convert_prelu(model)
        model = convert_precision(model, self.plan)
        checkpoint(cells)
        return model

    def _build_step(self) -> None:
        plan, weights = self.plan, ParameterTuple(self.trainable.values())
        all_reduce_mean = None
        if self.world_size > 1:
            shapes = [tensor.shape for tensor in self.trainable.values()]
            all_reduce_mean = parallel.AllReduceMean(self.world_size, shapes, plan.fp16_allreduce)
        self.loss_and_gradients = LossAndGradients(
            self.train_forward,
            self.objective,
            len(self.inputs),
            self.preprocess,
            self.scaler,
            weights,
            self.world_size,
        )
        self.update = Update(
            plan,
            weights,
            self.slots,
            [plan.param_group(name) for name in self.trainable],
            self.scaler,
            all_reduce_mean,
            next(iter(self.shards.values()), None),
            self.world_size,
            skips_on_host=self.on_cpu,
        )
        self.train_step = TrainStep(self.loss_and_gradients, self.update)
        self.accumulate = Accumulate()

    def _describe(self, name: str, tensor: Parameter) -> Param:
        return state.describe(name, tensor.shape, is_statistic(name), self.shards.get(name))


class Predictor(nn.Cell):
    """Raw input -> output of the model, of type dtype."""

    def __init__(self, preprocess: PixelNormalization, model: nn.Cell, dtype: mstype.Type):
        super().__init__()
        self.preprocess, self.model, self.dtype = preprocess, model, dtype

    def construct(self, x: Tensor) -> Tensor:
        return self.model(self.preprocess(x)).astype(self.dtype)


class FeaturePredictor(Predictor):
    """Raw input -> the maps that the model's forward_features returns, of type dtype."""

    def construct(self, x: Tensor) -> Tensor:
        return self.model.forward_features(self.preprocess(x)).astype(self.dtype)


class FramePredictor(Predictor):
    """Raw input of one frame per clip, and the state of a stream -> logits of type dtype, and the new state."""

    def construct(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        logits, new_state = self.model.forward_frame(self.preprocess(x)[:, 0], state)
        return (logits.astype(self.dtype), *new_state)


def record_forward(
    trainer: Trainer, batch: DeviceBatch, training: bool, title: str, keep: Callable[[str, np.ndarray], None]
) -> Any:
    """Run the model on a micro-batch and record every module, in pynative mode, since graphs call no hooks.

    Args:
        trainer: its running statistics are unchanged afterwards.
        training: in training mode with the batch's dropout masks, else in evaluation mode.
        title, keep: see Recorder in zoo/parity/recording.py; tensors are float64 arrays.
    """
    from zoo.trainer.recording import record  # for comparisons alone

    def register(cell: nn.Cell, enter: Callable, leave: Callable) -> list[Any]:
        return [cell.register_forward_pre_hook(enter), cell.register_forward_hook(leave)]

    def forward() -> None:
        image, *masks = (batch[name] for name in (trainer.inputs if training else trainer.inputs[:1]))
        model(trainer.preprocess(image), *masks)

    def array(tensor: Tensor) -> np.ndarray:
        return np.array(tensor.astype(mstype.float64).asnumpy())

    model = trainer.train_forward if training else trainer.model
    # A BatchNorm3d contains a BatchNorm2d, which the other frameworks do not have.
    cells = {name: cell for name, cell in model.cells_and_names() if name.rpartition(".")[2] != "bn2d"}
    mode = mindspore.get_context("mode")
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    try:
        return record(trainer, cells, register, forward, array, title, keep)
    finally:
        mindspore.set_context(mode=mode)
