"""Faults in the PaddlePaddle files."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import CLIP, FORWARD, MARGIN, MODEL, OBJECTIVE, OPTIMIZERS, RANK, STATE, UPDATE

TRAINER = "zoo/trainer/paddle/trainer.py"
OPTIMIZER = "zoo/trainer/paddle/optimizer.py"
SGD = "zoo/trainer/paddle/optimizers/sgd.py"
MARGINS = "zoo/trainer/paddle/margin_logits.py"
OBJECTIVES = "zoo/trainer/paddle/objectives.py"
CROSS_ENTROPY = "zoo/trainer/paddle/losses/classify/cross_entropy.py"
PIXEL_CROSS_ENTROPY = "zoo/trainer/paddle/losses/segment/cross_entropy.py"
COMBINED = "zoo/trainer/paddle/losses/face/combined.py"
CONVOLUTION = "zoo/trainer/paddle/convolution.py"
SYNC_BN = "zoo/trainer/paddle/sync_batchnorm.py"
RESNET = "zoo/models/resnet/paddle.py"
TSM = "zoo/models/tsm/paddle.py"
DEEPLAB = "zoo/models/deeplabv3plus/paddle.py"
ARCFACE = "zoo/models/arcface/paddle.py"

CPU = "tests/zoo/trainer/paddle/cpu_cases.py::case_"

fault = partial(Fault, "paddle")

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
        "merged(tensors, spec.momentum)",
        "merged(tensors, 0.8)",
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
    fault(
        "the decay of AdamW is coupled as well",
        "zoo/trainer/paddle/optimizers/adamw.py",
        "    mean = number(spec.beta1, gradient)",
        "    gradient = gradient + number(tensors.weight_decay, gradient) * tensors.weight\n"
        "    mean = number(spec.beta1, gradient)",
        f"{OPTIMIZERS}updates_in_fp32",
        "tsm",
        ("optim.name=adamw",),
    ),
    fault(
        "no bias correction of the mean",
        "zoo/trainer/paddle/optimizers/adamw.py",
        "mean / step.bias_correction(spec.beta1).astype(mean.dtype)",
        "mean * 1",
        f"{OPTIMIZERS}updates_in_fp32",
        "resnet50",
        ("optim.name=adamw",),
    ),
]

LOSSES = [
    fault(
        "label smoothing over the other K - 1 classes",
        CROSS_ENTROPY,
        "label_smoothing=self.smoothing)",
        "label_smoothing=self.smoothing * logits.shape[1] / (logits.shape[1] - 1))",
        f"{UPDATE}label_smoothing_is_spread_over_all_classes",
        "resnet50",
    ),
    fault(
        "the auxiliary loss has weight 0.3",
        OBJECTIVES,
        "self.settings.aux_weight * sum(",
        "0.3 * sum(",
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "ignored pixels are pixels of class 0",
        OBJECTIVES,
        'batch["label"].astype("int64"), output',
        'batch["label"].astype("int64") * (batch["label"] != segment.IGNORE_INDEX).astype("int64"), output',
        f"{OBJECTIVE}losses_of_labelled_pixels",
        "deeplabv3plus",
    ),
    fault(
        "the margin's derivative lacks the factor m1",
        COMBINED,
        "m1 * paddle.sin(angle)",
        "paddle.sin(angle)",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
        ("task.m1=1.35", "task.threshold=false"),
    ),
    fault(
        "no cosine is subtracted beyond the threshold",
        COMBINED,
        "cosine - combined.threshold_offset(m2)",
        "cosine",
        f"{MARGIN}target_logits_follow_the_formula",
        "arcface",
        ("task.m2=3.0",),
    ),
    fault(
        "the gradient lacks the scale of the logits",
        "zoo/trainer/paddle/margin.py",
        "grad_output * ctx.settings.scale",
        "grad_output",
        f"{MARGIN}loss_and_gradients_follow_the_definition",
        "arcface",
    ),
    fault(
        "the momentum of drawn rows is not stored",
        OPTIMIZER,
        "                    paddle.scatter_(slot, shard.index, row)\n",
        "                    pass\n",
        f"{MARGIN}partial_fc_updates_the_drawn_rows_alone",
        "arcface",
        ("task.sample_rate=0.5",),
    ),
]

MODELS = [
    fault(
        "no ReLU after the first convolution of a bottleneck",
        RESNET,
        """        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.bn3""",
        """        x = self.bn1(self.conv1(x))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.bn3""",
        f"{FORWARD}a_dilated_resnet_of_bottlenecks",
        "resnet50",
        ("model.depth=50",),
    ),
    fault(
        "a normalization with momentum 0.1, as PyTorch has it",
        RESNET,
        "self.bn1 = nn.BatchNorm2D(arch.width, epsilon=arch.bn_eps)",
        "self.bn1 = nn.BatchNorm2D(arch.width, 0.1, epsilon=arch.bn_eps)",
        f"{FORWARD}a_resnet_of_basic_blocks",
        "resnet50",
    ),
    fault(
        "epsilon is passed as momentum",
        ARCFACE,
        "nn.BatchNorm2D(channels, epsilon=arch.epsilon)",
        "nn.BatchNorm2D(channels, arch.epsilon)",
        f"{FORWARD}an_iresnet_of_insightface",
        "arcface",
    ),
    fault(
        "the stride is on the first convolution",
        ARCFACE,
        """        self.conv1 = conv3x3(inputs, width, 1, 1)
        self.bn2 = norm(arch, width)
        self.prelu = nn.PReLU(prelu_slopes(arch, width))
        self.conv2 = conv3x3(width, width, stride, 1)""",
        """        self.conv1 = conv3x3(inputs, width, stride, 1)
        self.bn2 = norm(arch, width)
        self.prelu = nn.PReLU(prelu_slopes(arch, width))
        self.conv2 = conv3x3(width, width, 1, 1)""",
        f"{FORWARD}an_iresnet_of_insightface",
        "arcface",
    ),
    fault(
        "frames take their features from the wrong neighbor",
        TSM,
        "(following, previous) if future_first else (previous, following)",
        "(previous, following) if future_first else (following, previous)",
        f"{MODEL}a_shift_by_hand",
        "tsm",
    ),
    fault(
        "the first frame is repeated instead of zeros",
        TSM,
        "padded = paddle.concat([zeros, clips",
        "padded = paddle.concat([clips[:, :1, : 2 * fold], clips",
        f"{MODEL}a_shift_by_hand",
        "tsm",
    ),
    fault(
        "the softmax of the attention is over queries",
        TSM,
        "F.softmax(query @ key, -1)",
        "F.softmax(query @ key, 1)",
        f"{FORWARD}a_non_local_block",
        "tsm",
        ("model.depth=50", "model.non_local=true", "data.size=32"),
    ),
    fault(
        "kept features are not scaled up in dropout",
        TSM,
        "dropout.astype(x.dtype) / (1 - self.dropout_rate)",
        "dropout.astype(x.dtype)",
        f"{FORWARD}a_tsm_that_shifts_residual_branches",
        "tsm",
    ),
    fault(
        "convolutions of the pyramid are not dilated",
        DEEPLAB,
        "kernel // 2 * dilation, dilation, groups",
        "kernel // 2, 1, groups",
        f"{FORWARD}a_deeplab_of_mmsegmentation",
        "deeplabv3plus",
    ),
    fault(
        "layer1 comes first where it is fused",
        DEEPLAB,
        "[resize(x, low.shape[2:], self.align_corners), low]",
        "[low, resize(x, low.shape[2:], self.align_corners)]",
        f"{FORWARD}a_deeplab_of_mmsegmentation",
        "deeplabv3plus",
    ),
    fault(
        "shortcuts pool the maximum instead of the mean",
        DEEPLAB,
        "F.avg_pool2d(x, 2, 2, ceil_mode=True)",
        "F.max_pool2d(x, 2, 2, ceil_mode=True)",
        f"{FORWARD}a_deeplab_of_paddleseg",
        "deeplabv3plus",
        ("model.variant=paddleseg",),
    ),
    fault(
        "samples of a product are not put in order",
        CONVOLUTION,
        "pixels.reshape([len(pixels), count, *size]).transpose((1, 0, 2, 3))",
        "pixels.reshape([count, len(pixels), *size])",
        f"{CPU}values_and_gradients_are_those_of_a_convolution",
    ),
    fault(
        "the last part of the samples is the gradient of a weight",
        CONVOLUTION,
        "grad_weight = grad_weight + paddle.matmul(",
        "grad_weight = paddle.matmul(",
        f"{CPU}values_and_gradients_are_those_of_a_convolution",
    ),
    fault(
        "a convolution that pads on one side alone is a product",
        CONVOLUTION,
        "is_symmetric = len(layer._updated_padding) == 2",
        "is_symmetric = True",
        f"{CPU}other_convolutions_are_left_alone",
    ),
    fault(
        "slopes of a PReLU learn from positive numbers, too",
        "zoo/trainer/paddle/prelu.py",
        "(_negative(x) * grad)",
        "(x * grad)",
        f"{CPU}values_and_gradients_are_those_of_a_prelu",
    ),
    fault(
        "mirrored scores are not mirrored back",
        "zoo/trainer/paddle/outputs.py",
        "paddle.flip(scores, 3) if mirrored else scores",
        "scores",
        f"{OBJECTIVE}class_maps_follow_their_definition",
    ),
]

FAULTS = [*UPDATES, *LOSSES, *MODELS]
