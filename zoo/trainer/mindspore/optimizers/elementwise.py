"""Update of a parameter without a fused kernel: one that is not finite changes nothing."""

from mindspore import dtype as mstype
from mindspore import nn, ops

from zoo.trainer.mindspore.fp64 import constant
from zoo.trainer.mindspore.parallel import all_reduce
from zoo.trainer.plan import Plan


class Elementwise(nn.Cell):
    """(lr, applied, finite, weight, gradient, lr_scale, weight_decay, is_decayed, is_matrix, *slots) -> done.

    A file of this folder defines its `formula`. Arguments:

    - lr: learning rate, 0-d;
    - applied: number of the update without those that were skipped, from 1, 0-d;
    - finite: 0-d bool; where it is False, nothing changes;
    - weight, slots: updated in place;
    - gradient: without loss scale, clipped;
    - lr_scale, weight_decay: of the parameter;
    - is_decayed: whether weight_decay is not 0;
    - is_matrix: whether the parameter has more than one dimension.

    Args:
        plan: specification of the optimizer, and precision.
        skips_on_host: whether updates that are skipped are not called at all.
        world_size: ranks that hold other rows of the parameter, this one included.
    """

    def __init__(self, plan: Plan, skips_on_host: bool, world_size: int):
        super().__init__()
        self.is_fp64, self.rounds = plan.mode.is_fp64, plan.mode.rounds_gradients
        self.skips_on_host, self.world_size = skips_on_host, world_size
        self.number = constant if self.is_fp64 else float

    def formula(self, lr, applied, weight, gradient, weight_decay, is_decayed, is_matrix, *slots):
        """Return the new weight and the new slots; lr: with the parameter's factor."""
        raise NotImplementedError

    def construct(self, lr, applied, finite, weight, gradient, lr_scale, weight_decay, is_decayed, is_matrix, *slots):
        new = self.formula(lr * lr_scale, applied, weight, gradient, weight_decay, is_decayed, is_matrix, *slots)
        old = (weight, *slots)
        done: tuple = ()
        for i in range(len(old)):
            done += (ops.assign(old[i], self.selected(finite, new[i], old[i])),)
        return done

    def selected(self, finite, new, old):
        """Return the new values, where an update is to be skipped on the device the old ones."""
        return new if self.skips_on_host else ops.select(finite.broadcast_to(new.shape), new, old)

    def rounded(self, value):
        """Return a number that frameworks round differently; in an exact run, such that they have the same."""
        return value.astype(mstype.float32).astype(mstype.float64) if self.rounds else value

    def bias_correction(self, log_beta, applied):
        """Return 1 - beta^t for the mean of t values that starts from 0."""
        exponent = log_beta * (applied.astype(mstype.float64) if self.is_fp64 else applied)
        return self.rounded(-ops.expm1(exponent))

    def norm(self, x):
        """Return the L2 norm, over all ranks that hold rows of the parameter."""
        return ops.sqrt(all_reduce(ops.square(x).sum(), self.world_size))

    def ratio_or_one(self, x, y, ratio):
        """Return a trust ratio of two norms, 1 if one of them is 0."""
        return ops.select(ops.logical_and(x > 0, y > 0), ratio, ops.ones_like(ratio))
