"""zoo/parity/causes.py: every hypothesis on differences of its kind, and silence on those of none."""

import numpy as np
import pytest

from zoo.compare.causes import factors
from zoo.parity import causes

SETTINGS = {
    "dropout": 0.2,
    "samples": 6,
    "accumulate": 4,
    "task": {"label_smoothing": 0.1, "scale": 64.0, "aux_weight": 0.4},
}
FACTORS = factors(SETTINGS)
SHAPES = [(8, 6), (16, 12, 5, 9), (4, 3, 2, 8, 8), (8,)]


def normal(shape=(8, 6, 7, 7), seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def guess(reference, suspect):
    return causes.of_activation(reference, suspect, FACTORS)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1e-9, 1e-7, 1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("is_active", [False, True])
def test_no_guess_at_random_differences(shape, size, is_active):
    """Also none at small ones, which nearly any hypothesis would fit if the tensors as a whole were compared."""
    reference = np.maximum(normal(shape), 0) if is_active else normal(shape)
    for seed in range(1, 6):
        assert guess(reference, reference + size * normal(shape, seed)) == ""
        assert causes.of_gradient(reference, reference + size * normal(shape, seed), FACTORS) == ""


def test_shape_and_numbers_that_are_not_finite():
    assert guess(normal((4, 3)), normal((3, 4))) == "the shape is (3, 4) instead of (4, 3)"
    for value in (np.nan, np.inf):
        suspect = normal((4, 3))
        suspect[1, 2] = value
        assert guess(normal((4, 3)), suspect) == "it is not finite"
        assert causes.of_gradient(normal((4, 3)), suspect, FACTORS) == "it is not finite"


@pytest.mark.parametrize(
    "factor, name",
    [
        (0.8, "dropout is not divided by 1 - p"),
        (1.25, "dropout is divided by 1 - p twice"),
        (1 / 6, "the mean over samples is taken twice"),
        (6, "a sum over samples instead of their mean"),
        (1 / 4, "a mean over micro-batches is taken twice"),
        (4, "a sum over micro-batches instead of their mean"),
        (-1, "the sign"),
        (255, "pixels of 0 to 255 instead of 0 to 1"),
        (64, "task.scale"),
        (1 / 64, "1 / task.scale"),
        (0.4, "task.aux_weight"),
    ],
)
def test_known_factors(factor, name):
    reference = normal((8, 6))
    expected = f"it is {factor:.6g} times the others': {name}"
    assert guess(reference, factor * reference) == expected
    assert causes.of_gradient(reference, factor * reference, FACTORS) == expected


def test_relu():
    assert guess(np.maximum(normal(), 0), normal()) == "a ReLU is missing"
    assert guess(normal(), np.maximum(normal(), 0)) == "a ReLU that the others do not have"


def test_order_of_channels():
    reference = normal()
    assert guess(reference, reference[:, ::-1]) == ("the channels are in another order: 5, 4, 3 and 3 more")
    image = normal((2, 3, 16, 16))
    assert guess(image, image[:, [2, 1, 0]]) == "the channels are in another order: 2, 1, 0"
    repeated = reference[:, [0, 0, 1, 2, 3, 4]]
    assert "order" not in guess(reference, repeated)


def shifted(x, fold, direction, segments):
    """Shift the first `fold` channels by one frame in a direction and as many after them in the other one."""
    clips, out = x.reshape(-1, segments, *x.shape[1:]), np.zeros((len(x) // segments, segments, *x.shape[1:]))
    for channels, forward in ((slice(0, fold), direction), (slice(fold, 2 * fold), -direction)):
        if forward > 0:
            out[:, :-1, channels] = clips[:, 1:, channels]
        else:
            out[:, 1:, channels] = clips[:, :-1, channels]
    out[:, :, 2 * fold :] = clips[:, :, 2 * fold :]
    return out.reshape(x.shape)


@pytest.mark.parametrize("segments", [4, 8])
def test_temporal_shift_in_the_other_direction(segments):
    x = normal((16, 12, 5, 5))
    right, wrong = shifted(x, 2, 1, segments), shifted(x, 2, -1, segments)
    assert guess(right, wrong).startswith("channels 0 to 3, some of them as the others' 2 frame(s) ")
    assert guess(right, wrong).endswith(": direction or size of the temporal shift")


def test_temporal_shift_that_is_missing():
    x = normal((16, 12, 5, 5))
    assert guess(shifted(x, 2, 1, 8), x).startswith("channels 0 to 3, some of them as the others' 1 frame(s) ")
    assert guess(x, shifted(x, 2, 1, 8)).startswith("channels 0 to 3, some of them as the others' 1 frame(s) ")


def convolved(x, pad):
    """Return a 3x3 convolution of each channel; padding as (first, last) of both axes."""
    padded, kernel = np.pad(x, ((0, 0), (0, 0), pad, pad)), normal((3, 3), 9)
    size = padded.shape[2] - 2
    return sum(kernel[i, j] * padded[:, :, i : i + size, j : j + size] for i in range(3) for j in range(3))


def test_padding_on_the_other_side():
    """An even size and a stride of two: one pixel before, or one behind ("same")."""
    x = normal((4, 6, 17, 17))
    assert guess(convolved(x, (1, 1)), convolved(x, (0, 2))) == "it is shifted by 1 pixel(s): padding"
    assert guess(convolved(x, (1, 1)), convolved(x, (2, 0))) == "it is shifted by 1 pixel(s): padding"


def normalize(x, eps, weight, bias, variance=None):
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    shape = [1, -1, *[1] * (x.ndim - 2)]
    variance = x.var(axes, keepdims=True) if variance is None else variance
    x = (x - x.mean(axes, keepdims=True)) / np.sqrt(variance + eps)
    return x * weight.reshape(shape) + bias.reshape(shape)


@pytest.mark.parametrize("shape", [(8, 6, 7, 7), (16, 6), (4, 6, 2, 3, 3)])
@pytest.mark.parametrize("eps", [1e-3, 1.1e-5, 0.0])
def test_epsilon_of_a_normalization(shape, eps):
    """Also of one near the right value: the difference is 1e-6 of the output, far above fp64's rounding."""
    x, weight, bias = (
        0.7 * normal(shape) * np.arange(1, 7).reshape(1, -1, *[1] * (len(shape) - 2)),
        normal(6, 2),
        normal(6, 3),
    )
    reference, suspect = (normalize(x, value, weight, np.zeros(6)) for value in (1e-5, eps))
    assert guess(reference, suspect).startswith("each channel has a factor (")
    assert guess(reference, suspect).endswith("): epsilon or variance of a normalization")
    reference, suspect = (normalize(x, value, weight, bias) for value in (1e-5, eps))
    sentence = "each channel has a factor and an offset: statistics, weight or bias of a normalization"
    assert guess(reference, suspect) == sentence
