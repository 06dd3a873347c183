from mindspore import nn, ops


class Block(nn.Cell):
    def __init__(self, width=12, heads=2):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm((width,), epsilon=1e-6)
        self.qkv = nn.Dense(width, 3 * width)
        self.out = nn.Dense(width, width)
        self.norm2 = nn.LayerNorm((width,), epsilon=1e-6)
        self.fc1 = nn.Dense(width, 2 * width)
        self.fc2 = nn.Dense(2 * width, width)
        self.drop = nn.Dropout(p=0.1)

    def construct(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(n, t, 3, self.heads, c // self.heads).transpose(2, 0, 3, 1, 4)
        weights = ops.softmax(ops.matmul(q, k.swapaxes(-2, -1)) * (c // self.heads) ** -0.5, -1)
        x = x + self.drop(self.out(ops.matmul(weights, v).swapaxes(1, 2).reshape(n, t, c)))
        return x + self.drop(self.fc2(ops.gelu(self.fc1(self.norm2(x)), approximate="none")))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 4, 4, "pad", 0)
        self.bn = nn.BatchNorm2d(12)
        self.blocks = nn.CellList([Block(), Block()])
        self.head = nn.Dense(12, 5)

    def construct(self, x):
        x = ops.relu(self.bn(self.conv(x)))
        x = x.reshape(x.shape[0], x.shape[1], -1).swapaxes(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def loss(outputs, inputs):
    return ops.cross_entropy(outputs, inputs["label"])
