"""Trainer in PaddlePaddle."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import paddle
from paddle import nn

from zoo.data.batch import Batch
from zoo.data.errors import UserError
from zoo.data.loaders.packed import DeviceImages
from zoo.trainer import pixels, state, update
from zoo.trainer.objectives import find_objective
from zoo.trainer.paddle import model, ops, parallel
from zoo.trainer.paddle.model import build_forwards, build_model, checkpoint_modules
from zoo.trainer.paddle.optimizer import Factors, Optimizer, total_norm
from zoo.trainer.paddle.world import World
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import NO_IMAGES, Param, StepOutput

DTYPES = {"fp16": "float16", "bf16": "bfloat16"}
EPS = 1e-30  # smallest norm that clipping divides by
DeviceBatch = dict[str, paddle.Tensor]


class Trainer:
    """Trainer in PaddlePaddle; see zoo/trainer/protocol.py for the contracts of its methods.

    Args:
        objective: section `task:` of the recipe, with the loss.
        plan: everything else that a step needs.
    """

    def __init__(self, Model: type[nn.Layer], arch: Any, objective: Any, plan: Plan, world: World):
        _check(plan, world)
        self.plan = plan
        self.mode = plan.mode
        self.place = world.place
        self.world_size = world.size
        self.model = build_model(Model, arch, plan, world)
        checkpoint_modules(self.model, plan.checkpointed_modules, self.autocast)
        self.train_forward, self.eval_forward = build_forwards(self.model, self.mode)
        self.objective: Any = build_objective(objective, arch, plan, world)
        self.arch = arch
        self.input_name = plan.fields[0].name
        self.dtype = paddle.float64 if self.mode.is_fp64 else paddle.float32  # of parameters, momentum and losses
        constants = pixels.scale_and_offset(plan.fields[0], np.float64)
        self.normalization = constants and tuple(
            paddle.to_tensor(array, dtype=self.dtype, place=self.place) for array in constants
        )
        self.tensors, self.transposed = model.named_tensors(self.model), model.transposed(self.model)
        self.trainable, self.frozen = self._freeze()
        self.shards: Mapping[str, Any] = self.objective.shards
        self.tensors.update((name, shard.values) for name, shard in self.shards.items())
        self.ema: update.MovingAverage | None = None
        if plan.ema:
            averaged_model = build_model(Model, arch, plan, world)
            _, self.averaged_forward = build_forwards(averaged_model, self.mode)
            averages = model.named_tensors(averaged_model)
            for tensor in averages.values():
                tensor.stop_gradient = True
            statistics = [name for name in self.tensors if model.is_statistic(name)]
            self.ema = update.MovingAverage(ops, plan.ema, averages, self.tensors, statistics)
        self.params = tuple(self._describe(name, tensor) for name, tensor in self.tensors.items())
        self.objective_statistics: Mapping[str, paddle.Tensor] = self.objective.statistics
        self.statistics = tuple(
            state.describe(name, tensor.shape, True, None) for name, tensor in self.objective_statistics.items()
        )
        self.ddp = None
        if world.size > 1 and not plan.fp16_allreduce:  # after freezing, because it registers what is trained
            self.ddp = paddle.DataParallel(parallel.ForwardModule(self.model, self.train_forward))
        self.optimizer = Optimizer(plan, self.trainable, self.shards, world)
        self.copies = parallel.Copies(world.place, world.cuda_index is not None)
        self.gathers_state = False
        self.scaler = update.LossScaler(
            ops, lambda value: ops.number(value, "float32"), plan.adapts_scale, plan.first_scale
        )
        self.gradient_divisors: dict[str, paddle.Tensor] = {}  # of the last step, to get the gradients of the mean loss

    def to_device(self, batch: Batch, images: Mapping[str, DeviceImages] = NO_IMAGES) -> DeviceBatch:
        arrays = dict(batch)
        if self.mode.is_fp64:  # a model that divides bytes by a Python number would do it in fp32
            masks = self.plan.dropout_masks
            arrays.update((name, arrays[name].astype(np.float64)) for name in masks if name in arrays)
        tensors = {name: self.copies.copy(array) for name, array in arrays.items()}
        tensors.update((name, parallel.assemble(value, self.place)) for name, value in images.items())
        return tensors

    def step(self, micro_batches: Sequence[DeviceBatch], lr: float, step: int) -> StepOutput:
        self.train_mode()
        for parameter in self.model.parameters():  # Layer.clear_gradients of Paddle 2.6 can only fill them with zeros
            parameter.clear_gradient(False)
        prepared = self.objective.begin(micro_batches, step)
        statistics = {name: tensor.clone() for name, tensor in self.objective_statistics.items()}
        count = self._global_count(prepared)
        shares = []
        for i, batch in enumerate(prepared):
            with self._gradient_sync(is_last=i == len(prepared) - 1):
                with self.autocast():
                    masks = [batch[name] for name in self.plan.dropout_masks]
                    output = self._forward([self.preprocess(batch[self.input_name]), *masks])
                share = self.objective.total(output, *[batch[name] for name in self.objective.targets]) / count
                # Gradients are averaged over ranks, whose shares add up: hence the factor of the world size.
                (share * (self.scaler.scale * self.world_size).astype(share.dtype)).backward()
            shares.append(share.detach())
        if self.plan.fp16_allreduce and self.world_size > 1:
            gradients: list[Any] = [tensor.grad for tensor in self.trainable.values()]
            parallel.all_reduce_mean_fp16(gradients)
        output = self._update(paddle.add_n(shares), lr, step + 1)
        for name, tensor in self.objective_statistics.items():
            paddle.assign(paddle.where(output.consecutive_skips == 0, tensor, statistics[name]), tensor)
        self.copies.keep(micro_batches)
        return output

    def read(self, output: StepOutput) -> dict[str, float]:
        return {name: float(value) for name, value in output._asdict().items()}

    @paddle.no_grad()
    def predict(
        self, device_batch: DeviceBatch, size: tuple[int, int] | None = None, averaged: bool = False
    ) -> np.ndarray:
        self.model.eval()
        forward = partial(self._evaluate, self.averaged_forward if averaged else self.eval_forward)
        return self.plan.output.predict(ops, self.arch, forward, list(device_batch.values()), size).numpy()

    @paddle.no_grad()
    def features(self, device_batch: DeviceBatch) -> np.ndarray:
        self.model.eval()
        return self._evaluate(lambda x: self.model.forward_features(*x), device_batch[self.input_name]).numpy()

    @paddle.no_grad()
    def predict_frame(
        self, device_batch: DeviceBatch, state: Sequence[paddle.Tensor]
    ) -> tuple[np.ndarray, Sequence[paddle.Tensor]]:
        self.model.eval()
        with self.autocast() if self.plan.eval_mixed else nullcontext():
            frame = self.preprocess(device_batch[self.input_name])[:, 0]
            logits, state = self.model.forward_frame(frame, tuple(state))
        return logits.astype(self.dtype).numpy(), state

    def sync_batch_stats(self) -> None:
        if self.world_size > 1:
            kinds = [self.tensors, self.ema.averages] if self.ema else [self.tensors]
            parallel.all_reduce_mean(
                [tensor for tensors in kinds for name, tensor in tensors.items() if model.is_statistic(name)]
            )

    def state_dict(self) -> dict[str, np.ndarray]:
        arrays = {name: self._to_numpy(name, tensor) for name, tensor in self.tensors.items()}
        arrays.update((key, np.array(tensor.numpy())) for key, tensor in self.scaler.state_dict().items())
        others = {**self._averages(), **self._named_slots(), **self._named_statistics()}
        arrays.update((key, self._to_numpy(name, tensor)) for key, (name, tensor) in others.items())
        return arrays

    @paddle.no_grad()
    def load_state_dict(self, tensors: Mapping[str, np.ndarray]) -> None:
        self.scaler.load_state_dict(tensors)
        dtype = np.float64 if self.mode.is_fp64 else np.float32
        targets = {**self._named_slots(), **{name: (name, tensor) for name, tensor in self.tensors.items()}}
        targets.update({**self._averages(), **self._named_statistics()})
        for key in tensors.keys() - set(update.KEYS):
            name, target = targets[key]
            model.copy_into(target, np.asarray(tensors[key], dtype), name in self.transposed)

    @paddle.no_grad()
    def gradients(self) -> dict[str, np.ndarray]:
        arrays = {}
        for name, tensor in self._trained().items():
            divisor = float(self.gradient_divisors["shards" if name in self.shards else "model"])
            gradient = paddle.zeros_like(tensor) if tensor.grad is None else tensor.grad / divisor
            arrays[name] = model.to_numpy(gradient, name in self.transposed)
        return arrays

    @paddle.no_grad()
    def nonfinite_report(self) -> str:
        gradients = {name: tensor.grad for name, tensor in self._trained().items()}
        return state.nonfinite_report(
            self.params, self.tensors, gradients, lambda tensor: bool(paddle.isfinite(tensor).all())
        )

    def preprocess(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return the model's input: normalized pixels, channels first; a field without pixels is unchanged."""
        if self.normalization:
            scale, offset = self.normalization
            x = x.astype(self.dtype) * scale + offset
            x = paddle.moveaxis(x, -1, -3)
        elif self.mode.is_fp64 and x.is_floating_point():
            x = x.astype(self.dtype)
        return x

    def _evaluate(self, forward: Callable, x: paddle.Tensor) -> paddle.Tensor:
        """Return a model's output for a field of the model's input, in evaluation mode and fp32 or fp64."""
        x = self.preprocess(x)
        with self.autocast() if self.plan.eval_mixed else nullcontext():
            output = forward([x])
        return output.astype(self.dtype)

    def _forward(self, inputs: list[paddle.Tensor]) -> Any:
        return self.train_forward(inputs) if self.ddp is None else self.ddp(*inputs)

    def _global_count(self, micro_batches: Sequence[DeviceBatch]) -> int | paddle.Tensor:
        """Return the number of items that the mean loss of the update is taken over, on all ranks."""
        counts = [self.objective.count(batch) for batch in micro_batches]
        if self.objective.equal_counts:
            return self.world_size * sum(counts)
        return parallel.all_reduce(paddle.add_n(counts).clone()).clip(min=1).astype(self.dtype)

    def _gradient_sync(self, is_last: bool) -> AbstractContextManager:
        """All-reduce gradients in the backward pass of the last micro-batch only."""
        return nullcontext() if self.ddp is None or is_last else self.ddp.no_sync()

    @paddle.no_grad()
    def _update(self, loss: paddle.Tensor, lr: float, number: int) -> StepOutput:
        """Unscale, clip and update, unless the gradient is not finite."""
        scale = self.scaler.scale.astype("float64")  # of one number, also on devices that are slow in it
        gradients = [tensor.grad for tensor in self.trainable.values() if tensor.grad is not None]
        shard_gradients: list[Any] = [shard.active_rows.grad for shard in self.shards.values()]
        shard_scale = scale * self.world_size  # they are sums over ranks already, not averages
        if self.mode.is_fp64:
            shard_scale = scale
            for gradient in shard_gradients:
                gradient.scale_(1 / self.world_size)
        if self.mode.rounds_gradients:
            rounded = update.round_gradients(ops, gradients, shard_gradients)
            for gradient, value in zip((*gradients, *shard_gradients), rounded, strict=True):
                paddle.assign(value, gradient)
        norm = model_norm = _as_number(total_norm(gradients)) / scale
        if shard_gradients:
            shard_norm = _as_number(_norm_over_ranks(shard_gradients)) / shard_scale
            norm = (model_norm.square() + shard_norm.square()).sqrt()
        finite = paddle.isfinite(norm)
        clip_factor = self._clip_factor(norm if self.plan.clip_sharded else model_norm)
        shard_factor = (clip_factor if self.plan.clip_sharded else paddle.ones_like(clip_factor)) / shard_scale
        applied = number - self.scaler.skipped
        self.optimizer.step(lr, Factors(clip_factor / scale, shard_factor), finite, applied)
        if self.ema:
            self.ema.update(applied, finite)
        self.gradient_divisors = {"model": scale, "shards": shard_scale}
        used_scale = self.scaler.scale
        self.scaler.update(finite)
        return StepOutput(loss, norm, used_scale, self.scaler.skipped, self.scaler.consecutive_skips)

    def _clip_factor(self, norm: paddle.Tensor) -> paddle.Tensor:
        """Return the factor of the gradient that clips it, float64 ()."""
        if self.plan.clip_norm is None:
            return paddle.ones_like(norm)
        factor = (self.plan.clip_norm / norm.clip(min=EPS)).clip(max=1.0)
        # In an exact run, gradients are rounded and the norm is not.
        return factor.astype("float32").astype("float64") if self.mode.rounds_gradients else factor

    def _trained(self) -> dict[str, paddle.Tensor]:
        """Return the tensors that have gradients, by canonical name; of a shard the active rows."""
        return {**self.trainable, **{name: shard.active_rows for name, shard in self.shards.items()}}

    def autocast(self) -> AbstractContextManager:
        """Return the context in which the model computes in 16 bits, if the mode says so."""
        if not self.mode.is_mixed:
            return nullcontext()
        # Level O2 goes with parameters decorated to 16 bits. Ours stay fp32 and are cast where they are used, so they
        # are their own master weights, and evaluation and checkpoints have no 16 bits; Paddle promotes to fp32 what has
        # a weight in fp32, so that O2 would be O1.
        dtype: Any = DTYPES[self.mode.compute]
        # Paddle's list of convolutions lacks conv3d.
        return paddle.amp.auto_cast(level="O1", dtype=dtype, custom_white_list={"conv3d"})

    def _freeze(self) -> tuple[dict[str, paddle.Tensor], list[nn.Layer]]:
        """Freeze parameters.

        Returns:
            The trained parameters, and the batch normalizations that use running statistics.
        """
        for name, tensor in self.tensors.items():
            tensor.stop_gradient = model.is_statistic(name) or self.plan.is_frozen(name)
        trainable = {name: tensor for name, tensor in self.tensors.items() if not tensor.stop_gradient}
        norms: list[Any] = [
            layer for layer in self.model.sublayers() if isinstance(layer, nn.layer.norm._BatchNormBase)
        ]
        frozen = [layer for layer in norms if layer.weight.stop_gradient and layer.bias.stop_gradient]
        for layer in norms:  # Paddle computes the gradients of both or of none: for a bias alone, zeros
            layer.weight.stop_gradient = layer.bias.stop_gradient = layer in frozen
        return trainable, frozen

    def train_mode(self) -> None:
        """Switch the model to training mode, its frozen normalizations excepted."""
        if not self.model.training:
            self.model.train()
            for layer in self.frozen:
                layer.eval()

    def _describe(self, name: str, tensor: paddle.Tensor) -> Param:
        shape = tensor.shape[::-1] if name in self.transposed else tensor.shape
        return state.describe(name, shape, model.is_statistic(name), self.shards.get(name))

    def _averages(self) -> dict[str, tuple[str, paddle.Tensor]]:
        averages = self.ema.averages if self.ema else {}
        return {state.ema_key(name): (name, tensor) for name, tensor in averages.items()}

    def _named_statistics(self) -> dict[str, tuple[str, paddle.Tensor]]:
        return {state.statistic_key(name): (name, tensor) for name, tensor in self.objective_statistics.items()}

    def _named_slots(self) -> dict[str, tuple[str, paddle.Tensor]]:
        return {
            state.slot_key(slot, name): (name, tensor)
            for name, tensors in self.optimizer.slots.items()
            for slot, tensor in zip(self.plan.optimizer.slots, tensors)
        }

    def _to_numpy(self, name: str, tensor: paddle.Tensor) -> np.ndarray:
        """Return a copy in canonical layout; of a shard, which may be large, a view if it is on the host."""
        if name in self.shards:
            on_host = tensor.detach().cpu()
            return np.from_dlpack(on_host) if hasattr(on_host, "__dlpack__") else on_host.numpy()  # Paddle 2.6: a copy
        return model.to_numpy(tensor, name in self.transposed)


def _norm_over_ranks(gradients: list[paddle.Tensor]) -> paddle.Tensor:
    return parallel.all_reduce(total_norm(gradients).square()).sqrt()


def _as_number(x: paddle.Tensor) -> paddle.Tensor:
    """Return a tensor of one element as float64 ()."""
    return x.reshape([]).astype("float64")


def _check(plan: Plan, world: World) -> None:
    if plan.fp16_allreduce and world.size > 1 and world.name == "cpu":
        raise UserError("train.fp16_allreduce: Paddle sums fp16 to infinity between processes on a CPU; leave it out")
    if plan.sync_bn and plan.mode.compile and world.name == "cpu":
        raise UserError("train.sync_bn: to_static cannot compile it on a CPU; leave it or train.compile out")
    if plan.checkpointed_modules and plan.mode.compile:
        raise UserError("train.checkpoint_activations: to_static cannot compile it; leave it or train.compile out")


def build_objective(settings: Any, arch: Any, plan: Plan, world: World | None = None) -> Any:
    """Return the objective of section `task:`; world: needed by one with parameters of its own."""
    if settings.task == "face":
        from zoo.trainer.paddle.partial_fc import Margin  # which other tasks do without

        assert world
        return Margin(settings, arch, plan, world)
    return find_objective(settings.task)(ops, settings, plan, "float64" if plan.mode.is_fp64 else "float32", "float64")


@paddle.no_grad()
def record_forward(
    trainer: Trainer, batch: DeviceBatch, training: bool, title: str, keep: Callable[[str, np.ndarray], None]
) -> Any:
    """Run the model on a micro-batch and record every module; see zoo/trainer/recording.py.

    Args:
        trainer: its running statistics are unchanged afterwards.
        training: in training mode with the batch's dropout masks, else in evaluation mode.
        title, keep: see Recorder in zoo/parity/recording.py; tensors are float64 arrays.
    """
    from zoo.trainer.recording import record  # for comparisons alone

    def register(layer: nn.Layer, enter: Callable, leave: Callable) -> list[Any]:
        return [layer.register_forward_pre_hook(enter), layer.register_forward_post_hook(leave)]

    def forward() -> None:
        trainer.train_mode() if training else trainer.model.eval()
        masks = [batch[name] for name in trainer.plan.dropout_masks] if training else []
        with trainer.autocast() if training or trainer.plan.eval_mixed else nullcontext():
            trainer.model(trainer.preprocess(batch[trainer.input_name]), *masks)

    def array(tensor: paddle.Tensor) -> np.ndarray:
        return np.array(tensor.astype("float64").numpy())

    layers = dict(trainer.model.named_sublayers(include_self=True))
    return record(trainer, layers, register, forward, array, title, keep)
