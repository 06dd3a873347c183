"""The update as MindSpore compiles it: cells for the gradient, for the step along it, and for both at once."""

from collections.abc import Callable, Sequence

import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.trainer.mindspore.parallel import flat, total
from zoo.trainer.mindspore.shard import ParameterShard

GROWTH, BACKOFF, PATIENCE = 2.0, 0.5, 2000.0  # as torch.amp.GradScaler


def scalar(value: float) -> Tensor:
    return Tensor(np.float32(value))


class LossScaler(nn.Cell):
    """Dynamic loss scale on the device. scale: 1 and constant unless dynamic. good: steps since it changed; skipped,
    consecutive_skips: updates skipped so far, and in a row."""

    def __init__(self, dynamic: bool, initial: float):
        super().__init__()
        self.dynamic = dynamic
        self.scale = Parameter(scalar(initial if dynamic else 1.0), "scaler/scale", requires_grad=False)
        self.good_steps = Parameter(scalar(0.0), "scaler/good", requires_grad=False)
        self.skipped = Parameter(scalar(0.0), "scaler/skipped", requires_grad=False)
        self.consecutive_skips = Parameter(scalar(0.0), "scaler/consecutive_skips", requires_grad=False)

    def construct(self, finite: Tensor) -> tuple[Tensor, Tensor]:
        """Take note of one step; finite: 0-d bool. The new values of skipped and consecutive_skips."""
        bad = 1 - finite.astype(mstype.float32)
        skipped = self.skipped + bad
        consecutive_skips = (self.consecutive_skips + 1) * bad
        ops.assign(self.skipped, skipped)
        ops.assign(self.consecutive_skips, consecutive_skips)
        if self.dynamic:
            good = (self.good_steps + 1) * (1 - bad)
            full = (good >= PATIENCE).astype(mstype.float32)
            ops.assign(self.scale, self.scale * (1 + (GROWTH - 1) * full) * (1 - (1 - BACKOFF) * bad))
            ops.assign(self.good_steps, good * (1 - full))
        return skipped, consecutive_skips


class LossAndGradients(nn.Cell):
    """(count, fields) -> this part's share of the loss, and its gradient, a tensor per weight, times the loss scale and
    the number of ranks: the mean over ranks is then the sum of their shares. Last that of the objective's own rows."""

    def __init__(
        self,
        forward: nn.Cell,
        objective: nn.Cell,
        inputs: int,
        preprocess: Callable,
        scaler: LossScaler,
        weights: ParameterTuple,
        ranks: int = 1,
    ):
        super().__init__()
        self.ranks = ranks
        self.forward, self.objective, self.inputs, self.preprocess = forward, objective, inputs, preprocess
        self.scale = scaler.scale
        self.writes_out = hasattr(objective, "shards")
        self.derive = ops.value_and_grad(self.share, None, weights, has_aux=True)

    def share(self, count, fields):
        """fields: the model's inputs, then the objective's targets."""
        image = self.preprocess(fields[0])
        output = self.forward(image, *fields[1 : self.inputs])
        targets = fields[self.inputs :]
        if not self.writes_out:
            share = self.objective(output, *targets) / count
            return share * self.scale * self.ranks, (share, ())
        loss, to_output, to_rows = self.objective(ops.stop_gradient(output), *targets)
        factor = self.scale / count
        # The derivative of this product by the output is the gradient that the objective has found.
        product = (output.astype(mstype.float32) * to_output).sum()
        # No mean is taken over ranks of the rows' gradient, which is a sum over all samples already.
        return product * factor * self.ranks, (loss / count, (to_rows * factor,))

    def construct(self, count, *fields):
        (_, (share, split)), gradient = self.derive(count, fields)
        return share, gradient + split


class Update(nn.Cell):
    """(lr, index, loss, gradient) -> (loss, grad_norm, scale, skipped, consecutive_skips): unscale, clip, decay, momentum, step.

    v = momentum * v + (clipped gradient + decay * w); w -= lr * factor * v. Left out as a whole if the gradient is not
    finite on any rank. shard: the objective's own rows; index: those used, None for all. clip_sharded: clip by their
    gradient too, and theirs.
    """

    def __init__(
        self,
        weights: ParameterTuple,
        momentum_buffers: ParameterTuple,
        param_groups: Sequence[tuple[float, float]],
        momentum: float,
        clip_norm,
        scaler: LossScaler,
        mean: nn.Cell | None = None,
        shard: ParameterShard | None = None,
        clip_sharded: bool = True,
        ranks: int = 1,
    ):
        super().__init__()
        self.mean = mean  # over ranks
        self.split, self.clip_sharded, self.ranks = shard, clip_sharded, ranks
        self.weights, self.momentum_buffers, self.scaler = weights, momentum_buffers, scaler
        self.factors = tuple(factor for factor, _ in param_groups)
        self.decays = tuple(decay for _, decay in param_groups)
        self.momentum, self.clip_norm = momentum, clip_norm
        # Maps instead of loops, of which each turn nests the compiler's calls deeper: 1000 is its limit.
        self.map, self.concat, self.apply_momentum = ops.HyperMap(), ops.Concat(), ops.ApplyMomentum()

    def construct(self, lr, index, loss, *gradient):
        own = None
        if self.split is not None:
            gradient, own = gradient[:-1], gradient[-1]
        if self.mean is not None:
            gradient = self.mean(gradient)
        scale = self.scaler.scale + 0.0  # its value before this step
        row = self.concat(self.map(flat, gradient))
        whole = ops.sqrt(ops.square(row).sum()) / scale  # of one long row: half the time of many
        norm = whole
        if self.split is not None:
            # Not before the mean: all ranks must talk in the same order.
            squares = total(ops.depend(ops.square(own).sum(), whole), self.ranks)
            norm = ops.sqrt(ops.square(whole) + squares / ops.square(scale))
        finite = ops.isfinite(norm)
        multiplier = clipped = 1 / scale
        if self.clip_norm is not None:
            clipped = clipped / ops.maximum((norm if self.clip_sharded else whole) / self.clip_norm, scalar(1.0))
        if finite:
            self.map(
                ops.partial(self.move, lr, clipped), self.weights, self.momentum_buffers, gradient, self.factors, self.decays
            )
            if self.split is not None:
                self.split(lr, own, clipped if self.clip_sharded else multiplier, index)
        skipped, consecutive_skips = self.scaler(finite)
        return loss, norm, scale, skipped, consecutive_skips

    def move(self, lr, clipped, weight, velocity, part, factor, decay):
        direction = part * clipped
        if decay > 0:
            direction = direction + decay * weight
        return self.apply_momentum(weight, velocity, lr * factor, direction, self.momentum)


class Add(nn.Cell):
    """(share of the loss, its gradient, another share, its gradient) -> (sum of the shares, of the gradients)."""

    def __init__(self):
        super().__init__()
        self.map = ops.HyperMap()

    def construct(self, *shares):
        half = len(shares) // 2
        return self.map(ops.add, shares[:half], shares[half:])


class Step(nn.Cell):
    """Gradient and update in one compiled graph: (lr, count, fields) -> as Update."""

    def __init__(self, gradient: LossAndGradients, update: Update):
        super().__init__()
        self.gradient, self.update = gradient, update
        self.draws = update.split is not None and update.split.rate < 1

    def construct(self, lr, count, *fields):
        loss, gradient = self.gradient(count, *fields)
        return self.update(lr, fields[-1] if self.draws else None, loss, *gradient)
