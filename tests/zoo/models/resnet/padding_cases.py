"""The cases of a ResNet's padding and epsilon, one body over all frameworks; test_padding.py runs them."""

import importlib

import numpy as np

from tests.helpers.paths import GOLDEN
from tests.zoo.weights.state_dicts import drawn_state_dict
from zoo.models import load_model_class
from zoo.models.resnet import spec
from zoo.weights import layouts

CLASSES, SIDE, ODD_SIZE = 7, 64, (75, 54)
TOLERANCE = 5e-6  # of the largest logit; measured: up to 2e-6 in evaluation
DEEP = {"padding": "same", "bn_eps": 1e-4}  # of mindspore-ai/models
KERNELS = ((3, 1), (3, 2), (7, 1))  # kernel, dilation


def images(count, height, width):
    return np.random.default_rng(2015).standard_normal((count, 3, height, width), np.float32)


def difference(backend, key, origin, depth, options, train=False):
    """Return the largest difference to recorded logits, relative to the largest of them."""
    with np.load(GOLDEN / "resnets.npz") as arrays:
        expected = arrays[key]
    arch = spec.Arch(depth, CLASSES, **options)
    model = load_model_class("resnet", backend.FRAMEWORK)(arch)
    file = f"names_{origin}_resnet{depth}"
    backend.load_tensors(model, layouts.to_canonical(drawn_state_dict(file), origin))
    size = ODD_SIZE if key.endswith("odd") else (SIDE, SIDE)
    logits = backend.run(backend.set_train(model, train), images(len(expected), *size))
    return np.abs(logits - expected).max() / np.abs(expected).max()


def case_mindcv_s_18_layers(backend):
    assert difference(backend, "mindcv_resnet18", "mindcv", 18, {"padding": "same_pool"}) < TOLERANCE
    assert difference(backend, "mindcv_resnet18_odd", "mindcv", 18, {"padding": "same_pool"}) < TOLERANCE
    assert difference(backend, "mindcv_resnet18", "mindcv", 18, {}) > 0.01


def case_mindcv_s_50_layers(backend):
    assert difference(backend, "mindcv_resnet50", "mindcv", 50, {"padding": "same_pool"}) < TOLERANCE


def case_mindspore_s_50_layers(backend):
    assert difference(backend, "mindspore_resnet50", "mindspore", 50, DEEP) < TOLERANCE
    assert difference(backend, "mindspore_resnet50_odd", "mindspore", 50, DEEP) < TOLERANCE
    assert difference(backend, "mindspore_resnet50", "mindspore", 50, {**DEEP, "padding": "symmetric"}) > 0.01


def case_mindspore_s_50_layers_in_training(backend):
    """The epsilon counts where it normalizes by the statistics of a batch, too."""
    right, wrong = (
        difference(backend, "mindspore_resnet50_train", "mindspore", 50, {**DEEP, "bn_eps": eps}, train=True)
        for eps in (1e-4, 1e-5)
    )
    assert right < 1e-4 < 1e-3 < wrong, (right, wrong)


def convolution(image, weight, padding, stride, dilation):
    """Return the convolution of (H, W) with (K, K); padding is left, right, top, bottom."""
    left, right, top, bottom = padding
    padded = np.pad(image, ((top, bottom), (left, right)))
    extent = (len(weight) - 1) * dilation + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, (extent, extent))[::stride, ::stride]
    return (windows[..., ::dilation, ::dilation] * weight).sum((-1, -2))


def case_convolutions_of_all_sizes(backend):
    """Of stride 2, and their gradients, by the rule in numpy; MindSpore's own padding confirms the rule itself."""
    module, rng = importlib.import_module(f"zoo.models.resnet.{backend.FRAMEWORK}"), np.random.default_rng(0)
    for kernel, dilation in KERNELS:
        weight = rng.standard_normal((1, 1, kernel, kernel), np.float32)
        layer = module.conv7x7(1, 1, True) if kernel == 7 else module.conv3x3(1, 1, 2, dilation, True)
        backend.load_tensors(layer, {"weight": weight})
        for size in ((7, 8), (8, 7), (9, 10), (12, 11)):
            image = rng.standard_normal((1, 1, *size), np.float32)
            padding = spec.same_padding(*size, kernel, 2, dilation)
            expected = convolution(image[0, 0], weight[0, 0], padding, 2, dilation)
            direction, factor = rng.standard_normal(image.shape, np.float32), rng.standard_normal(expected.shape)
            output, gradient = backend.gradient(layer, image, factor[None, None].astype(np.float32))
            np.testing.assert_allclose(output[0, 0], expected, rtol=1e-5, atol=1e-5)
            change = (convolution(direction[0, 0], weight[0, 0], padding, 2, dilation) * factor).sum()
            np.testing.assert_allclose((gradient * direction).sum(), change, rtol=1e-4, atol=1e-4)
