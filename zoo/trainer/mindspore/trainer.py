"""One update in MindSpore, as zoo/trainer/protocol.py states it."""

from collections.abc import Mapping, Sequence

import mindspore
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, amp, nn, ops
from mindspore import dtype as mstype
from mindspore.common.initializer import initializer

from data.batch import Batch, Field
from zoo.trainer.mindspore import outputs, parallel
from zoo.trainer.mindspore.names import is_statistic, named_tensors
from zoo.trainer.mindspore.objectives import build
from zoo.trainer.mindspore.shard import ParameterShard
from zoo.trainer.mindspore.update import Add, LossAndGradients, LossScaler, Step, Update, scalar
from zoo.trainer.mindspore.world import World
from zoo.trainer.protocol import Param, Plan

DTYPES = {"fp16": mstype.float16, "bf16": mstype.bfloat16}
DeviceBatch = dict[str, Tensor]


class Trainer:
    """The common trainer interface; see zoo/trainer/protocol.py for every method's contract."""

    def __init__(self, Model: type, arch, objective, plan: Plan, world: World):
        mindspore.set_context(mode=mindspore.GRAPH_MODE if plan.mode.compile else mindspore.PYNATIVE_MODE)
        self.plan, self.mode, self.size, self.on_cpu = plan, plan.mode, world.size, world.device_type == "cpu"
        self.model = Model(arch).set_train(False)  # predicts, in fp32
        self.tensors = named_tensors(self.model)
        for name, parameter in self.tensors.items():
            parameter.name = name
            parameter.requires_grad = not is_statistic(name) and plan.param_group(name)[0] != 0
        self.trainable = {name: tensor for name, tensor in self.tensors.items() if tensor.requires_grad}
        self.momentum_buffers = {
            name: Parameter(initializer("zeros", tensor.shape), f"momentum/{name}", requires_grad=False)
            for name, tensor in self.trainable.items()
        }
        self.scaler = LossScaler(self.mode.compute == "fp16", plan.loss_scale)
        self.objective, self.output = build(objective, arch, plan, world), outputs.build(plan.output, arch)
        self.shards: dict[str, ParameterShard] = getattr(self.objective, "shards", {})
        self.tensors.update((name, shard.values) for name, shard in self.shards.items())
        self.params = tuple(self._param(name, tensor) for name, tensor in self.tensors.items())
        self.inputs = (plan.fields[0].name,) + plan.dropout_masks
        self.preprocess = PixelNormalization(plan.fields[0])

        weights = ParameterTuple(self.trainable.values())
        # A second model over the same tensors: the two modes of one model would compile anew at every change.
        training = self._share(Model(arch)).set_train(True)
        if plan.sync_bn and (world.size > 1 or self.on_cpu):
            parallel.convert_sync_batchnorm(training, world.size, self.on_cpu)
        training = self.train_forward = self._in_16_bits(training)
        mean = None
        if world.size > 1:
            mean = parallel.Mean(world.size, [tensor.shape for tensor in self.trainable.values()], plan.fp16_allreduce)
        self.loss_and_gradients = LossAndGradients(
            training, self.objective, len(self.inputs), self.preprocess, self.scaler, weights, world.size
        )
        self.update = Update(
            weights,
            ParameterTuple(self.momentum_buffers.values()),
            [plan.param_group(name) for name in self.trainable],
            plan.momentum,
            plan.clip_norm,
            self.scaler,
            mean,
            next(iter(self.shards.values()), None),
            plan.clip_sharded,
            world.size,
        )
        self.train_step, self.accumulate = Step(self.loss_and_gradients, self.update), Add()
        self.predictor = Predictor(self.preprocess, self.model)

    def to_device(self, batch: Batch) -> DeviceBatch:
        return {
            name: Tensor(array.astype(np.int32) if array.dtype == np.int64 else array) for name, array in batch.items()
        }

    def step(self, parts: Sequence[DeviceBatch], lr: float, number: int = 0) -> dict[str, Tensor]:
        if self.shards:
            parts = self.objective.begin(parts, number)
        count = self._count(parts)
        rate = scalar(lr)
        if len(parts) == 1:
            numbers = self.train_step(rate, count, *self._fields(parts[0]))
        else:
            # All as arguments of their own: the values of a tuple are constants, and every call would compile anew.
            loss, gradient = self.loss_and_gradients(count, *self._fields(parts[0]))
            for part in parts[1:]:
                share, more = self.loss_and_gradients(count, *self._fields(part))
                loss, *gradient = self.accumulate(loss, *gradient, share, *more)
            numbers = self.update(rate, parts[0].get("index"), loss, *gradient)
        return dict(zip(("loss", "grad_norm", "scale", "skipped", "consecutive_skips"), numbers))

    def read(self, output: Mapping[str, Tensor]) -> dict[str, float]:
        return {name: float(value.asnumpy()) for name, value in output.items()}

    def predict(self, device_batch: DeviceBatch, size: tuple[int, int] | None = None) -> np.ndarray:
        return self.output(self.predictor, list(device_batch.values()), size).asnumpy()

    def sync_batch_stats(self) -> None:
        if self.size > 1:
            parallel.average([tensor for name, tensor in self.tensors.items() if is_statistic(name)], self.size)

    def state_dict(self) -> dict[str, np.ndarray]:
        split = {key for name in self.shards for key in (name, f"momentum/{name}")}
        arrays = {name: tensor.asnumpy() for name, tensor in self._state().items()}
        return {name: array if name in split else array.copy() for name, array in arrays.items()}

    def load_state_dict(self, values: Mapping[str, np.ndarray]) -> None:
        state = self._state()
        for name, value in values.items():
            given = Tensor.from_numpy(np.asarray(value, np.float32, order="C"))
            if self.on_cpu:
                state[name].copy_(given)  # an assignment leaves a second copy in MindSpore's pool, for good
            else:
                ops.assign(state[name], given)

    def nonfinite_report(self) -> str:
        found = [
            f"weights {name}"
            for name, tensor in self.tensors.items()
            if not np.isfinite(tensor.asnumpy()).all()
        ]
        return f"not finite: {', '.join(found[:5])}{' and more' if len(found) > 5 else ''}" if found else "all finite"

    def _count(self, parts: Sequence[DeviceBatch]) -> Tensor:
        """The items that the update's mean loss is taken over, on all ranks."""
        count = sum(self.objective.count(part) for part in parts)
        if self.objective.equal_counts:
            return scalar(self.size * count)
        return ops.maximum(parallel.total(count, self.size), scalar(1.0))

    def _state(self) -> dict[str, Parameter]:
        state = {**self.tensors, **{f"momentum/{name}": tensor for name, tensor in self.momentum_buffers.items()}}
        state.update((f"momentum/{name}", shard.momentum) for name, shard in self.shards.items())
        state.update((f"scaler/{name}", getattr(self.scaler, {"good": "good_steps"}.get(name, name))) for name in ("scale", "good", "skipped"))
        return state

    def _fields(self, part: DeviceBatch) -> tuple[Tensor, ...]:
        return tuple(part[name] for name in self.inputs + self.objective.targets)

    def _share(self, model: nn.Cell) -> nn.Cell:
        """Put the tensors of self.model into another model, and let its frozen normalisations use running statistics."""
        for (_, source), (_, cell) in zip(self.model.cells_and_names(), model.cells_and_names()):
            for key, parameter in source._params.items():
                setattr(cell, key, parameter)
            if isinstance(cell, nn.BatchNorm2d) and not (cell.gamma.requires_grad or cell.beta.requires_grad):
                cell.use_batch_statistics = False
        return model

    def _in_16_bits(self, model: nn.Cell) -> nn.Cell:
        if self.mode.compute == "fp32":
            return model
        # MindSpore's own O1 rewrites source code and misses methods; `auto` goes by operator, as autocast does.
        level = {"O1": "auto"}.get(self.mode.level, self.mode.level)
        kept = [cell for name, cell in model.cells_and_names() if name in self.plan.fp32_modules]
        model = amp.auto_mixed_precision(model, level, DTYPES[self.mode.compute])
        for cell in kept:
            cell.to_float(mstype.float32)  # its own operators; those around it in pynative O2 and O3 still round to 16
        for _, cell in model.cells_and_names():
            if getattr(cell, "_backbone", None) in kept:  # what O2 puts around a normalisation, to hand on 16 bits
                cell.dtype = mstype.float32
        return model

    def _param(self, name: str, tensor: Parameter) -> Param:
        shape, shard = tuple(tensor.shape), self.shards.get(name)
        if shard is not None:
            return Param(name, (shard.count, *shape[1:]), rows=(shard.first, shard.last))
        return Param(name, shape, is_statistic(name))


class PixelNormalization(nn.Cell):
    """uint8 pixels, channels last -> normalised float32, channels first, as the field says; others pass."""

    def __init__(self, field: Field):
        super().__init__()
        self.is_pixels = field.mean is not None
        if self.is_pixels:
            mean, std = np.array(field.mean, np.float64), np.array(field.std, np.float64)
            self.factor, self.offset = Tensor((1 / (255 * std)).astype("f4")), Tensor((-mean / std).astype("f4"))
            last = len(field.shape)  # with the batch in front
            self.axes = tuple(range(last - 2)) + (last, last - 2, last - 1)

    def construct(self, x: Tensor) -> Tensor:
        if not self.is_pixels:
            return x
        return ops.transpose(x.astype(mstype.float32) * self.factor + self.offset, self.axes)


class Predictor(nn.Cell):
    def __init__(self, preprocess: PixelNormalization, model: nn.Cell):
        super().__init__()
        self.preprocess, self.model = preprocess, model

    def construct(self, x: Tensor) -> Tensor:
        return self.model(self.preprocess(x))
