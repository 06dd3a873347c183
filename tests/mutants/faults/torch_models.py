"""Faults in models of PyTorch."""

from functools import partial

from tests.mutants.fault import Fault
from tests.mutants.killers import FORWARD, MODEL

RESNET = "zoo/models/resnet/torch.py"
TSM = "zoo/models/tsm/torch.py"
DEEPLAB = "zoo/models/deeplabv3plus/torch.py"
ARCFACE = "zoo/models/arcface/torch.py"

fault = partial(Fault, "torch")

FAULTS = [
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
        "if offset == 1:",
        "if offset == -1:",
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
        "shifted[:, -1, moved] = 0",
        "shifted[:, -1, moved] = clips[:, -1, moved]",
        f"{MODEL}a_shift_by_hand",
        "tsm",
    ),
    fault(
        "the gradient of a shift is shifted the same way",
        TSM,
        "tuple(-offset for offset in offsets)",
        "offsets",
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
