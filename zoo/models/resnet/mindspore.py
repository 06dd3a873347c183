"""ResNet v1.5 in MindSpore, parallel to torch.py and paddle.py; spec.py describes options and tensor names."""

from mindspore import Tensor, nn, ops

from zoo.models.resnet.spec import Arch, stages


class BasicBlock(nn.Cell):
    """Residual block of ResNet-18 and -34: two 3x3 convolutions, the first with stride and dilation."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, dilation: int, same: bool = False, eps: float = 1e-5):
        super().__init__()
        self.conv1 = conv3x3(inputs, width, stride, dilation, same)
        self.bn1 = nn.BatchNorm2d(width, eps=eps)
        self.conv2 = conv3x3(width, width, 1, 1)
        self.bn2 = nn.BatchNorm2d(width, eps=eps)
        self.downsample = shortcut(inputs, width, stride, eps)

    def residual(self, x: Tensor) -> Tensor:
        """Return the residual branch, to which the shortcut is added."""
        x = ops.relu(self.bn1(self.conv1(x)))
        return self.bn2(self.conv2(x))

    def construct(self, x: Tensor, residual_input: Tensor | None = None) -> Tensor:
        """Compute the block; `residual_input` is what the residual branch gets instead of x, if it is not None."""
        residual = self.residual(x if residual_input is None else residual_input)
        return ops.relu(residual + self.downsample(x))


class Bottleneck(nn.Cell):
    """Residual block of deeper ResNets: 1x1 to `width`, 3x3 with stride and dilation (v1.5), 1x1 to 4 * `width`."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, dilation: int, same: bool = False, eps: float = 1e-5):
        super().__init__()
        self.conv1 = conv1x1(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width, eps=eps)
        self.conv2 = conv3x3(width, width, stride, dilation, same)
        self.bn2 = nn.BatchNorm2d(width, eps=eps)
        self.conv3 = conv1x1(width, width * 4, 1)
        self.bn3 = nn.BatchNorm2d(width * 4, eps=eps)
        self.downsample = shortcut(inputs, width * 4, stride, eps)

    def residual(self, x: Tensor) -> Tensor:
        """Return the residual branch, to which the shortcut is added."""
        x = ops.relu(self.bn1(self.conv1(x)))
        x = ops.relu(self.bn2(self.conv2(x)))
        return self.bn3(self.conv3(x))

    def construct(self, x: Tensor, residual_input: Tensor | None = None) -> Tensor:
        """Compute the block; `residual_input` is what the residual branch gets instead of x, if it is not None."""
        residual = self.residual(x if residual_input is None else residual_input)
        return ops.relu(residual + self.downsample(x))


class Model(nn.Cell):
    """ResNet: image (N, 3, H, W) float -> logits (N, num_classes)."""

    def __init__(self, arch: Arch):
        super().__init__()
        block = Bottleneck if arch.expansion == 4 else BasicBlock
        self.conv1 = conv7x7(3, arch.width, arch.same_convs)
        self.bn1 = nn.BatchNorm2d(arch.width, eps=arch.bn_eps)
        self.maxpool = nn.MaxPool2d(3, 2, "same") if arch.same_pool else nn.MaxPool2d(3, 2, "pad", 1)
        layers, inputs = [], arch.width
        for stage in stages(arch):
            layer = []
            for i in range(stage.blocks):
                stride, dilation = (stage.stride, stage.first_dilation) if i == 0 else (1, stage.dilation)
                layer.append(block(inputs, stage.width, stride, dilation, arch.same_convs, arch.bn_eps))
                inputs = stage.width * block.expansion
            layers.append(nn.SequentialCell(*layer))
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.fc = nn.Dense(arch.features, arch.outputs)

    def stem(self, x: Tensor) -> Tensor:
        """Return the input of layer1: (N, 3, H, W) -> (N, width, H/4, W/4)."""
        x = ops.relu(self.bn1(self.conv1(x)))
        return self.maxpool(x)

    def forward_features(self, image: Tensor) -> Tensor:
        """Return the maps whose mean the classifier gets: (N, 3, H, W) -> (N, features, H/32, W/32)."""
        x = self.stem(image)
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))

    def construct(self, image: Tensor) -> Tensor:
        return self.fc(self.forward_features(image).mean((2, 3)))

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier by one for other classes, with the framework's own initial values."""
        self.fc = nn.Dense(self.fc.in_channels, num_classes)


def conv1x1(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    """Return a 1x1 convolution without bias."""
    return nn.Conv2d(inputs, outputs, 1, stride, "pad", 0, has_bias=False)


def conv3x3(inputs: int, outputs: int, stride: int, dilation: int, same: bool = False) -> nn.Conv2d:
    """Return a 3x3 convolution without bias; with stride 1 it keeps the size, and both paddings are equal."""
    if same and stride > 1:
        return nn.Conv2d(inputs, outputs, 3, stride, "same", 0, dilation, has_bias=False)
    return nn.Conv2d(inputs, outputs, 3, stride, "pad", dilation, dilation, has_bias=False)


def conv7x7(inputs: int, outputs: int, same: bool) -> nn.Conv2d:
    """Return a 7x7 convolution of stride 2 without bias."""
    if same:
        return nn.Conv2d(inputs, outputs, 7, 2, "same", 0, has_bias=False)
    return nn.Conv2d(inputs, outputs, 7, 2, "pad", 3, has_bias=False)


def shortcut(inputs: int, outputs: int, stride: int, eps: float) -> nn.Cell:
    """Return the shortcut: the identity, or a strided 1x1 convolution where the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.SequentialCell(conv1x1(inputs, outputs, stride), nn.BatchNorm2d(outputs, eps=eps))
