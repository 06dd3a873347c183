"""Faults in models of MindSpore."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import FORWARD, MODEL

RESNET = "zoo/models/resnet/mindspore.py"
TSM = "zoo/models/tsm/mindspore.py"
DEEPLAB = "zoo/models/deeplabv3plus/mindspore.py"
ARCFACE = "zoo/models/arcface/mindspore.py"

fault = partial(Fault, "mindspore")

FAULTS = [
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
        "_from_next(moved) if offset == 1 else _from_previous(moved)",
        "_from_next(moved)",
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
