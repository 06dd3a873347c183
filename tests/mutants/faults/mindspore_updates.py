"""Faults in updates of the trainer of MindSpore, their parts and their state."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import CLIP, MARGIN, OPTIMIZERS, RANK, STATE, UPDATE

TRAINER = "zoo/trainer/mindspore/trainer.py"
UPDATING = "zoo/trainer/mindspore/update.py"
SGD = "zoo/trainer/mindspore/optimizer.py"
SYNC_BN = "zoo/trainer/mindspore/sync_batchnorm.py"

fault = partial(Fault, "mindspore")

FAULTS = [
    fault(
        "factors of the learning rate are ignored",
        SGD,
        "lr * lr_scale, direction, self.momentum)",
        "lr, direction, self.momentum)",
        f"{UPDATE}updates_follow_the_formulas",
        "tsm",
    ),
    fault(
        "ten times the weight decay",
        UPDATING,
        "tuple(ops.operand(value, is_fp64) for value in values)",
        "tuple(ops.operand(value if value >= 0.1 else 10 * value, is_fp64) for value in values)",
        f"{UPDATE}updates_follow_the_formulas",
        "resnet50",
    ),
    fault(
        "clipping comes after the weight decay",
        UPDATING,
        "weight, gradient * multiplier, *others)",
        "weight, gradient * multiplier, others[0], others[1] * multiplier, *others[2:])",
        f"{UPDATE}updates_follow_the_formulas",
        "arcface",
    ),
    fault(
        "dampening as large as the momentum",
        SGD,
        "lr * lr_scale, direction, self.momentum)",
        "lr * lr_scale, direction * (1 - self.momentum), self.momentum)",
        f"{UPDATE}updates_follow_the_formulas",
        "deeplabv3plus",
    ),
    fault(
        "momentum is 0.99",
        SGD,
        "float(spec.momentum)",
        "0.99",
        f"{UPDATE}updates_follow_the_formulas",
        "resnet50",
    ),
    fault(
        "Nesterov momentum",
        "zoo/optim/sgd.py",
        "return momentum, (momentum,)",
        "return math.decayed(gradient, weight, decay) + math.number(self.momentum, weight) * momentum, (momentum,)",
        f"{OPTIMIZERS}updates_in_an_exact_run",
        "resnet50",
    ),
    fault(
        "the factor of clipping is squared",
        UPDATING,
        "mint.maximum(clipped_norm / self.clip_norm, scalar(1.0))",
        "mint.square(mint.maximum(clipped_norm / self.clip_norm, scalar(1.0)))",
        f"{UPDATE}updates_follow_the_formulas",
        "arcface",
    ),
    fault(
        "the largest element is clipped instead of the norm",
        UPDATING,
        "clipped_norm = norm if self.clip_sharded else model_norm",
        "clipped_norm = ops.abs(flat).max() / scale",
        f"{UPDATE}updates_follow_the_formulas",
        "arcface",
    ),
    fault(
        "sharded gradients are not clipped",
        UPDATING,
        "shard_multiplier = clipping_multiplier if self.clip_sharded else multiplier",
        "shard_multiplier = multiplier",
        f"{MARGIN}updates_follow_the_formulas",
        "arcface",
    ),
    fault(
        "gradients are not unscaled",
        UPDATING,
        "multiplier = clipping_multiplier = 1 / scale",
        "multiplier = clipping_multiplier = scale / scale",
        f"{CLIP}the_loss_scale_is_divided_out_of_an_update_that_is_not_clipped",
    ),
    fault(
        "the last micro-batch overwrites the gradients",
        UPDATING,
        "self.map(mint.add, values[:half], values[half:])",
        "values[half:]",
        f"{UPDATE}gradients_sum_over_uneven_micro_batches",
        "resnet50",
        ("train.accumulate=2",),
    ),
    fault(
        "the momentum of a checkpoint is not loaded",
        TRAINER,
        "            dtype = mindspore.dtype_to_nptype(targets[key].dtype)",
        "            if key.startswith('optimizer'):\n                continue\n"
        "            dtype = mindspore.dtype_to_nptype(targets[key].dtype)",
        f"{STATE}a_loaded_state_continues_bit_for_bit",
        "tsm",
    ),
    fault(
        "an update is not skipped",
        UPDATING,
        "        elif finite:\n",
        "        elif norm is not None:\n",
        f"{UPDATE}an_update_without_finite_gradient_is_skipped",
    ),
    fault(
        "the loss scale grows with every update",
        "zoo/trainer/loss_scale.py",
        "good >= GROWTH_INTERVAL",
        "good <= GROWTH_INTERVAL",
        f"{STATE}the_loss_scale_halves_and_doubles",
    ),
    fault(
        "the mean of pixels is subtracted before they are scaled",
        "zoo/trainer/mindspore/preprocessing.py",
        "x.astype(self.dtype) * self.factor + self.offset",
        "(x.astype(self.dtype) + self.offset) * self.factor",
        f"{UPDATE}pixels_are_normalized_by_the_field",
        "resnet50",
    ),
    fault(
        "frozen normalizations use the statistics of the batch",
        TRAINER,
        "cell.use_batch_statistics = False",
        "cell.use_batch_statistics = True",
        f"{UPDATE}updates_with_a_frozen_normalization_follow_the_formulas",
        "tsm",
        ("model.partial_bn=true",),
    ),
    fault(
        "the gradient is a sum over ranks",
        "zoo/trainer/mindspore/parallel.py",
        "self.concat(self.map(flatten, bucket)) / self.world_size",
        "self.concat(self.map(flatten, bucket))",
        f"{RANK}two_ranks_with_a_frozen_normalization_and_micro_batches",
    ),
    fault(
        "running statistics are sums over ranks",
        "zoo/trainer/mindspore/parallel.py",
        ".asnumpy() / flat.dtype.type(world_size)",
        ".asnumpy()",
        f"{RANK}statistics_of_two_ranks_are_averaged",
    ),
    fault(
        "synchronized normalization counts the own samples",
        SYNC_BN,
        "x.size // x.shape[1] * self.world_size",
        "x.size // x.shape[1]",
        f"{RANK}two_ranks_with_synchronized_normalization",
    ),
    fault(
        "synchronized normalization keeps the biased variance",
        SYNC_BN,
        "variance * (count / max(count - 1, 1))",
        "variance",
        f"{UPDATE}updates_with_synchronized_normalization_follow_the_formulas",
        "resnet50",
        ("train.sync_bn=true",),
    ),
    fault(
        "synchronized normalization keeps a tenth of the old statistics",
        SYNC_BN,
        "old_weight = 1 - self.momentum ",
        "old_weight = self.momentum ",
        f"{UPDATE}updates_with_synchronized_normalization_follow_the_formulas",
        "resnet50",
        ("train.sync_bn=true",),
    ),
]
