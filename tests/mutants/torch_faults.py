"""Faults in the PyTorch files."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import CLIP, FORWARD, MARGIN, MODEL, OBJECTIVE, OPTIMIZERS, RANK, STATE, UPDATE

TRAINER = "zoo/trainer/torch/trainer.py"
MARGINS = "zoo/trainer/torch/margin_logits.py"
OBJECTIVES = "zoo/trainer/torch/objectives.py"
OPTIMIZER = "zoo/trainer/torch/optimizer.py"
SGD = "zoo/trainer/torch/optimizers/sgd.py"
CROSS_ENTROPY = "zoo/trainer/torch/losses/classify/cross_entropy.py"
PIXEL_CROSS_ENTROPY = "zoo/trainer/torch/losses/segment/cross_entropy.py"
COMBINED = "zoo/trainer/torch/losses/face/combined.py"
SYNC_BN = "zoo/trainer/torch/sync_batchnorm.py"
RESNET = "zoo/models/resnet/torch.py"
TSM = "zoo/models/tsm/torch.py"
DEEPLAB = "zoo/models/deeplabv3plus/torch.py"
ARCFACE = "zoo/models/arcface/torch.py"

fault = partial(Fault, "torch")

UPDATES = [
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
        "fused(tensors, step, spec.momentum)",
        "fused(tensors, step, 0.8)",
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
        "nesterov=nesterov,",
        "nesterov=True,",
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
        "self.objective.total(output, batch) / count",
        "self.objective.total(output, batch) / self.objective.count(batch) / len(micro_batches)",
        f"{UPDATE}gradients_sum_over_uneven_micro_batches",
    ),
    fault(
        "the momentum of a checkpoint is not loaded",
        TRAINER,
        "targets = {**self.tensors, **self.optimizer.named_slots()}",
        "targets = {**{key: slot.clone() for key, slot in self.optimizer.named_slots().items()}, **self.tensors}",
        f"{STATE}a_loaded_state_continues_bit_for_bit",
        "resnet50",
    ),
    fault(
        "an update is not skipped",
        SGD,
        "found_inf = (~step.finite).float()",
        "found_inf = torch.zeros(())",
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
        "zoo/trainer/torch/scaler.py",
        "self.scale * BACKOFF_FACTOR",
        "self.scale",
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
        "    flat /= dist.get_world_size()\n",
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
]

GRAPHS = [
    fault(
        "gradients of micro-batches share the memory of a CUDA graph",
        TRAINER,
        "if self.records_graphs and tensor.grad is not None:",
        "if self.records_graphs and tensor.grad is None:",
        "tests/zoo/trainer/torch/test_compiling.py::test_micro_batches_add_up_although_a_graph_overwrites_gradients",
    ),
    fault(
        "the decay of AdamW is coupled as well",
        "zoo/trainer/torch/optimizers/adamw.py",
        "    mean = spec.beta1 * tensors.slots[0]",
        "    gradient = gradient + tensors.weight_decay * tensors.weight\n    mean = spec.beta1 * tensors.slots[0]",
        f"{OPTIMIZERS}updates_in_fp32",
        "tsm",
        ("optim.name=adamw",),
    ),
    fault(
        "no bias correction of the mean",
        "zoo/trainer/torch/optimizers/adamw.py",
        "mean / step.bias_correction(spec.beta1).to(mean.dtype)",
        "mean * 1",
        f"{OPTIMIZERS}updates_in_fp32",
        "resnet50",
        ("optim.name=adamw",),
    ),
]

LOSSES = [
    fault(
        "no label smoothing",
        CROSS_ENTROPY,
        ', reduction="sum", label_smoothing=self.smoothing',
        ', reduction="sum"',
        f"{UPDATE}label_smoothing_is_spread_over_all_classes",
        "resnet50",
    ),
    fault(
        "the auxiliary loss has weight 1",
        OBJECTIVES,
        "total + self.settings.aux_weight * sum(",
        "total + sum(",
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "a mean over all pixels instead of labelled ones",
        PIXEL_CROSS_ENTROPY,
        "return (labels != IGNORE_INDEX).sum()",
        "return torch.tensor(labels.numel())",
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
        ("task.average=valid",),
    ),
    fault(
        "one hard pixel too many",
        PIXEL_CROSS_ENTROPY,
        "ranked[min(kept, len(ranked)) - 1]",
        "ranked[min(kept, len(ranked) - 1)]",
        f"{OBJECTIVE}losses_of_the_hardest_pixels",
        "deeplabv3plus",
        ("task.ohem_kept=500",),
    ),
    fault(
        "the margin's derivative is 1",
        MARGINS,
        "    if settings.straight_through:\n        slopes",
        "    if True:\n        slopes",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
    ),
    fault(
        "the margin is subtracted from the angle",
        COMBINED,
        "m1 * torch.atan2(sine, cosine) + m2",
        "m1 * torch.atan2(sine, cosine) - m2",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
    ),
    fault(
        "the angle is that of the sine",
        COMBINED,
        "torch.atan2(sine, cosine)",
        "torch.atan2(cosine, sine)",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
    ),
    fault(
        "the class filter comes after the margin",
        MARGINS,
        """        is_filtered = cosines > settings.interclass
        cosines.masked_fill_(is_filtered, 0)
    _scatter_targets(cosines, target_rows, target_cosines)
""",
        """        _scatter_targets(cosines, target_rows, target_cosines)
        is_filtered = cosines > settings.interclass
        cosines.masked_fill_(is_filtered, 0)
    else:
        _scatter_targets(cosines, target_rows, target_cosines)
""",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
        ("task.interclass=0.1",),
    ),
    fault(
        "the gradient of the class matrix keeps its radial part",
        MARGINS,
        "grad_weight.addcmul_(weight, (-radial * inverse_norms * inverse_norms)[:, None])",
        "grad_weight.mul_(1)",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
    ),
    fault(
        "drawn rows have no momentum",
        OPTIMIZER,
        "                    slot[shard.index] = row\n",
        "                    pass\n",
        f"{MARGIN}partial_fc_updates_the_drawn_rows_alone",
        "arcface",
        ("task.sample_rate=0.5",),
    ),
    fault(
        "the first rows are updated instead of the drawn ones",
        OPTIMIZER,
        "shard.values.detach()[shard.index] = rows",
        "shard.values.detach()[: len(shard.index)] = rows",
        f"{MARGIN}partial_fc_updates_the_drawn_rows_alone",
        "arcface",
        ("task.sample_rate=0.5",),
    ),
    fault(
        "drawn rows are not clipped",
        TRAINER,
        "Divisors(clipped, clipped if self.plan.clip_sharded else scale)",
        "Divisors(clipped, scale)",
        f"{CLIP}the_drawn_rows_are_clipped_with_the_model",
        "arcface",
        ("task.sample_rate=0.5",),
    ),
]

MODELS = [
    fault(
        "the stride is on the first 1x1 convolution (v1)",
        RESNET,
        """        self.conv1 = conv1x1(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width, eps=eps)
        self.conv2 = conv3x3(width, width, stride, dilation, same)""",
        """        self.conv1 = conv1x1(inputs, width, stride)
        self.bn1 = nn.BatchNorm2d(width, eps=eps)
        self.conv2 = conv3x3(width, width, 1, dilation, same)""",
        f"{FORWARD}a_dilated_resnet_of_bottlenecks",
        "resnet50",
        ("model.depth=50",),
    ),
    fault(
        "no ReLU after the sum of a basic block",
        RESNET,
        """        return F.relu(residual + self.downsample(x), inplace=True)


class Bottleneck""",
        """        return residual + self.downsample(x)


class Bottleneck""",
        f"{FORWARD}a_resnet_of_basic_blocks",
        "resnet50",
    ),
    fault(
        "max pooling pads at the end only",
        RESNET,
        "return F.max_pool2d(x, 3, 2, 1)",
        "return F.max_pool2d(x, 3, 2, 0, ceil_mode=True)",
        f"{FORWARD}a_resnet_of_basic_blocks",
        "tsm",
    ),
    fault(
        "the maximum over all pixels instead of the mean",
        RESNET,
        "self.fc(x.mean((2, 3)))",
        "self.fc(x.amax((2, 3)))",
        f"{FORWARD}a_resnet_of_basic_blocks",
        "resnet50",
        ("data.size=64",),
    ),
    fault(
        "a normalization with epsilon 1e-3",
        RESNET,
        "self.bn1 = nn.BatchNorm2d(arch.width, eps=arch.bn_eps)",
        "self.bn1 = nn.BatchNorm2d(arch.width, eps=1e-3)",
        f"{FORWARD}a_resnet_of_basic_blocks",
        "resnet50",
    ),
    fault(
        "a normalization with momentum 0.9, as other frameworks have it",
        DEEPLAB,
        "self.bn = nn.BatchNorm2d(outputs)",
        "self.bn = nn.BatchNorm2d(outputs, momentum=0.9)",
        f"{FORWARD}a_deeplab_of_mmsegmentation",
        "deeplabv3plus",
    ),
    fault(
        "the shift goes the other way",
        TSM,
        "(first, second) if future_first else (second, first)",
        "(second, first) if future_first else (first, second)",
        f"{MODEL}a_shift_by_hand",
        "tsm",
    ),
    fault(
        "the shift crosses the clips of a batch",
        TSM,
        "x.unflatten(0, (-1, segments)), out.unflatten(0, (-1, segments))",
        "x.unflatten(0, (1, -1)), out.unflatten(0, (1, -1))",
        f"{MODEL}the_gradient_of_a_shift_is_the_opposite_shift",
        "tsm",
    ),
    fault(
        "the last frame is repeated instead of zeros",
        TSM,
        "shifted[:, -1, from_next] = 0",
        "shifted[:, -1, from_next] = clips[:, -1, from_next]",
        f"{MODEL}a_shift_by_hand",
        "tsm",
    ),
    fault(
        "the gradient of a shift is shifted the same way",
        TSM,
        "ctx.arguments = segments, fold, not future_first",
        "ctx.arguments = segments, fold, future_first",
        f"{MODEL}the_gradient_of_a_shift_is_the_opposite_shift",
        "tsm",
    ),
    fault(
        "the shortcut is shifted too",
        TSM,
        "x = block(x, self.shift(x, segments))",
        "x = block(self.shift(x, segments))",
        f"{FORWARD}a_tsm_that_shifts_residual_branches",
        "tsm",
    ),
    fault(
        "kept features are not scaled up in dropout",
        TSM,
        "dropout / (1 - self.dropout_rate)",
        "dropout",
        f"{FORWARD}a_tsm_that_shifts_residual_branches",
        "tsm",
    ),
    fault(
        "attention is scaled by the square root of the channels",
        TSM,
        "(query @ key).softmax(-1)",
        "(query @ key / query.shape[-1] ** 0.5).softmax(-1)",
        f"{FORWARD}a_non_local_block",
        "tsm",
        ("model.depth=50", "model.non_local=true", "data.size=32"),
    ),
    fault(
        "the temporal pool lacks the previous frame",
        TSM,
        "torch.maximum(torch.maximum(clips[:, ::2], clips[:, 1::2]), before)",
        "torch.maximum(clips[:, ::2], clips[:, 1::2])",
        f"{MODEL}a_temporal_pool_by_hand",
        "tsm",
        ("model.temporal_pool=true",),
    ),
    fault(
        "corners are aligned in every resize",
        DEEPLAB,
        "align_corners=align_corners)",
        "align_corners=True)",
        f"{FORWARD}a_deeplab_of_mmsegmentation",
        "deeplabv3plus",
    ),
    fault(
        "the image pooling comes last in the pyramid",
        DEEPLAB,
        "[pooled] + branches if self.is_mmseg else branches + [pooled]",
        "branches + [pooled]",
        f"{FORWARD}a_deeplab_of_mmsegmentation",
        "deeplabv3plus",
    ),
    fault(
        "no ReLU between depthwise and pointwise",
        DEEPLAB,
        "relu=is_mmseg)",
        "relu=False)",
        f"{FORWARD}a_deeplab_of_mmsegmentation",
        "deeplabv3plus",
    ),
    fault(
        "kept channels are scaled up twice in dropout",
        DEEPLAB,
        ".to(x.dtype) / (1 - rate)",
        ".to(x.dtype) / (1 - rate) ** 2",
        f"{FORWARD}a_deeplab_of_mmsegmentation",
        "deeplabv3plus",
    ),
    fault(
        "ReLU instead of PReLU",
        ARCFACE,
        "residual = self.prelu(self.bn2(self.conv1(self.bn1(x))))",
        "residual = self.bn2(self.conv1(self.bn1(x))).relu()",
        f"{FORWARD}an_iresnet_of_insightface",
        "arcface",
    ),
    fault(
        "epsilon is 2e-5 in both variants",
        ARCFACE,
        "nn.BatchNorm2d(channels, arch.epsilon)",
        "nn.BatchNorm2d(channels, 2e-5)",
        f"{FORWARD}the_epsilon_of_an_iresnet",
        "arcface",
    ),
    fault(
        "features are flattened with channels last",
        ARCFACE,
        "self.bn2(x).flatten(1)",
        "self.bn2(x).movedim(1, -1).flatten(1)",
        f"{FORWARD}an_iresnet_of_insightface",
        "arcface",
    ),
]

FAULTS = [*UPDATES, *GRAPHS, *LOSSES, *MODELS]
