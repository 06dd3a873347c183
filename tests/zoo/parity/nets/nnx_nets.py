"""The nets of torch_nets.py in flax.nnx."""

from flax import nnx


class Images(nnx.Module):
    def __init__(self, epsilon=1e-5, approximate=False, momentum=0.9):
        rngs = nnx.Rngs(0)
        self.approximate = approximate
        self.conv = nnx.Conv(3, 8, (3, 3), 2, padding=1, rngs=rngs)
        self.bn = nnx.BatchNorm(8, momentum=momentum, rngs=rngs)
        self.norm = nnx.LayerNorm(8, epsilon=epsilon, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.fc = nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, x):
        x = nnx.gelu(self.bn(self.conv(x)), approximate=self.approximate)
        return self.fc(self.drop(self.norm(x.mean((1, 2)))))


class Tokens(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.embed = nnx.Embed(10, 8, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
        self.depthwise = nnx.Conv(8, 8, 3, padding="VALID", feature_group_count=8, rngs=rngs)
        self.up = nnx.ConvTranspose(8, 6, 2, 2, padding="VALID", rngs=rngs)
        self.lstm = nnx.RNN(nnx.OptimizedLSTMCell(6, 4, rngs=rngs))

    def __call__(self, x):
        x = self.embed(x)
        return self.lstm(self.up(self.depthwise(x + self.attention(x))))


class Compiled(Images):
    """The same within nnx.jit, which makes copies of the modules."""

    @nnx.jit
    def __call__(self, x):
        return super().__call__(x)
