"""Faults in the MindSpore files."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import CLIP, FORWARD, MARGIN, MODEL, OBJECTIVE, OPTIMIZERS, RANK, STATE, UPDATE

TRAINER = "zoo/trainer/mindspore/trainer.py"
UPDATING = "zoo/trainer/mindspore/update.py"
SGD = "zoo/trainer/mindspore/optimizers/sgd.py"
MARGINS = "zoo/trainer/mindspore/margin_logits.py"
OBJECTIVES = "zoo/trainer/mindspore/objectives.py"
CROSS_ENTROPY = "zoo/trainer/mindspore/losses/classify/cross_entropy.py"
PIXEL_CROSS_ENTROPY = "zoo/trainer/mindspore/losses/segment/cross_entropy.py"
COMBINED = "zoo/trainer/mindspore/losses/face/combined.py"
SHARD = "zoo/trainer/mindspore/shard.py"
SYNC_BN = "zoo/trainer/mindspore/sync_batchnorm.py"
RESNET = "zoo/models/resnet/mindspore.py"
TSM = "zoo/models/tsm/mindspore.py"
DEEPLAB = "zoo/models/deeplabv3plus/mindspore.py"
ARCFACE = "zoo/models/arcface/mindspore.py"

fault = partial(Fault, "mindspore")

UPDATES = [
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
        "tuple(number(weight_decay) for",
        "tuple(number(10 * weight_decay) for",
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
        "self.number(plan.optimizer.momentum)",
        "self.number(0.99)",
        f"{UPDATE}updates_follow_the_formulas",
        "resnet50",
    ),
    fault(
        "the factor of clipping is squared",
        UPDATING,
        "ops.maximum(clipped_norm / self.clip_norm, scalar(1.0))",
        "ops.square(ops.maximum(clipped_norm / self.clip_norm, scalar(1.0)))",
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
        "self.map(ops.add, values[:half], values[half:])",
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
        "zoo/trainer/mindspore/scaler.py",
        "good_steps >= self.growth_interval",
        "good_steps <= self.growth_interval",
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
    fault(
        "the decay of AdamW is coupled as well",
        "zoo/trainer/mindspore/optimizers/adamw.py",
        "        mean = self.beta1 * mean",
        "        gradient = gradient + weight_decay * weight\n        mean = self.beta1 * mean",
        f"{OPTIMIZERS}updates_in_fp32",
        "tsm",
        ("optim.name=adamw",),
    ),
    fault(
        "no bias correction of the mean",
        "zoo/trainer/mindspore/optimizers/adamw.py",
        "mean / self.bias_correction(self.log_beta1, applied)",
        "mean * 1",
        f"{OPTIMIZERS}updates_in_fp32",
        "resnet50",
        ("optim.name=adamw",),
    ),
]

LOSSES = [
    fault(
        "label smoothing over K - 1 classes",
        CROSS_ENTROPY,
        "self.smoothing / logits.shape[1] * losses.sum()",
        "self.smoothing / (logits.shape[1] - 1) * losses.sum()",
        f"{UPDATE}label_smoothing_is_spread_over_all_classes",
        "resnet50",
    ),
    fault(
        "no label smoothing",
        CROSS_ENTROPY,
        "self.is_smoothed = settings.label_smoothing > 0",
        "self.is_smoothed = settings.label_smoothing > 1",
        f"{UPDATE}label_smoothing_is_spread_over_all_classes",
        "resnet50",
    ),
    fault(
        "ignored pixels are pixels of class 0",
        PIXEL_CROSS_ENTROPY,
        "(ops.log(ops.exp(shifted).sum(1)) - target_logits) * valid.astype(self.dtype)",
        "ops.log(ops.exp(shifted).sum(1)) - target_logits",
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "the auxiliary loss has weight 1",
        OBJECTIVES,
        "total + self.aux_weight * self.aux_loss",
        "total + self.aux_loss",
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "the margin's derivative is 1",
        MARGINS,
        "        if self.settings.straight_through:\n            slopes",
        "        if True:\n            slopes",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
    ),
    fault(
        "the sine lacks its square root",
        COMBINED,
        "sine = ops.sqrt((1 - cosine) * (1 + cosine))",
        "sine = (1 - cosine) * (1 + cosine)",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
    ),
    fault(
        "filtered classes keep their gradient",
        MARGINS,
        "exps if is_filtered is None else self.fill_zeros(exps, is_filtered)",
        "exps",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
        ("task.interclass=0.1",),
    ),
    fault(
        "drawn rows have no weight decay",
        SHARD,
        "self.is_decayed = plan.param_group(name).weight_decay > 0",
        "self.is_decayed = False",
        f"{MARGIN}partial_fc_updates_the_drawn_rows_alone",
        "arcface",
        ("task.sample_rate=0.5",),
    ),
    fault(
        "the class matrix has the learning rate of the model",
        SHARD,
        "self.optimizer.formula(lr * self.lr_scale, applied",
        "self.optimizer.formula(lr, applied",
        f"{MARGIN}partial_fc_updates_the_drawn_rows_alone",
    ),
]

MODELS = [
    fault(
        "3x3 convolutions of stride 2 pad as MindSpore does by default",
        RESNET,
        'return nn.Conv2d(inputs, outputs, 3, stride, "pad", dilation, dilation, has_bias=False)',
        'return nn.Conv2d(inputs, outputs, 3, stride, "same", 0, dilation, has_bias=False)',
        f"{FORWARD}a_resnet_of_basic_blocks",
        "resnet50",
    ),
    fault(
        "max pooling pads as MindSpore does by default",
        DEEPLAB,
        'self.maxpool = nn.MaxPool2d(3, 2, "pad", 1)',
        'self.maxpool = nn.MaxPool2d(3, 2, "same")',
        f"{FORWARD}a_deeplab_of_mmsegmentation",
        "deeplabv3plus",
    ),
    fault(
        "a normalization with momentum 0.1, as PyTorch has it",
        DEEPLAB,
        "self.bn = nn.BatchNorm2d(outputs)",
        "self.bn = nn.BatchNorm2d(outputs, momentum=0.1)",
        f"{FORWARD}a_deeplab_of_mmsegmentation",
        "deeplabv3plus",
    ),
    fault(
        "normalizations with momentum 0.99",
        ARCFACE,
        "nn.BatchNorm2d(channels, arch.epsilon)",
        "nn.BatchNorm2d(channels, arch.epsilon, 0.99)",
        f"{FORWARD}an_iresnet_of_insightface",
        "arcface",
    ),
    fault(
        "PReLU after the sum",
        ARCFACE,
        "return self.bn3(self.conv2(residual)) + self.downsample(x)",
        "return self.prelu(self.bn3(self.conv2(residual)) + self.downsample(x))",
        f"{FORWARD}an_iresnet_of_insightface",
        "arcface",
    ),
    fault(
        "no ReLU in the stem",
        RESNET,
        "x = ops.relu(self.bn1(self.conv1(x)))\n        return self.maxpool(x)",
        "x = self.bn1(self.conv1(x))\n        return self.maxpool(x)",
        f"{FORWARD}a_resnet_of_basic_blocks",
        "tsm",
    ),
    fault(
        "both folds come from the next frame",
        TSM,
        "[_from_next(first), _from_previous(second)] if future_first",
        "[_from_next(first), _from_next(second)] if future_first",
        f"{MODEL}a_shift_by_hand",
        "tsm",
    ),
    fault(
        "the shortcut is shifted too",
        TSM,
        "x = block(x, self.shift(x, segments))",
        "x = block(self.shift(x, segments), self.shift(x, segments))",
        f"{FORWARD}a_tsm_that_shifts_residual_branches",
        "tsm",
    ),
    fault(
        "a quarter of the channels is shifted",
        TSM,
        "self.arch.shift_div, self.arch.shift_direction)",
        "self.arch.shift_div // 2, self.arch.shift_direction)",
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
        "a non-local block without its shortcut",
        TSM,
        "(self.bn(self.out(attended)) + clips)",
        "self.bn(self.out(attended))",
        f"{FORWARD}a_non_local_block",
        "tsm",
        ("model.depth=50", "model.non_local=true", "data.size=32"),
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
        "the dropout of the auxiliary head is missing",
        DEEPLAB,
        "self.classifier(apply_dropout(self.project(middle), dropout, self.dropout_rate))",
        "self.classifier(self.project(middle))",
        f"{FORWARD}a_deeplab_of_mmsegmentation",
        "deeplabv3plus",
    ),
    fault(
        "the pyramid has the first rate three times",
        DEEPLAB,
        "SeparableConvModule(channels, width, rate, self.is_mmseg) for rate in arch.rates",
        "SeparableConvModule(channels, width, arch.rates[0], self.is_mmseg) for rate in arch.rates",
        f"{FORWARD}a_deeplab_of_mmsegmentation",
        "deeplabv3plus",
    ),
]

FAULTS = [*UPDATES, *LOSSES, *MODELS]
