"""Faults in updates of the trainer of PyTorch, their parts and their state."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import CLIP, RANK, STATE, UPDATE

TRAINER = "zoo/trainer/torch/trainer.py"
OPTIMIZER = "zoo/trainer/torch/optimizer.py"
SGD = "zoo/trainer/torch/kernels.py"
SYNC_BN = "zoo/trainer/torch/sync_batchnorm.py"

fault = partial(Fault, "torch")

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
        "no weight decay",
        OPTIMIZER,
        "lr * lr_scale, weight_decay, divisor",
        "lr * lr_scale, 0.0, divisor",
        f"{UPDATE}updates_follow_the_formulas",
        "resnet50",
    ),
    fault(
        "momentum is 0.8",
        SGD,
        "momentum=spec.momentum",
        "momentum=0.8",
        f"{UPDATE}updates_follow_the_formulas",
        "resnet50",
    ),
    fault(
        "dampening as large as 1 - momentum",
        SGD,
        "dampening=0.0,",
        "dampening=0.1,",
        f"{UPDATE}updates_follow_the_formulas",
        "tsm",
    ),
    fault(
        "Nesterov momentum",
        SGD,
        'nesterov=spec.name == "sgd_nesterov"',
        "nesterov=True",
        f"{UPDATE}updates_follow_the_formulas",
        "resnet50",
    ),
    fault(
        "the factor of clipping is squared",
        TRAINER,
        "torch.clamp(clipped_norm / self.plan.clip_norm, min=1.0)",
        "torch.clamp(clipped_norm / self.plan.clip_norm, min=1.0).square()",
        f"{UPDATE}updates_follow_the_formulas",
        "arcface",
    ),
    fault(
        "clipping enlarges small gradients",
        TRAINER,
        "torch.clamp(clipped_norm / self.plan.clip_norm, min=1.0)",
        "clipped_norm / self.plan.clip_norm",
        f"{CLIP}a_gradient_within_the_limit_is_not_changed",
        "resnet50",
        ("optim.clip_norm=1000",),
    ),
    fault(
        "the norm is that of the scaled gradient",
        TRAINER,
        "torch.nn.utils.get_total_norm(gradients) / scale",
        "torch.nn.utils.get_total_norm(gradients)",
        f"{STATE}the_loss_scale_is_divided_out_of_the_gradient",
    ),
    fault(
        "the gradient is not unscaled",
        TRAINER,
        "        divisors = Divisors(scale, scale)\n",
        "        divisors = Divisors(torch.ones_like(scale), scale)\n",
        f"{CLIP}the_loss_scale_is_divided_out_of_an_update_that_is_not_clipped",
    ),
    fault(
        "gradients of earlier updates are kept",
        TRAINER,
        "        self._clear_gradients()\n",
        "        self._clear_gradients() if step == 0 else None\n",
        f"{UPDATE}updates_follow_the_formulas",
        "resnet50",
    ),
    fault(
        "a mean of the means of micro-batches",
        TRAINER,
        "self.objective.total(output, *targets) / count",
        "self.objective.total(output, *targets) / self.objective.count(batch) / len(micro_batches)",
        f"{UPDATE}gradients_sum_over_uneven_micro_batches",
    ),
    fault(
        "the momentum of a checkpoint is not loaded",
        TRAINER,
        "**self.tensors, **self.optimizer.named_slots(), **",
        "**{key: slot.clone() for key, slot in self.optimizer.named_slots().items()}, **self.tensors, **",
        f"{STATE}a_loaded_state_continues_bit_for_bit",
        "resnet50",
    ),
    fault(
        "an update is not skipped",
        SGD,
        "found_inf = (~finite).float()\n    for members in with_same_numbers(tensors):\n        fused_sgd(",
        "found_inf = torch.zeros(())\n    for members in with_same_numbers(tensors):\n        fused_sgd(",
        f"{UPDATE}an_update_without_finite_gradient_is_skipped",
    ),
    fault(
        "pixels are not centered",
        TRAINER,
        ".mul_(scale).add_(offset)",
        ".mul_(scale)",
        f"{UPDATE}pixels_are_normalized_by_the_field",
        "resnet50",
    ),
    fault(
        "pixels are BGR",
        TRAINER,
        ".mul_(scale).add_(offset).movedim(-1, -3)",
        ".mul_(scale).add_(offset).movedim(-1, -3).flip(-3)",
        f"{UPDATE}pixels_are_normalized_by_the_field",
        "tsm",
    ),
    fault(
        "frozen normalizations use the statistics of the batch",
        TRAINER,
        "                module.eval()",
        "                module.train()",
        f"{UPDATE}updates_with_a_frozen_normalization_follow_the_formulas",
        "tsm",
        ("model.partial_bn=true",),
    ),
    fault(
        "an evaluation in training mode",
        TRAINER,
        "        self.model.eval()\n        prediction",
        "        self.model.train()\n        prediction",
        f"{UPDATE}updates_follow_the_formulas",
        "resnet50",
    ),
    fault(
        "the loss scale does not shrink",
        "zoo/trainer/loss_scale.py",
        "scale * BACKOFF_FACTOR",
        "scale",
        f"{STATE}the_loss_scale_halves_and_doubles",
    ),
    fault(
        "the loss is not multiplied by the number of ranks",
        TRAINER,
        "self.scaler.scale * self.world_size",
        "self.scaler.scale",
        f"{RANK}two_ranks_with_synchronized_normalization",
    ),
    fault(
        "running statistics are sums over ranks",
        "zoo/trainer/torch/parallel.py",
        "    flat /= world_size\n",
        "",
        f"{RANK}statistics_of_two_ranks_are_averaged",
    ),
    fault(
        "synchronized normalization counts the own samples",
        SYNC_BN,
        "x.numel() // x.shape[1] * world_size",
        "x.numel() // x.shape[1]",
        f"{RANK}two_ranks_with_synchronized_normalization",
    ),
    fault(
        "synchronized normalization keeps the biased variance",
        SYNC_BN,
        "(variance * (count / max(count - 1, 1)))",
        "variance",
        f"{UPDATE}updates_with_synchronized_normalization_follow_the_formulas",
        "resnet50",
        ("train.sync_bn=true",),
    ),
    fault(
        "the gradient of synchronized normalization lacks the variance's part",
        SYNC_BN,
        ".mul_(-mean_product)",
        ".mul_(0)",
        f"{UPDATE}updates_with_synchronized_normalization_follow_the_formulas",
        "resnet50",
        ("train.sync_bn=true",),
    ),
    fault(
        "gradients of micro-batches share the memory of a CUDA graph",
        TRAINER,
        "if self.records_graphs and tensor.grad is not None:",
        "if self.records_graphs and tensor.grad is None:",
        "tests/zoo/trainer/torch/test_compiling.py::test_micro_batches_add_up_although_a_graph_overwrites_gradients",
    ),
]
