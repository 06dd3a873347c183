"""Trainer in PyTorch."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from zoo.data.batch import Batch
from zoo.data.loaders.packed import DeviceImages
from zoo.trainer import pixels, state, update
from zoo.trainer.objectives import find_objective
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import NO_IMAGES, Param, StepOutput
from zoo.trainer.torch import model as models
from zoo.trainer.torch import ops, parallel
from zoo.trainer.torch.model import build_model, mixed_dtype, named_tensors, wide_dtype
from zoo.trainer.torch.optimizer import Divisors, Optimizer
from zoo.trainer.torch.world import World

DeviceBatch = dict[str, torch.Tensor]


class Trainer:
    """Trainer in PyTorch; see zoo/trainer/protocol.py for the contracts of its methods.

    Args:
        objective: section `task:` of the recipe, with the loss.
        plan: everything else that a step needs.
    """

    def __init__(self, Model: type[nn.Module], arch: Any, objective: Any, plan: Plan, world: World):
        self.plan = plan
        self.mode = plan.mode
        self.device = world.torch_device
        self.world_size = world.size
        self.dtype = wide_dtype(self.mode)
        self.copy_stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self.model = build_model(Model, arch, plan, world)
        self.objective: Any = build_objective(objective, arch, plan, world)
        self.arch = arch
        self.input_name = plan.fields[0].name
        constants = pixels.scale_and_offset(plan.fields[0], np.float64)
        self.normalization = constants and tuple(
            torch.from_numpy(array).to(self.device, self.dtype) for array in constants
        )
        self.frozen = self._freeze()
        self.cast_groups = models.cast_groups(self.model, plan)
        self.recomputed_norms = models.checkpoint_modules(self.model, plan.checkpointed_modules)
        self.train_forward, self.eval_forward = models.compile_model(self.model, self.mode.compile)
        self.records_graphs = self.mode.compile in models.GRAPH_MODES
        self.ddp = None
        if world.size > 1:  # around the compiled model, because its own code would cut the graph
            self.ddp = self.train_forward = parallel.data_parallel(self.train_forward, plan.fp16_allreduce)
        self.shards: Mapping[str, Any] = self.objective.shards
        self.tensors = {**named_tensors(self.model), **{name: shard.values for name, shard in self.shards.items()}}
        self.trainable = {name: tensor for name, tensor in named_tensors(self.model).items() if tensor.requires_grad}
        self.ema: update.MovingAverage | None = None
        if plan.ema:
            averaged_model = build_model(Model, arch, plan, world)
            _, self.averaged_forward = models.compile_model(averaged_model, self.mode.compile)
            averages = {name: tensor.detach() for name, tensor in named_tensors(averaged_model).items()}
            sources = {name: tensor.detach() for name, tensor in self.tensors.items()}
            statistics = [name for name, tensor in self.tensors.items() if not isinstance(tensor, nn.Parameter)]
            self.ema = update.MovingAverage(ops, plan.ema, averages, sources, statistics)
        self.params = tuple(self._describe(name, tensor) for name, tensor in self.tensors.items())
        self.objective_statistics: Mapping[str, torch.Tensor] = self.objective.statistics
        self.statistics = tuple(
            state.describe(name, tensor.shape, True, None) for name, tensor in self.objective_statistics.items()
        )
        self.optimizer = Optimizer(plan, self.trainable, self.shards, world)
        self.gathers_state = self.optimizer.is_sharded
        if self.records_graphs:
            models.allocate_gradients(tensor for tensor in self.model.parameters() if tensor.requires_grad)
        self.gradient_factors: Callable[[], GradientFactors] = partial(GradientFactors, *[torch.ones(())] * 3)
        self.scaler = update.LossScaler(
            ops, partial(torch.tensor, device=self.device), plan.adapts_scale, plan.first_scale
        )

    def to_device(self, batch: Batch, images: Mapping[str, DeviceImages] = NO_IMAGES) -> DeviceBatch:
        tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
        if self.device.type == "mps":
            return {name: tensor.to(self.device) for name, tensor in tensors.items()}
        if self.mode.is_fp64:  # a model that divides bytes by a Python number would do it in fp32
            tensors.update((name, tensors[name].double()) for name in self.plan.dropout_masks if name in tensors)
        if self.copy_stream is None:
            return {**tensors, **{name: parallel.assemble(value) for name, value in images.items()}}
        # A thread begins with device 0, to which the stream alone would return: a context there for every rank. PyTorch
        # keeps pinned buffers for reuse. Only the prefetch thread waits for the copy, which runs beside the kernels of
        # the current step.
        with torch.cuda.device(self.device), torch.cuda.stream(self.copy_stream):
            tensors = {name: tensor.pin_memory().to(self.device, non_blocking=True) for name, tensor in tensors.items()}
            tensors.update((name, parallel.assemble(value, self.device)) for name, value in images.items())
        self.copy_stream.synchronize()  # before DALI's memory, which `images` refers to, is free for other batches
        for copy in tensors.values():  # its memory must not be reused before the step has read it
            copy.record_stream(torch.cuda.default_stream(self.device))
        return tensors

    def step(self, micro_batches: Sequence[DeviceBatch], lr: float, step: int) -> StepOutput:
        self.train_mode()
        self._clear_gradients()
        micro_batches = self.objective.begin(micro_batches, step)
        statistics = {name: tensor.clone() for name, tensor in self.objective_statistics.items()}
        count = self._global_count(micro_batches)
        shares = []
        with models.cast_weights(self.cast_groups, mixed_dtype(self.mode)):
            for i, batch in enumerate(micro_batches):
                if self.records_graphs:  # what the last graph has written is not read any more
                    torch.compiler.cudagraph_mark_step_begin()
                with self._gradient_sync(is_last=i == len(micro_batches) - 1):
                    with self.autocast():
                        masks = [batch[name] for name in self.plan.dropout_masks]
                        output = self.train_forward(self.preprocess(batch[self.input_name]), *masks)
                        targets = [batch[name] for name in self.objective.targets]
                        share = self.objective.total(output, *targets) / count
                    # DDP averages gradients over ranks, whose shares add up: hence the factor of the world size.
                    with models.unmoved(self.recomputed_norms):
                        share.backward(self.scaler.scale * self.world_size)
                shares.append(share.detach())
        output = self._update(sum(shares[1:], shares[0]), lr, step + 1)
        for name, tensor in self.objective_statistics.items():
            tensor.copy_(torch.where(output.consecutive_skips == 0, tensor, statistics[name]))
        return output

    def read(self, output: StepOutput) -> dict[str, float]:
        values = torch.stack([value.to(ops.widest(self.device)) for value in output]).tolist()
        return dict(zip(output._fields, values))

    @torch.no_grad()
    def predict(
        self, device_batch: DeviceBatch, size: tuple[int, int] | None = None, averaged: bool = False
    ) -> np.ndarray:
        forward = partial(self._evaluate, self.averaged_forward if averaged else self.eval_forward)
        self.model.eval()
        prediction = self.plan.output.predict(ops, self.arch, forward, list(device_batch.values()), size)
        return prediction.cpu().numpy()

    @torch.no_grad()
    def features(self, device_batch: DeviceBatch) -> np.ndarray:
        model: Any = self.model.eval()
        return self._evaluate(model.forward_features, device_batch[self.input_name]).cpu().numpy()

    @torch.no_grad()
    def predict_frame(
        self, device_batch: DeviceBatch, state: Sequence[torch.Tensor]
    ) -> tuple[np.ndarray, Sequence[torch.Tensor]]:
        model: Any = self.model.eval()
        with self.autocast() if self.plan.eval_mixed else nullcontext():
            logits, state = model.forward_frame(self.preprocess(device_batch[self.input_name])[:, 0], tuple(state))
        return logits.to(self.dtype).cpu().numpy(), state

    @torch.no_grad()
    def sync_batch_stats(self) -> None:
        if self.world_size > 1:
            names = [name for name, tensor in self.tensors.items() if not isinstance(tensor, nn.Parameter)]
            kinds = [self.tensors, self.ema.averages] if self.ema else [self.tensors]
            parallel.all_reduce_mean([tensors[name] for tensors in kinds for name in names], self.world_size)

    def state_dict(self) -> dict[str, np.ndarray]:
        sharded = state.sharded_keys(self.shards, self.plan.optimizer.slots)
        tensors = itertools.chain(
            self.tensors.items(),
            self._averages().items(),
            self._named_statistics().items(),
            self.scaler.state_dict().items(),
            self.optimizer.all_slots(),
        )
        arrays = {key: tensor.detach().cpu().contiguous().numpy() for key, tensor in tensors}
        return {key: array if key in sharded else array.copy() for key, array in arrays.items()}

    @torch.no_grad()
    def load_state_dict(self, tensors: Mapping[str, np.ndarray]) -> None:
        self.scaler.load_state_dict(tensors)
        targets = {**self.tensors, **self.optimizer.named_slots(), **self._named_statistics()}
        targets.update(self._averages())
        for key in tensors.keys() - set(update.KEYS) - self.optimizer.keys_of_others():
            array = tensors[key]
            writable = array if array.flags.writeable else np.array(array)  # PyTorch warns of read-only arrays
            targets[key].copy_(torch.from_numpy(writable))

    @torch.no_grad()
    def gradients(self) -> dict[str, np.ndarray]:
        arrays = {}
        factors = self.gradient_factors()  # of the last step
        for name, tensor in self._trained().items():
            factor = factors.shards if name in self.shards else factors.model
            if name not in self.optimizer.slots:  # another rank has divided and used its gradient
                factor = factors.others
            gradient = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad * factor
            arrays[name] = gradient.cpu().contiguous().numpy()
        return arrays

    @torch.no_grad()
    def nonfinite_report(self) -> str:
        gradients = {name: tensor.grad for name, tensor in self._trained().items()}
        return state.nonfinite_report(
            self.params, self.tensors, gradients, lambda tensor: bool(torch.isfinite(tensor).all())
        )

    def preprocess(self, x: torch.Tensor) -> torch.Tensor:
        """Return the model's input: normalized pixels, channels first; a field without pixels is unchanged."""
        if self.normalization:
            scale, offset = self.normalization
            # movedim renames the axes and keeps the order in memory: the result is in channels-last format.
            x = x.to(self.dtype).mul_(scale).add_(offset).movedim(-1, -3)
        elif x.is_floating_point():
            x = x.to(self.dtype)
        return x if self.mode.channels_last else x.contiguous()

    def _clear_gradients(self) -> None:
        for tensor in self._trained().values():
            if self.records_graphs and tensor.grad is not None:  # a graph writes to the same memory
                tensor.grad.zero_()
            else:
                tensor.grad = None

    def _evaluate(self, forward: Any, x: torch.Tensor) -> torch.Tensor:
        """Return the output of a model in evaluation mode for raw input, in fp32 or fp64."""
        with self.autocast() if self.plan.eval_mixed else nullcontext():
            output = forward(self.preprocess(x))
        return output.to(self.dtype)

    def _global_count(self, micro_batches: Sequence[DeviceBatch]) -> int | torch.Tensor:
        """Return the number of items that the mean loss of the update is taken over, on all ranks."""
        count = sum(self.objective.count(batch) for batch in micro_batches)
        if self.objective.equal_counts:
            return self.world_size * count
        return parallel.all_reduce(count, self.world_size).clamp(min=1).to(self.dtype)

    def _gradient_sync(self, is_last: bool) -> AbstractContextManager:
        """All-reduce gradients in the backward pass of the last micro-batch only."""
        return nullcontext() if self.ddp is None or is_last else self.ddp.no_sync()

    def _update(self, loss: torch.Tensor, lr: float, number: int) -> StepOutput:
        """Unscale, clip and update; if the gradient is not finite, the update is skipped on the device."""
        scale = self.scaler.scale
        gradients = [tensor.grad for tensor in self.trainable.values() if tensor.grad is not None]
        # Gradients of shards are sums over ranks already; only the factor of the world size is undone.
        shard_gradients: list[Any] = [shard.active_rows.grad for shard in self.shards.values()]
        for gradient in shard_gradients:
            gradient.div_(self.world_size)
        if self.mode.rounds_gradients:
            rounded = update.round_gradients(ops, gradients, shard_gradients)
            for gradient, value in zip((*gradients, *shard_gradients), rounded, strict=True):
                gradient.copy_(value)
        model_norm = torch.nn.utils.get_total_norm(gradients) / scale
        norm = model_norm
        if shard_gradients:
            squares = torch.stack([ops.squared_norm(gradient) for gradient in shard_gradients]).sum()
            squares = parallel.all_reduce(squares, self.world_size)
            norm = torch.hypot(model_norm, squares.sqrt().to(self.dtype) / scale)
        finite = norm < math.inf  # and not NaN; torch.isfinite takes four kernels
        divisors = Divisors(scale, scale)
        if self.plan.clip_norm is not None:
            clipped_norm = norm if self.plan.clip_sharded else model_norm
            clipped = scale * torch.clamp(clipped_norm / self.plan.clip_norm, min=1.0)
            divisors = Divisors(clipped, clipped if self.plan.clip_sharded else scale)
        applied = number - self.scaler.skipped
        self.optimizer.step(lr, divisors, finite, applied)
        if self.ema:
            with torch.no_grad():
                self.ema.update(applied, finite)
        self.gradient_factors = partial(self._gradient_factors, scale, divisors, finite)
        self.scaler.update(finite)
        return StepOutput(loss, norm, scale, self.scaler.skipped, self.scaler.consecutive_skips)

    def _gradient_factors(self, scale: torch.Tensor, divisors: Divisors, finite: torch.Tensor) -> "GradientFactors":
        """Return the factors: in fp32, the optimizer has divided gradients in place, unless the update was skipped."""
        if self.mode.is_fp64:
            return GradientFactors(*[1 / scale] * 3)
        model, shards = (torch.where(finite, divisor, 1) / scale for divisor in divisors)
        return GradientFactors(model, shards, 1 / scale)

    def _averages(self) -> dict[str, torch.Tensor]:
        averages = self.ema.averages if self.ema else {}
        return {state.ema_key(name): tensor for name, tensor in averages.items()}

    def _named_statistics(self) -> dict[str, torch.Tensor]:
        return {state.statistic_key(name): tensor for name, tensor in self.objective_statistics.items()}

    def _trained(self) -> dict[str, torch.Tensor]:
        """Return the tensors that have gradients, by canonical name; of a shard the active rows."""
        return {**self.trainable, **{name: shard.active_rows for name, shard in self.shards.items()}}

    def _freeze(self) -> list[nn.Module]:
        """Freeze parameters; return the batch normalizations that use running statistics for it."""
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(not self.plan.is_frozen(name))
        return [
            module
            for module in self.model.modules()
            if isinstance(module, nn.modules.batchnorm._BatchNorm)
            and not (module.weight.requires_grad or module.bias.requires_grad)
        ]

    def autocast(self) -> AbstractContextManager:
        """Return the context in which the model computes in 16 bits, if the mode says so."""
        dtype = mixed_dtype(self.mode)
        return torch.autocast(self.device.type, dtype) if dtype else nullcontext()

    def train_mode(self) -> None:
        """Switch the model to training mode, its frozen normalizations excepted."""
        if not self.model.training:
            self.model.train()
            for module in self.frozen:
                module.eval()

    def _describe(self, name: str, tensor: torch.Tensor) -> Param:
        return state.describe(name, tensor.shape, not isinstance(tensor, nn.Parameter), self.shards.get(name))


class GradientFactors(NamedTuple):
    """Factors that make gradients those of the mean loss, 0-d."""

    model: torch.Tensor
    shards: torch.Tensor
    others: torch.Tensor  # of parameters that another rank updates


def build_objective(settings: Any, arch: Any, plan: Plan, world: World | None = None) -> Any:
    """Return the objective of section `task:`; world: needed by one with parameters of its own."""
    if settings.task == "face":
        from zoo.trainer.torch.partial_fc import Margin  # which other tasks do without

        assert world
        return Margin(settings, arch, plan, world)
    widest = ops.widest(world.torch_device) if world else torch.float64
    return find_objective(settings.task)(ops, settings, plan, wide_dtype(plan.mode), widest)


@torch.no_grad()
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

    def register(module: nn.Module, enter: Callable, leave: Callable) -> list[Any]:
        return [module.register_forward_pre_hook(enter, with_kwargs=True), module.register_forward_hook(leave)]

    def forward() -> None:
        trainer.train_mode() if training else trainer.model.eval()
        masks = [batch[name] for name in trainer.plan.dropout_masks] if training else []
        with trainer.autocast() if training or trainer.plan.eval_mixed else nullcontext():
            trainer.model(trainer.preprocess(batch[trainer.input_name]), *masks)

    def array(tensor: torch.Tensor) -> np.ndarray:
        return tensor.detach().cpu().double().contiguous().numpy().copy()

    return record(trainer, dict(trainer.model.named_modules()), register, forward, array, title, keep)
