"""Faults in models of Paddle."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import FORWARD, MODEL, OBJECTIVE

CONVOLUTION = "zoo/trainer/paddle/convolution.py"
RESNET = "zoo/models/resnet/paddle.py"
TSM = "zoo/models/tsm/paddle.py"
DEEPLAB = "zoo/models/deeplabv3plus/paddle.py"
ARCFACE = "zoo/models/arcface/paddle.py"

CPU = "tests/zoo/trainer/paddle/cpu_cases.py::case_"

fault = partial(Fault, "paddle")

FAULTS = [
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
        "1 + offset : 1 + offset + segments",
        "1 - offset : 1 - offset + segments",
        f"{MODEL}a_shift_by_hand",
        "tsm",
    ),
    fault(
        "the first frame is repeated instead of zeros",
        TSM,
        "padded = paddle.concat([zeros, clips",
        "padded = paddle.concat([clips[:, :1, :moved], clips",
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
        "zoo/tasks/segment.py",
        "ops.flip(scores, 3) if mirrored else scores",
        "scores",
        f"{OBJECTIVE}class_maps_follow_their_definition",
    ),
]
