import paddle.nn.functional as F
from paddle import nn, optimizer


class Block(nn.Layer):
    def __init__(self, width=12, heads=2):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, epsilon=1e-6)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, epsilon=1e-6)
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape([n, t, 3, self.heads, c // self.heads]).transpose([2, 0, 3, 1, 4])
        weights = F.softmax(q @ k.transpose([0, 1, 3, 2]) * (c // self.heads) ** -0.5, -1)
        x = x + self.drop(self.out((weights @ v).transpose([0, 2, 1, 3]).reshape([n, t, c])))
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.norm2(x)))))


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 12, 4, stride=4, bias_attr=False)
        self.bn = nn.BatchNorm2D(12)
        self.blocks = nn.LayerList([Block(), Block()])
        self.head = nn.Linear(12, 5)

    def forward(self, x):
        x = F.relu(self.bn(self.conv(x))).flatten(2).transpose([0, 2, 1])
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def loss(outputs, inputs):
    return F.cross_entropy(outputs, inputs["label"])


def optimizers(model):
    blocks = [parameter for name, parameter in model.named_parameters() if name.startswith("blocks")]
    others = [parameter for name, parameter in model.named_parameters() if not name.startswith("blocks")]
    return [
        optimizer.Momentum(0.1, momentum=0.9, parameters=others),
        optimizer.AdamW(1e-2, weight_decay=0.05, parameters=blocks),
    ]
