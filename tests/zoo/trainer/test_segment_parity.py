"""Segmentation is the same in every framework: models, losses, class maps and one update."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from tests.zoo.models.tsm.golden import relative
from tests.zoo.trainer import segment_worker as worker
from zoo.frameworks import FRAMEWORKS
from zoo.tasks import segment

pytestmark = pytest.mark.slow

INSTALLED = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
OTHERS = [name for name in INSTALLED if name != "torch"]
EXACT = 1e-5
STATISTICS = 1e-4  # batch statistics of few pixels amplify rounding
TIES = 1e-2  # the gradient of a tensor, where rounding decides whether an activation passes a ReLU


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Framework -> its arrays."""
    folder = tmp_path_factory.mktemp("segment")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-m", "tests.zoo.trainer.segment_worker", name, folder / f"{name}.npz"],
            cwd=ROOT,
            env=environment,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for name in INSTALLED
    }
    arrays = {}
    try:
        for name, process in processes.items():
            _, errors = process.communicate(timeout=600)
            assert process.returncode == 0, errors
            with np.load(folder / f"{name}.npz") as file:
                arrays[name] = dict(file)
    finally:
        for process in processes.values():
            process.kill()
    return arrays


def with_prefix(arrays, prefix):
    return {key[len(prefix) :]: value for key, value in arrays.items() if key.startswith(prefix)}


@pytest.mark.parametrize("framework", OTHERS)
@pytest.mark.parametrize("name", worker.MODELS)
def test_logits_and_statistics_agree(results, framework, name):
    ours, expected = (with_prefix(results[each], f"{name}/") for each in (framework, "torch"))
    assert ours.keys() == expected.keys()
    assert {"eval", "train0"} < ours.keys() and ("train1" in ours) == (name != "paddleseg")
    assert ours["eval"].shape == (2, worker.CLASSES, *worker.MODELS[name][1])
    assert relative(ours["eval"], expected["eval"]) <= EXACT
    for key in ours:
        assert relative(ours[key], expected[key]) <= STATISTICS, key


def test_every_option_changes_the_logits(results):
    """Aligned corners, dilations and variants, from the same pixels and weights."""
    logits = {name: results["torch"][f"{name}/eval"][:, :, :32, :32] for name in worker.MODELS}
    for name, values in logits.items():
        assert all(relative(values, other) > 1e-2 for key, other in logits.items() if key != name), name


def reference(name: str, content: str):
    """Return total, count and gradients of an objective in float64, by the definitions in zoo/tasks/segment.py."""
    settings, label = worker.OBJECTIVES[name], worker.random_mask(content)
    valid = label != segment.IGNORE_INDEX
    total, gradients = 0.0, []
    for head, logits in enumerate((worker.random_logits(2), worker.random_logits(3))):
        powers = np.exp(logits.astype(np.float64))
        probabilities = powers / powers.sum(1, keepdims=True)
        one_hot = np.moveaxis(np.eye(worker.CLASSES)[np.where(valid, label, 0)], -1, 1)
        target_probabilities = (probabilities * one_hot).sum(1)
        target = (1 - settings.label_smoothing) * one_hot + settings.label_smoothing / worker.CLASSES
        losses = -(target * np.log(probabilities)).sum(1)
        weights = valid.astype(np.float64) * (settings.aux_weight if head else 1)
        if head == 0 and settings.ohem_kept:
            kept = settings.ohem_kept * len(label)
            if settings.ohem_threshold is not None:
                hardest = np.sort(target_probabilities[valid])
                edge = hardest[min(kept, len(hardest) - 1)] if len(hardest) else 0
                weights *= target_probabilities < max(edge, settings.ohem_threshold)
            elif valid.any():
                hardest = np.sort(losses[valid])[::-1]
                weights *= losses >= hardest[min(kept, len(hardest)) - 1]
        total += (weights * losses).sum()
        gradients.append(weights[:, None] * (probabilities - target))
    return total, label.size if settings.average == "all" else valid.sum(), gradients


@pytest.mark.parametrize("framework", INSTALLED)
@pytest.mark.parametrize("content", worker.MASKS)
@pytest.mark.parametrize("name", worker.OBJECTIVES)
def test_losses_follow_their_formula(results, framework, name, content):
    total, count, gradients = reference(name, content)
    ours = with_prefix(results[framework], f"{name}/{content}/")
    np.testing.assert_allclose(ours["total"], total, rtol=1e-5, atol=1e-9)
    assert ours["count"] == count
    for key, expected in zip(("to_first", "to_second"), gradients):
        np.testing.assert_allclose(ours[key], expected, atol=2e-6)
    if content == "ignored":
        assert total == 0 and not ours["to_first"].any()


def test_every_mining_option_keeps_other_pixels():
    """Otherwise agreement would not test the options."""
    kept = {name: np.count_nonzero(reference(name, "mixed")[2][0].any(1)) for name in worker.OBJECTIVES}
    assert (
        kept["hardest"] == kept["smoothed_hardest"] == 600
        and kept["threshold"] > 2 * 30
        and kept["threshold_many"] == 2 * 700
    )
    assert kept["valid"] == kept["all"] == np.count_nonzero(worker.random_mask("mixed") != 255) > 2000


def resize(values: np.ndarray, size) -> np.ndarray:
    """Resize (N, K, h, w) to (N, K, *size), bilinear with aligned corners, in float64."""
    for axis, length in zip((2, 3), size):
        positions = np.linspace(0, values.shape[axis] - 1, length)
        low = np.minimum(positions.astype(int), values.shape[axis] - 2)
        fraction = (positions - low).reshape([-1 if i == axis else 1 for i in range(4)])
        values = values.take(low, axis) * (1 - fraction) + values.take(low + 1, axis) * fraction
    return values


def class_scores(settings, images, size) -> np.ndarray:
    """Return the scores behind a class map, (N, K, H, W), by the definition in zoo/tasks/segment.py."""
    output, total, passes = segment.output(settings), 0, len(images) * (1 + settings.flip)
    for image in images:
        for mirrored in (False, True)[: 1 + settings.flip]:
            view = image[:, :, ::-1] if mirrored else image
            shape = (len(view), worker.CLASSES, *view.shape[1:3])
            scores, counts = np.zeros(shape), np.zeros(view.shape[1:3])
            for top, bottom, left, right in segment.windows(view.shape[1:3], output):
                scores[:, :, top:bottom, left:right] += worker.fixed_model(view[:, top:bottom, left:right])
                counts[top:bottom, left:right] += 1
            scores = scores / counts
            scores = resize(scores[..., ::-1] if mirrored else scores, size)
            total = total + (scores if passes == 1 else np.exp(scores) / np.exp(scores).sum(1, keepdims=True))
    return total


@pytest.mark.parametrize("framework", INSTALLED)
@pytest.mark.parametrize("name", worker.OUTPUTS)
def test_class_maps_follow_their_definition(results, framework, name):
    images, small = worker.random_images(), worker.random_small_images()
    for case, scales, size in (
        ("one", [images], worker.SIZE),
        ("two", [images, small], worker.SIZE),
        ("larger", [images], (55, 80)),
    ):
        scores, ours = class_scores(worker.OUTPUTS[name], scales, size), results[framework][f"{name}/{case}"]
        assert ours.dtype == np.uint8 and ours.shape == (2, *size)
        ranked = np.sort(scores, 1)
        clear = ranked[:, -1] - ranked[:, -2] > 1e-5  # elsewhere rounding may decide
        assert clear.mean() > 0.99 and len(np.unique(ours)) == worker.CLASSES
        assert np.array_equal(ours[clear], scores.argmax(1)[clear]), case


def test_every_option_changes_the_class_map(results):
    maps = [results["torch"][f"{name}/{case}"] for name in worker.OUTPUTS for case in ("one", "two")]
    assert all((a != b).mean() > 0.01 for i, a in enumerate(maps) for b in maps[:i])


@pytest.mark.parametrize("framework", OTHERS)
def test_one_update_agrees(results, framework):
    """Without clipping, which test_parity.py has: loss, every weight and statistic; gradients but for ties."""
    ours, expected = (with_prefix(results[each], "update/mixed/") for each in (framework, "torch"))
    assert ours.keys() == expected.keys()
    np.testing.assert_allclose(ours["loss"], expected["loss"], rtol=1e-5)
    np.testing.assert_allclose(ours["grad_norm"], expected["grad_norm"], rtol=1e-3)
    momenta = [key for key in expected if key.startswith("optimizer/momentum/")]
    for key in expected:
        if key not in momenta and key not in ("loss", "grad_norm") and "scaler/" not in key:
            assert relative(ours[key], expected[key]) <= 1e-4, key
    differences = [np.linalg.norm(ours[key] - expected[key]) / np.linalg.norm(expected[key]) for key in momenta]
    assert np.median(differences) <= TIES, sorted(differences)[-5:]


@pytest.mark.parametrize("framework", INSTALLED)
def test_a_batch_without_a_label_changes_statistics_alone(results, framework):
    """No loss, no gradient, no NaN; weight decay still shrinks the weights, as in every update."""
    after = with_prefix(results[framework], "update/ignored/")
    assert after["loss"] == 0 and after["grad_norm"] == 0 and after["scaler/skipped"] == 0
    assert all(np.isfinite(value).all() for value in after.values())
    before = {
        name: worker.drawn(name, value.shape)
        for name, value in after.items()
        if not name.startswith(("optimizer/momentum/", "scaler/")) and name not in ("loss", "grad_norm")
    }
    for name, value in before.items():
        if ".running_" not in name:
            np.testing.assert_allclose(after[name], value * (1 - worker.LR * 1e-3), rtol=1e-6, atol=1e-9)
    assert any(not np.array_equal(after[name], value) for name, value in before.items() if ".running_" in name)
