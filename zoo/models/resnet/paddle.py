"""ResNet v1.5 in PaddlePaddle, parallel to torch.py and mindspore.py; spec.py describes options and tensor names."""

import paddle
import paddle.nn.functional as F
from paddle import nn

from zoo.models.resnet.spec import Arch, same_padding, stages


class BasicBlock(nn.Layer):
    """Residual block of ResNet-18 and -34: two 3x3 convolutions, the first with stride and dilation."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, dilation: int, same: bool = False, eps: float = 1e-5):
        super().__init__()
        self.conv1 = conv3x3(inputs, width, stride, dilation, same)
        self.bn1 = nn.BatchNorm2D(width, epsilon=eps)
        self.conv2 = conv3x3(width, width, 1, 1)
        self.bn2 = nn.BatchNorm2D(width, epsilon=eps)
        self.downsample = shortcut(inputs, width, stride, eps)

    def residual(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return the residual branch, to which the shortcut is added."""
        x = F.relu(self.bn1(self.conv1(x)))
        return self.bn2(self.conv2(x))

    def forward(self, x: paddle.Tensor, residual_input: paddle.Tensor | None = None) -> paddle.Tensor:
        """Return the sum of both branches; `residual_input`: what the residual branch gets instead of x."""
        residual = self.residual(x if residual_input is None else residual_input)
        return F.relu(residual + self.downsample(x))


class Bottleneck(nn.Layer):
    """Residual block of deeper ResNets: 1x1 to `width`, 3x3 with stride and dilation (v1.5), 1x1 to 4 * `width`."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, dilation: int, same: bool = False, eps: float = 1e-5):
        super().__init__()
        self.conv1 = conv1x1(inputs, width, 1)
        self.bn1 = nn.BatchNorm2D(width, epsilon=eps)
        self.conv2 = conv3x3(width, width, stride, dilation, same)
        self.bn2 = nn.BatchNorm2D(width, epsilon=eps)
        self.conv3 = conv1x1(width, width * 4, 1)
        self.bn3 = nn.BatchNorm2D(width * 4, epsilon=eps)
        self.downsample = shortcut(inputs, width * 4, stride, eps)

    def residual(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return the residual branch, to which the shortcut is added."""
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.bn3(self.conv3(x))

    def forward(self, x: paddle.Tensor, residual_input: paddle.Tensor | None = None) -> paddle.Tensor:
        """Return the sum of both branches; `residual_input`: what the residual branch gets instead of x."""
        residual = self.residual(x if residual_input is None else residual_input)
        return F.relu(residual + self.downsample(x))


class SameConv2D(nn.Conv2D):
    """Convolution with the padding `same`; Paddle's own padding "SAME" ignores the dilation."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, dilation: int = 1):
        super().__init__(inputs, outputs, kernel, stride, 0, dilation, bias_attr=False)
        self.window = kernel, stride, dilation

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return super().forward(F.pad(x, list(same_padding(x.shape[2], x.shape[3], *self.window))))


class Model(nn.Layer):
    """ResNet: image (N, 3, H, W) float -> logits (N, num_classes)."""

    def __init__(self, arch: Arch):
        super().__init__()
        block = Bottleneck if arch.expansion == 4 else BasicBlock
        self.same_pool = arch.same_pool
        self.conv1 = conv7x7(3, arch.width, arch.same_convs)
        self.bn1 = nn.BatchNorm2D(arch.width, epsilon=arch.bn_eps)
        layers, inputs = [], arch.width
        for stage in stages(arch):
            layer = []
            for i in range(stage.blocks):
                stride, dilation = (stage.stride, stage.first_dilation) if i == 0 else (1, stage.dilation)
                layer.append(block(inputs, stage.width, stride, dilation, arch.same_convs, arch.bn_eps))
                inputs = stage.width * block.expansion
            layers.append(nn.Sequential(*layer))
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.fc = nn.Linear(arch.features, arch.outputs)

    def stem(self, x: paddle.Tensor) -> paddle.Tensor:
        """Return the input of layer1: (N, 3, H, W) -> (N, width, H/4, W/4)."""
        x = F.relu(self.bn1(self.conv1(x)))
        return F.max_pool2d(x, 3, 2, "SAME" if self.same_pool else 1)

    def forward_features(self, image: paddle.Tensor) -> paddle.Tensor:
        """Return the maps whose mean the classifier gets: (N, 3, H, W) -> (N, features, H/32, W/32)."""
        x = self.stem(image)
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))

    def forward(self, image: paddle.Tensor) -> paddle.Tensor:
        return self.fc(self.forward_features(image).mean((2, 3)))

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier by one for other classes, with the framework's own initial values."""
        self.fc = nn.Linear(self.fc.weight.shape[0], num_classes)


def conv1x1(inputs: int, outputs: int, stride: int) -> nn.Conv2D:
    """Return a 1x1 convolution without bias."""
    return nn.Conv2D(inputs, outputs, 1, stride, bias_attr=False)


def conv3x3(inputs: int, outputs: int, stride: int, dilation: int, same: bool = False) -> nn.Conv2D:
    """Return a 3x3 convolution without bias; with stride 1 it keeps the size, and both paddings are equal."""
    if same and stride > 1:
        return SameConv2D(inputs, outputs, 3, stride, dilation)
    return nn.Conv2D(inputs, outputs, 3, stride, dilation, dilation, bias_attr=False)


def conv7x7(inputs: int, outputs: int, same: bool) -> nn.Conv2D:
    """Return a 7x7 convolution of stride 2 without bias."""
    if same:
        return SameConv2D(inputs, outputs, 7, 2)
    return nn.Conv2D(inputs, outputs, 7, 2, 3, bias_attr=False)


def shortcut(inputs: int, outputs: int, stride: int, eps: float) -> nn.Layer:
    """Return the shortcut: the identity, or a strided 1x1 convolution where the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(conv1x1(inputs, outputs, stride), nn.BatchNorm2D(outputs, epsilon=eps))
