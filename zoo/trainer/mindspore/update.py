"""The update as MindSpore compiles it: objective, loss and gradients, the step along them, and the loss scale.

The objectives are those of zoo/trainer/objectives.py; that of face models is in partial_fc.py. `total` is `construct`,
which takes the model's output and the batch's fields `targets`. An objective with shards computes its gradients itself:
its `construct` also returns those with respect to the output and to the active rows.
"""

from collections.abc import Callable, Sequence
from typing import Any

from mindspore import Parameter, ParameterTuple, Tensor, jit_class, nn
from mindspore import dtype as mstype
from mindspore import ops as mint

from zoo.trainer.mindspore import ops
from zoo.trainer.mindspore.optimizer import ParameterUpdate
from zoo.trainer.mindspore.parallel import all_reduce, flatten
from zoo.trainer.mindspore.world import World
from zoo.trainer.objectives import find_objective
from zoo.trainer.plan import ParamGroup, Plan
from zoo.trainer.protocol import DeviceBatch
from zoo.trainer.update import GOOD_STEPS_KEY, SCALE_KEY, SKIPPED_KEY, floor_of, rounded, updated


class Objective(nn.Cell):
    def __init__(self, settings: Any, plan: Plan):
        super().__init__()
        self.settings = settings
        kind = jit_class(find_objective(settings.task))
        dtype = mstype.float64 if plan.mode.is_fp64 else mstype.float32
        objective = self.objective = kind(ops, settings, plan, dtype, dtype)
        self.equal_counts, self.targets = objective.equal_counts, objective.targets
        self.shards, self.statistics, self.begin = objective.shards, objective.statistics, objective.begin
        for name in ("loss", "aux_loss"):
            if hasattr(objective, name):
                setattr(objective, name, ops.compiled(getattr(objective, name)))

    def count(self, batch: DeviceBatch) -> int | Tensor:
        return self.objective.count(batch)

    def construct(self, output, *targets):
        """Compute the sum of the losses."""
        return self.objective.total(output, *targets)


def build_objective(settings: Any, arch: Any, plan: Plan, world: World | None = None) -> Any:
    """Return the objective of section `task:`; world: needed by one with parameters of its own."""
    if settings.task == "face":
        from zoo.trainer.mindspore.partial_fc import Margin  # which other tasks do without

        assert world
        return Margin(settings, arch, plan, world)
    return Objective(settings, plan)


def scalar(value: float, dtype: mstype.Type = mstype.float32) -> Tensor:
    return Tensor(value, dtype)


class LossScaler(nn.Cell):
    """(finite) -> new values of skipped and consecutive_skips; finite: 0-d bool, whether the gradient was finite.

    Args:
        dynamic: adapt the scale; else it never changes.

    Attributes:
        scale, good_steps, skipped, consecutive_skips: 0-d fp32 parameters.
    """

    def __init__(self, dynamic: bool, initial: float):
        super().__init__()
        self.dynamic, self.ops = dynamic, ops
        self.scale = Parameter(scalar(initial), SCALE_KEY, requires_grad=False)
        self.good_steps = Parameter(scalar(0.0), GOOD_STEPS_KEY, requires_grad=False)
        self.skipped = Parameter(scalar(0.0), SKIPPED_KEY, requires_grad=False)
        self.consecutive_skips = Parameter(scalar(0.0), "scaler/consecutive_skips", requires_grad=False)

    def construct(self, finite: Tensor) -> tuple[Tensor, Tensor]:
        state = (self.scale, self.good_steps, self.skipped, self.consecutive_skips)
        scale, good_steps, skipped, consecutive_skips = updated(self.ops, state, finite, self.dynamic)
        mint.assign(self.skipped, skipped)
        mint.assign(self.consecutive_skips, consecutive_skips)
        if self.dynamic:
            mint.assign(self.scale, scale)
            mint.assign(self.good_steps, good_steps)
        return skipped, consecutive_skips


class LossAndGradients(nn.Cell):
    """(count, fields) -> this micro-batch's share of the mean loss, and its gradients.

    The gradients, one per weight, are multiplied by the loss scale and by the world size: their mean over ranks is then
    the sum of the ranks' shares. The last one is that of the objective's active rows, if it has shards.

    Args:
        forward: the model in training mode.
        num_inputs: fields that are arguments of the model; the others are the objective's targets.
        preprocess: raw input -> input of the model.
    """

    def __init__(
        self,
        forward: nn.Cell,
        objective: nn.Cell,
        num_inputs: int,
        preprocess: Callable,
        scaler: LossScaler,
        weights: ParameterTuple,
        world_size: int = 1,
    ):
        super().__init__()
        self.forward = forward
        self.objective = objective
        self.num_inputs = num_inputs
        self.preprocess = preprocess
        self.scale, self.world_size = scaler.scale, world_size
        self.has_shards = len(objective.shards) > 0
        self.value_and_grad = mint.value_and_grad(self.share, None, weights, has_aux=True)

    def share(self, count, fields):
        image = self.preprocess(fields[0])
        output = self.forward(image, *fields[1 : self.num_inputs])
        targets = fields[self.num_inputs :]
        if not self.has_shards:
            share = self.objective(output, *targets) / count
            return share * self.scale * self.world_size, (share, ())
        loss, grad_output, grad_rows = self.objective(mint.stop_gradient(output), *targets)
        factor = self.scale / count
        # The derivative of this product with respect to the output is the gradient that the objective has computed.
        product = (output.astype(grad_output.dtype) * grad_output).sum()
        # The gradient of the rows is a sum over all ranks already, and not averaged over them.
        return product * factor * self.world_size, (loss / count, (grad_rows * factor,))

    def construct(self, count, *fields):
        (_, (share, shard_gradients)), gradients = self.value_and_grad(count, fields)
        return share, gradients + shard_gradients


class Update(nn.Cell):
    """(lr, number, index, loss, gradients) -> the values of a StepOutput: unscale, clip, and update by the optimizer.

    The update is skipped if the gradient is not finite on any rank. number: of the update, from 1; index: the active
    rows of the shard, None for all.

    Args:
        slots: theirs, a tuple for each slot of the optimizer.
        all_reduce_mean: mean of gradients over ranks; None for one rank.
        shard: sharded parameter of the objective.
        skips_on_host: whether the host decides on an update, as on a CPU, where it waits for nothing.
    """

    def __init__(
        self,
        plan: Plan,
        weights: ParameterTuple,
        slots: Sequence[ParameterTuple],
        param_groups: Sequence[ParamGroup],
        scaler: LossScaler,
        all_reduce_mean: nn.Cell | None = None,
        shard: Any = None,
        world_size: int = 1,
        skips_on_host: bool = True,
    ):
        super().__init__()
        self.optimizer, self.ops = ParameterUpdate(plan, skips_on_host), ops
        self.round_gradients = RoundGradients() if plan.mode.rounds_gradients else None
        self.all_reduce_mean, self.parameter_shard, self.world_size = all_reduce_mean, shard, world_size
        self.weights = weights
        self.slots = slots
        self.scaler = scaler
        self.skips_on_host = skips_on_host
        is_fp64 = plan.mode.is_fp64
        self.lr_scales, self.weight_decays = (
            tuple(ops.operand(value, is_fp64) for value in values) for values in zip(*param_groups)
        )
        self.clip_norm = None if plan.clip_norm is None else ops.operand(plan.clip_norm, is_fp64)
        self.clip_sharded = plan.clip_sharded
        # Maps instead of loops: every iteration would nest the compiler's calls deeper, and 1000 is its limit.
        self.map, self.concat = mint.HyperMap(), mint.Concat()

    def construct(self, lr, number, index, loss, *gradients):
        shard_gradient = None
        if self.parameter_shard is not None:
            gradients, shard_gradient = gradients[:-1], gradients[-1]
        if self.all_reduce_mean is not None:
            gradients = self.all_reduce_mean(gradients)
        if self.round_gradients is not None:
            gradients, shard_gradient = self.round_gradients(gradients, shard_gradient)
        scale = self.scaler.scale + 0.0  # a copy: the scaler changes it below
        flat = self.concat(self.map(flatten, gradients))
        model_norm = mint.sqrt(self.ops.sum_of_squares(flat)) / scale  # of one long tensor: half the time of many
        norm = model_norm
        if self.parameter_shard is not None:
            # Depends on the mean of gradients, because all ranks must run their collectives in the same order.
            squares = all_reduce(mint.depend(self.ops.sum_of_squares(shard_gradient), model_norm), self.world_size)
            norm = mint.sqrt(mint.square(model_norm) + squares / mint.square(scale))
        finite = mint.isfinite(norm)
        multiplier = clipping_multiplier = 1 / scale
        if self.clip_norm is not None:
            clipped_norm = norm if self.clip_sharded else model_norm
            clipping_multiplier = clipping_multiplier / mint.maximum(clipped_norm / self.clip_norm, scalar(1.0))
        if self.round_gradients is not None:  # the norm is not rounded
            clipping_multiplier = self.ops.round_to_fp32(clipping_multiplier)
        shard_multiplier = clipping_multiplier if self.clip_sharded else multiplier
        multipliers, applied = (clipping_multiplier, shard_multiplier), number - self.scaler.skipped
        if not self.skips_on_host:  # noqa: SIM114 - known to the compiler, unlike the other condition
            self.step(lr, applied, finite, index, multipliers, gradients, shard_gradient)
        elif finite:
            self.step(lr, applied, finite, index, multipliers, gradients, shard_gradient)
        skipped, consecutive_skips = self.scaler(finite)
        return loss, norm, scale, skipped, consecutive_skips

    def step(self, lr, applied, finite, index, multipliers, gradients, shard_gradient):
        multiplier, shard_multiplier = multipliers
        update = mint.partial(self.update_parameter, lr, applied, finite, multiplier)
        groups = self.lr_scales, self.weight_decays
        self.map(update, self.weights, gradients, *groups, *self.slots)
        if self.parameter_shard is not None:
            self.parameter_shard(lr, applied, finite, shard_gradient * shard_multiplier, index)

    def update_parameter(self, lr, applied, finite, multiplier, weight, gradient, *others):
        return self.optimizer(lr, applied, finite, weight, gradient * multiplier, *others)


class RoundGradients(nn.Cell):
    """(gradients of the model, gradient of the shard or None) -> the same, rounded: see zoo/trainer/update.py."""

    def __init__(self):
        super().__init__()
        self.ops, self.map = ops, mint.HyperMap()

    def construct(self, gradients, shard_gradient):
        floor = floor_of(self.ops, self.map(self.ops.largest, gradients))
        gradients = self.map(mint.partial(self.round, floor), gradients)
        return gradients, None if shard_gradient is None else self.round(floor, shard_gradient)

    def round(self, floor, gradient):
        return rounded(self.ops, gradient, floor)


class Accumulate(nn.Cell):
    """(share, gradients, share, gradients) of two micro-batches -> (sum of the shares, sums of the gradients)."""

    def __init__(self):
        super().__init__()
        self.map = mint.HyperMap()

    def construct(self, *values):
        half = len(values) // 2
        return self.map(mint.add, values[:half], values[half:])


class TrainStep(nn.Cell):
    """(lr, number, count, fields) -> (values of a StepOutput, gradients): an update of one micro-batch as one graph."""

    def __init__(self, loss_and_gradients: LossAndGradients, update: Update):
        super().__init__()
        self.loss_and_gradients, self.update = loss_and_gradients, update
        self.samples_rows = update.parameter_shard is not None and update.parameter_shard.sample_rate < 1

    def construct(self, lr, number, count, *fields):
        loss, gradients = self.loss_and_gradients(count, *fields)
        return self.update(lr, number, fields[-1] if self.samples_rows else None, loss, *gradients), gradients
