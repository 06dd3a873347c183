"""Functions in NumPy."""

import numpy as np


def layers(parameters, x):
    hidden = np.tanh(x @ parameters["a.weight"].T + parameters["a.bias"])
    return hidden @ parameters["b.weight"].T + parameters["b.bias"]


def build_layers(function=layers):
    return function, {
        "a.weight": np.ones((7, 6)),
        "a.bias": np.ones(7),
        "b.weight": np.ones((5, 7)),
        "b.bias": np.ones(5),
    }


def build_without_bias():
    return build_layers(lambda parameters, x: layers({**parameters, "b.bias": 0.0}, x))


def build_softmax():
    return softmax


def softmax(x):
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)
