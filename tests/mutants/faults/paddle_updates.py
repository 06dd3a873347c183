"""Faults in updates of the trainer of Paddle, their parts and their state."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import CLIP, MARGIN, RANK, STATE, UPDATE

TRAINER = "zoo/trainer/paddle/trainer.py"
OPTIMIZER = "zoo/trainer/paddle/optimizer.py"
SGD = "zoo/trainer/paddle/kernels.py"
SYNC_BN = "zoo/trainer/paddle/sync_batchnorm.py"

fault = partial(Fault, "paddle")

FAULTS = [
    fault(
        "factors of the learning rate are ignored",
        OPTIMIZER,
        "slots, lr * lr_scale, weight_decay",
        "slots, lr, weight_decay",
        f"{UPDATE}updates_follow_the_formulas",
        "tsm",
    ),
    fault(
        "half the weight decay",
        OPTIMIZER,
        "lr * lr_scale, weight_decay, factor",
        "lr * lr_scale, weight_decay / 2, factor",
        f"{UPDATE}updates_follow_the_formulas",
        "resnet50",
    ),
    fault(
        "no weight decay",
        SGD,
        '["l2_decay"] * len(group)',
        '[""] * len(group)',
        f"{UPDATE}updates_follow_the_formulas",
        "resnet50",
    ),
    fault(
        "weight decay on every tensor",
        OPTIMIZER,
        "lr * lr_scale, weight_decay, factor",
        "lr * lr_scale, max(self.plan.param_group(name)[1] for name in self.parameters), factor",
        f"{UPDATE}updates_follow_the_formulas",
        "resnet50",
    ),
    fault(
        "the decay is clipped with the gradient",
        OPTIMIZER,
        "lr * lr_scale, weight_decay, factor",
        "lr * lr_scale, weight_decay * float(factor), factor",
        f"{UPDATE}updates_follow_the_formulas",
        "arcface",
    ),
    fault(
        "Nesterov momentum",
        SGD,
        'nesterov,\n            ["l2',
        'True,\n            ["l2',
        f"{UPDATE}updates_follow_the_formulas",
        "deeplabv3plus",
    ),
    fault(
        "momentum is 0.8",
        SGD,
        "merged(tensors, spec.momentum)\n",
        "merged(tensors, 0.8)\n",
        f"{UPDATE}updates_follow_the_formulas",
        "deeplabv3plus",
    ),
    fault(
        "the norm is the sum of the norms of the tensors",
        OPTIMIZER,
        "_C_ops.squared_l2_norm(gradient) for gradient in gradients]).sqrt()",
        "_C_ops.squared_l2_norm(gradient).sqrt() for gradient in gradients])",
        f"{UPDATE}updates_follow_the_formulas",
        "arcface",
    ),
    fault(
        "clipping enlarges small gradients",
        TRAINER,
        "(self.plan.clip_norm / norm.clip(min=EPS)).clip(max=1.0)",
        "(self.plan.clip_norm / norm.clip(min=EPS))",
        f"{CLIP}a_gradient_within_the_limit_is_not_changed",
        "resnet50",
        ("optim.clip_norm=1000",),
    ),
    fault(
        "sharded gradients are not clipped",
        TRAINER,
        "(clip_factor if self.plan.clip_sharded else paddle.ones_like(clip_factor)) / shard_scale",
        "paddle.ones_like(clip_factor) / shard_scale",
        f"{MARGIN}updates_follow_the_formulas",
        "arcface",
    ),
    fault(
        "gradients are not unscaled",
        TRAINER,
        "Factors(clip_factor / scale, shard_factor)",
        "Factors(clip_factor, shard_factor)",
        f"{CLIP}the_loss_scale_is_divided_out_of_an_update_that_is_not_clipped",
    ),
    fault(
        "gradients of earlier updates are kept",
        TRAINER,
        "            parameter.clear_gradient(False)\n",
        "            pass\n",
        f"{UPDATE}updates_follow_the_formulas",
        "resnet50",
    ),
    fault(
        "the momentum of a checkpoint is not loaded",
        TRAINER,
        "targets = {**self._named_slots(), **{",
        "targets = {**{key: (name, slot.clone()) for key, (name, slot) in self._named_slots().items()}, **{",
        f"{STATE}a_loaded_state_continues_bit_for_bit",
        "deeplabv3plus",
    ),
    fault(
        "an update is not skipped",
        TRAINER,
        "        finite = paddle.isfinite(norm)\n",
        "        finite = paddle.full((), True)\n",
        f"{UPDATE}an_update_without_finite_gradient_is_skipped",
    ),
    fault(
        "a bad update is not skipped on a GPU",
        SGD,
        "paddle.where_(skipped.expand(buffer.shape), buffer, total)",
        "paddle.assign(total, buffer)",
        "tests/zoo/trainer/paddle/cases.py::case_an_update_on_the_device_is_that_on_the_host",
    ),
    fault(
        "activations that are computed again move the running statistics",
        "zoo/trainer/paddle/checkpointing.py",
        "parameters[name] = statistic.clone()",
        "parameters[name] = statistic",
        "tests/zoo/trainer/checkpointing_cases.py::case_checkpointed_updates_are_the_same",
    ),
    fault(
        "pixels are not centered",
        TRAINER,
        "x.astype(self.dtype) * scale + offset",
        "x.astype(self.dtype) * scale",
        f"{UPDATE}pixels_are_normalized_by_the_field",
        "tsm",
    ),
    fault(
        "frozen normalizations use the statistics of the batch",
        TRAINER,
        "                layer.eval()",
        "                layer.train()",
        f"{UPDATE}updates_with_a_frozen_normalization_follow_the_formulas",
        "tsm",
        ("model.partial_bn=true",),
    ),
    fault(
        "the running variance is biased",
        "zoo/trainer/paddle/batchnorm.py",
        "return float(variance) < 1.5",
        "return False",
        f"{UPDATE}updates_follow_the_formulas",
        "resnet50",
    ),
    fault(
        "synchronized normalization weighs the new statistics with the momentum",
        SYNC_BN,
        'self._momentum * running + (1 - self._momentum) * new.astype("float32")',
        '(1 - self._momentum) * running + self._momentum * new.astype("float32")',
        f"{UPDATE}updates_with_synchronized_normalization_follow_the_formulas",
        "resnet50",
        ("train.sync_bn=true",),
    ),
    fault(
        "synchronized normalization counts the own samples",
        SYNC_BN,
        "x.size // x.shape[1] * ranks",
        "x.size // x.shape[1]",
        f"{RANK}two_ranks_with_synchronized_normalization",
    ),
    fault(
        "running statistics are sums over ranks",
        "zoo/trainer/paddle/parallel.py",
        "_unflatten_into(tensors, flat / dist.get_world_size())",
        "_unflatten_into(tensors, flat)",
        f"{RANK}statistics_of_two_ranks_are_averaged",
    ),
    fault(
        "the mean is taken over the own samples",
        TRAINER,
        "return self.world_size * sum(counts)",
        "return sum(counts)",
        f"{RANK}two_ranks_with_a_frozen_normalization_and_micro_batches",
    ),
    fault(
        "weights of linear layers are stored transposed",
        "zoo/trainer/paddle/names.py",
        'np.array(array.T if transpose else array, order="C")',
        'np.array(array, order="C")',
        f"{STATE}the_state_dict_is_the_same_in_every_framework",
        "resnet50",
    ),
]
