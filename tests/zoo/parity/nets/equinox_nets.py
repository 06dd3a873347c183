"""The nets of torch_nets.py in Equinox: of an image, or a sequence; and of a batch."""

import equinox as eqx
import jax
from jax import numpy as jnp

KEY = jax.random.PRNGKey(0)


class Image(eqx.Module):
    conv: eqx.nn.Conv2d
    bn: eqx.nn.BatchNorm
    norm: eqx.nn.LayerNorm
    drop: eqx.nn.Dropout
    fc: eqx.nn.Linear
    approximate: bool

    def __init__(self, epsilon, approximate, momentum):
        self.conv = eqx.nn.Conv2d(3, 8, 3, 2, 1, key=KEY)
        self.bn = eqx.nn.BatchNorm(8, "batch", momentum=momentum, mode="batch")
        self.norm = eqx.nn.LayerNorm(8, eps=epsilon)
        self.drop = eqx.nn.Dropout(0.1)
        self.fc = eqx.nn.Linear(8, 5, key=KEY)
        self.approximate = approximate

    def __call__(self, x, state):
        x, state = self.bn(self.conv(x), state)
        x = jax.nn.gelu(x, approximate=self.approximate).mean((1, 2))
        return self.fc(self.drop(self.norm(x))), state


class Images(eqx.Module):
    image: Image

    def __call__(self, x, state):
        return jax.vmap(self.image, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)


def build_images(epsilon=1e-5, approximate=False, momentum=0.9):
    return eqx.nn.make_with_state(lambda: Images(Image(epsilon, approximate, momentum)))()


class Sequence(eqx.Module):
    embed: eqx.nn.Embedding
    attention: eqx.nn.MultiheadAttention
    depthwise: eqx.nn.Conv1d
    up: eqx.nn.ConvTranspose1d
    lstm: eqx.nn.LSTMCell

    def __init__(self):
        self.embed = eqx.nn.Embedding(10, 8, key=KEY)
        biases = {f"use_{name}_bias": True for name in ("query", "key", "value", "output")}
        self.attention = eqx.nn.MultiheadAttention(2, 8, **biases, key=KEY)
        self.depthwise = eqx.nn.Conv1d(8, 8, 3, groups=8, key=KEY)
        self.up = eqx.nn.ConvTranspose1d(8, 6, 2, 2, key=KEY)
        self.lstm = eqx.nn.LSTMCell(6, 4, key=KEY)

    def __call__(self, x):
        x = jax.vmap(self.embed)(x)
        x = self.up(self.depthwise((x + self.attention(x, x, x)).T)).T

        def step(state, x):
            state = self.lstm(x, state)
            return state, state[0]

        return jax.lax.scan(step, (jnp.zeros(4), jnp.zeros(4)), x)[1]


class Tokens(eqx.Module):
    sequence: Sequence

    def __init__(self):
        self.sequence = Sequence()

    def __call__(self, x):
        return jax.vmap(self.sequence)(x)
