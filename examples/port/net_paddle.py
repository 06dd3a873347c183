"""The network of net_torch.py in Paddle: `build` has two slips, `fixed` has none."""

import paddle
from paddle import nn
from paddle.nn import functional as F


class Block(nn.Layer):
    def __init__(self, width: int, heads: int, epsilon: float):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, epsilon=epsilon)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, epsilon=epsilon)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, n, c = x.shape
        qkv = self.qkv(self.norm1(x)).reshape([b, n, 3, self.heads, c // self.heads])
        q, k, v = qkv.transpose([2, 0, 3, 1, 4])
        scores = q @ k.transpose([0, 1, 3, 2]) * (c // self.heads) ** -0.5
        x = x + self.proj((F.softmax(scores) @ v).transpose([0, 2, 1, 3]).reshape([b, n, c]))
        return x + self.mlp(self.norm2(x))


class Net(nn.Layer):
    def __init__(self, momentum: float, epsilon: float, width: int = 32, heads: int = 4, num_classes: int = 10):
        super().__init__()
        self.conv = nn.Conv2D(3, width, 4, 4, bias_attr=False)
        self.bn = nn.BatchNorm2D(width, momentum=momentum)
        self.blocks = nn.Sequential(Block(width, heads, epsilon), Block(width, heads, epsilon))
        self.norm = nn.LayerNorm(width, epsilon=epsilon)
        self.head = nn.Linear(width, num_classes)

    def forward(self, image):
        x = F.relu(self.bn(self.conv(image)))
        x = self.blocks(x.flatten(2).transpose([0, 2, 1]))
        return self.head(self.norm(x).mean(1))


def build() -> Net:
    return Net(momentum=0.1, epsilon=1e-5)  # the number of PyTorch, and the default of LayerNorm


def fixed() -> Net:
    return Net(momentum=0.9, epsilon=1e-6)


def loss(outputs, inputs):
    return F.cross_entropy(outputs, inputs["label"], label_smoothing=0.1)


def optimizer(parameters):
    return paddle.optimizer.AdamW(1e-3, parameters=parameters)  # Paddle's decay, 0.01
