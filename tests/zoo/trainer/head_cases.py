"""The cases of class matrices too large for fp32 products and whole logits, in every framework (test_trainer.py).

Truth is the definition in numpy and float64 (zoo/compare/reference), and the same update with whole logits.
"""

from unittest import mock

import numpy as np
import pytest

from tests.zoo.trainer.margin_cases import (
    CLASSES,
    DIFFERENT,
    HEAD,
    VARIANTS,
    assert_loss_and_gradients,
    assert_unchanged,
    copied_state,
    make,
    objective,
    random_batch,
    update,
)
from zoo.compare.reference.margin import loss_and_gradients
from zoo.trainer import margin
from zoo.trainer.plan import Mode

# Largest error of a gradient, relative to its largest element, from operands that are rounded to 2^-11 and 2^-8 of
# themselves; PyTorch's is a quarter of it.
TOLERANCES = {"fp16": 2e-3, "bf16": 2e-2}


def chunks_of(backend, elements):
    """Return a context in which so many logits are held at once."""
    return mock.patch.object(margin, "CHUNK_ELEMENTS", elements)


def random_head(samples=24, classes=11, width=8, seed=3):
    rng = np.random.default_rng(seed)
    x, weight = rng.standard_normal((samples, width), np.float32), rng.standard_normal((classes, width), np.float32)
    return x, weight, rng.integers(0, classes, samples)


def relative_errors(results, expected):
    return [np.abs(result - value).max() / np.abs(value).max() for result, value in zip(results, expected)]


def case_products_of_16_bits_follow_the_definition(backend):
    """Without the class filter, which no rounding may cross."""
    x, weight, labels = random_head()
    for compute, tolerance in TOLERANCES.items():
        errors = []
        for variant in ("arcface", "combined", "straight", "adaface"):
            settings = objective(**VARIANTS[variant])
            results = backend.margin_loss(x, weight, labels, settings, Mode(compute, "O1", True, False))
            errors.append(relative_errors(results, loss_and_gradients(x, weight, labels, settings)))
        largest = np.max(errors, axis=0)
        assert largest.max() <= tolerance, (compute, errors)
        # Otherwise products were in 32 bits: those of the forward pass, or those of the backward pass.
        assert (largest >= tolerance * np.array([1e-3, 1e-2, 1e-2])).all(), (compute, errors)


def case_the_softmax_is_in_32_bits(backend):
    """Gradients of rows with probabilities down to 1e-6, and of rows whose elements fp16 could not hold."""
    x, weight, labels = random_head(classes=2000)
    settings = objective()
    for compute, length in (("fp16", 1.0), ("bf16", 1.0), ("fp16", 1e-7)):
        rows = (weight * length).astype(np.float32)
        results = backend.margin_loss(x, rows, labels, settings, Mode(compute, "O1", True, False))
        loss, _, expected = loss_and_gradients(x, rows, labels, settings)
        assert results[0] == pytest.approx(loss, rel=1e-3)
        sizes = np.linalg.norm(expected, axis=1)
        seen = sizes * np.linalg.norm(rows, axis=1) > 16 * 1e-6
        errors = np.linalg.norm(results[2] - expected, axis=1)[seen] / sizes[seen]
        assert seen.sum() > 1000 and errors.max() < 0.2, (compute, length, errors.max())


def case_many_samples_of_one_class_do_not_overflow(backend):
    """As sums of gradients with results in fp16, where each sample's is as large as it can be."""
    _, weight, _ = random_head()
    x, labels = np.repeat(-weight[:1], 40, 0), np.zeros(40, np.int64)
    results = backend.margin_loss(x, weight, labels, objective(), Mode("fp16", "O1", True, False))
    loss, _, expected = loss_and_gradients(x, weight, labels, objective())
    assert results[0] == pytest.approx(loss, rel=1e-3)
    assert max(relative_errors(results[2:], [expected])) <= TOLERANCES["fp16"]


def case_chunks_of_logits_follow_the_definition(backend):
    """Chunks of four of the eleven classes, and of one."""
    x, weight, labels = random_head()
    for elements, variants in ((4 * len(x), DIFFERENT), (1, ("filter",))):
        with chunks_of(backend, elements):
            for variant in variants:
                settings = objective(**VARIANTS[variant])
                assert_loss_and_gradients(backend, backend.FP32_MODES[0], x, weight, labels, settings, variant)


def case_chunks_of_logits_in_16_bits(backend):
    x, weight, labels = random_head()
    for compute in TOLERANCES:
        mode = Mode(compute, "O1", True, False)
        expected = backend.margin_loss(x, weight, labels, objective(), mode)
        with chunks_of(backend, 4 * len(x)):
            results = backend.margin_loss(x, weight, labels, objective(), mode)
        assert max(relative_errors(results, expected)) <= backend.PRODUCT_RTOL, compute


def case_chunked_updates_are_those_of_whole_logits(backend):
    """With all rows of the class matrix and with sampled ones; an infinite row of the last chunk skips the update."""
    for rate in (1.0, 0.5):
        task = {"sample_rate": rate}
        whole, chunked = (make(backend, classes=60, task=task, clip_norm=1.0) for _ in range(2))
        for step in range(2):
            batch = random_batch(seed=step, classes=60)
            expected = update(whole, batch, step=step)
            with chunks_of(backend, 12 * 7):
                assert update(chunked, batch, step=step) == pytest.approx(expected, rel=1e-5)
        state, expected = copied_state(chunked), whole.state_dict()
        for name, value in expected.items():
            np.testing.assert_allclose(state[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    infinite = state[HEAD].copy()
    infinite[-1] = np.inf
    chunked.load_state_dict({HEAD: infinite})
    with chunks_of(backend, 12 * 7):
        last = {**random_batch(classes=60), "label": np.full(12, 59)}
        assert update(chunked, last, step=2)["consecutive_skips"] == 1
    assert_unchanged(chunked.state_dict(), {**state, HEAD: infinite})


def case_whole_logits_are_held_below_the_limit(backend):
    """The same bits with a limit of exactly the logits of an update."""
    x, weight, labels = random_head()
    mode = backend.FP32_MODES[0]
    expected = backend.margin_loss(x, weight, labels, objective(), mode)
    with chunks_of(backend, len(x) * CLASSES):
        results = backend.margin_loss(x, weight, labels, objective(), mode)
    for result, value in zip(results, expected):
        np.testing.assert_array_equal(result, value)
