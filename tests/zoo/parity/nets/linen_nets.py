"""The nets of torch_nets.py in flax.linen."""

from flax import linen as nn


class Images(nn.Module):
    epsilon: float = 1e-5
    approximate: bool = False
    momentum: float = 0.9

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(8, (3, 3), 2, padding=1)(x)
        x = nn.BatchNorm(use_running_average=not train, momentum=self.momentum)(x)
        x = nn.gelu(x, approximate=self.approximate).mean((1, 2))
        x = nn.Dropout(0.1, deterministic=not train)(nn.LayerNorm(self.epsilon)(x))
        return nn.Dense(5)(x)


class Tokens(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Embed(10, 8)(x)
        x = x + nn.MultiHeadDotProductAttention(2)(x)
        x = nn.Conv(8, (3,), padding="VALID", feature_group_count=8)(x)
        x = nn.ConvTranspose(6, (2,), (2,), padding="VALID")(x)
        return nn.RNN(nn.OptimizedLSTMCell(4))(x)
