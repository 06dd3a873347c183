"""Segmentation is the same in every framework: nets, losses, class maps and one update."""

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

INSTALLED = [name for name in FRAMEWORKS if importlib.util.find_spec(name)]
OTHERS = [name for name in INSTALLED if name != "torch"]
EXACT = 1e-5
STATISTICS = 1e-4  # batch statistics of few pixels amplify rounding
TIES = 1e-2  # the gradient of a tensor, where rounding decides whether an activation passes a ReLU


@pytest.fixture(scope="module")
def found(tmp_path_factory):
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


def below(arrays, prefix):
    return {key[len(prefix) :]: value for key, value in arrays.items() if key.startswith(prefix)}


@pytest.mark.parametrize("framework", OTHERS)
@pytest.mark.parametrize("name", worker.NETS)
def test_nets(found, framework, name):
    ours, theirs = (below(found[each], f"{name}/") for each in (framework, "torch"))
    assert ours.keys() == theirs.keys()
    assert {"eval", "train0"} < ours.keys() and ("train1" in ours) == (name != "paddleseg")
    assert ours["eval"].shape == (2, worker.CLASSES, *worker.NETS[name][1])
    assert relative(ours["eval"], theirs["eval"]) <= EXACT
    for key in ours:
        assert relative(ours[key], theirs[key]) <= STATISTICS, key


def test_the_options_are_told_apart(found):
    """Aligned corners, dilations and variants change what comes out of the same pixels and weights."""
    logits = {name: found["torch"][f"{name}/eval"][:, :, :32, :32] for name in worker.NETS}
    for name, values in logits.items():
        assert all(relative(values, other) > 1e-2 for key, other in logits.items() if key != name), name


def reference(name: str, kind: str):
    """Total, count and gradients of an objective in float64, by the definitions in zoo/tasks/segment.py."""
    settings, label = worker.OBJECTIVES[name], worker.labels(kind)
    valid = label != segment.IGNORE_INDEX
    total, gradients = 0.0, []
    for number, logits in enumerate((worker.logits(2), worker.logits(3))):
        wide = logits.astype(np.float64)
        share = np.exp(wide) / np.exp(wide).sum(1, keepdims=True)
        truth = np.moveaxis(np.eye(worker.CLASSES)[np.where(valid, label, 0)], -1, 1)
        own = (share * truth).sum(1)
        weights = valid.astype(np.float64) * (settings.aux_weight if number else 1)
        if number == 0 and settings.ohem_kept:
            kept = settings.ohem_kept * len(label)
            hardest = np.sort(own[valid])
            if settings.ohem_threshold is not None:
                edge = hardest[min(kept, len(hardest) - 1)] if len(hardest) else 0
                weights *= own < max(edge, settings.ohem_threshold)
            elif len(hardest):
                weights *= own <= hardest[min(kept, len(hardest)) - 1]
        total += (weights * -np.log(own)).sum()
        gradients.append(weights[:, None] * (share - truth))
    return total, label.size if settings.average == "all" else valid.sum(), gradients


@pytest.mark.parametrize("framework", INSTALLED)
@pytest.mark.parametrize("kind", worker.LABELS)
@pytest.mark.parametrize("name", worker.OBJECTIVES)
def test_losses_are_their_formula(found, framework, name, kind):
    total, count, gradients = reference(name, kind)
    ours = below(found[framework], f"{name}/{kind}/")
    np.testing.assert_allclose(ours["total"], total, rtol=1e-5, atol=1e-9)
    assert ours["count"] == count
    for key, expected in zip(("by_first", "by_second"), gradients):
        np.testing.assert_allclose(ours[key], expected, atol=2e-6)
    if kind == "ignored":
        assert total == 0 and not ours["by_first"].any()


def test_the_mining_options_keep_different_pixels():
    """Otherwise agreement would say nothing about them."""
    kept = {name: np.count_nonzero(reference(name, "mixed")[2][0].any(1)) for name in worker.OBJECTIVES}
    assert kept["hardest"] == 600 and kept["threshold"] > 2 * 30 and kept["threshold_many"] == 2 * 700
    assert kept["valid"] == kept["all"] == np.count_nonzero(worker.labels("mixed") != 255) > 2000


def resized(values: np.ndarray, size) -> np.ndarray:
    """Bilinear with aligned corners, in float64: (N, K, h, w) -> (N, K, *size)."""
    for axis, length in zip((2, 3), size):
        places = np.linspace(0, values.shape[axis] - 1, length)
        low = np.minimum(places.astype(int), values.shape[axis] - 2)
        share = (places - low).reshape([-1 if i == axis else 1 for i in range(4)])
        values = values.take(low, axis) * (1 - share) + values.take(low + 1, axis) * share
    return values


def mapped(settings, images, size) -> np.ndarray:
    """The scores behind a class map (N, K, H, W), by the definition in zoo/tasks/segment.py."""
    output, total, passes = segment.output(settings), 0, len(images) * (1 + settings.flip)
    for image in images:
        for mirrored in (False, True)[: 1 + settings.flip]:
            view = image[:, :, ::-1] if mirrored else image
            shape = (len(view), worker.CLASSES, *view.shape[1:3])
            scores, seen = np.zeros(shape), np.zeros(view.shape[1:3])
            for top, bottom, left, right in segment.windows(view.shape[1:3], output):
                scores[:, :, top:bottom, left:right] += worker.fixed_net(view[:, top:bottom, left:right])
                seen[top:bottom, left:right] += 1
            scores = scores / seen
            scores = resized(scores[..., ::-1] if mirrored else scores, size)
            total = total + (scores if passes == 1 else np.exp(scores) / np.exp(scores).sum(1, keepdims=True))
    return total


@pytest.mark.parametrize("framework", INSTALLED)
@pytest.mark.parametrize("name", worker.OUTPUTS)
def test_class_maps_are_what_they_are_defined_as(found, framework, name):
    settings = worker.OUTPUTS[name]
    for case, images, size in (
        ("one", [worker.pictures()], worker.SIZE),
        ("two", [worker.pictures(), worker.scaled()], worker.SIZE),
        ("larger", [worker.pictures()], (55, 80)),
    ):
        scores, ours = mapped(settings, images, size), found[framework][f"{name}/{case}"]
        assert ours.dtype == np.uint8 and ours.shape == (2, *size)
        best = np.sort(scores, 1)
        clear = best[:, -1] - best[:, -2] > 1e-5  # elsewhere rounding may decide
        assert clear.mean() > 0.99 and len(np.unique(ours)) == worker.CLASSES
        assert np.array_equal(ours[clear], scores.argmax(1)[clear]), case


def test_the_passes_matter(found):
    maps = [found["torch"][f"{name}/{case}"] for name in worker.OUTPUTS for case in ("one", "two")]
    assert all((a != b).mean() > 0.01 for i, a in enumerate(maps) for b in maps[:i])


@pytest.mark.parametrize("framework", OTHERS)
def test_one_update(found, framework):
    """Clipping aside, which tests/zoo/trainer/test_parity.py has: loss, every weight and statistic; gradients but for ties."""
    ours, theirs = (below(found[each], "update/mixed/") for each in (framework, "torch"))
    assert ours.keys() == theirs.keys()
    np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=1e-5)
    np.testing.assert_allclose(ours["grad_norm"], theirs["grad_norm"], rtol=1e-3)
    momenta = [key for key in theirs if key.startswith("momentum/")]
    for key in theirs:
        if key not in momenta and key not in ("loss", "grad_norm") and "scaler/" not in key:
            assert relative(ours[key], theirs[key]) <= 1e-4, key
    spread = [np.linalg.norm(ours[key] - theirs[key]) / np.linalg.norm(theirs[key]) for key in momenta]
    assert np.median(spread) <= TIES, sorted(spread)[-5:]


@pytest.mark.parametrize("framework", INSTALLED)
def test_a_batch_without_a_label_changes_nothing_but_statistics(found, framework):
    """No loss, no gradient, no NaN; weight decay still shrinks the weights, as in every update."""
    after = below(found[framework], "update/ignored/")
    assert after["loss"] == 0 and after["grad_norm"] == 0 and after["scaler/skipped"] == 0
    assert all(np.isfinite(value).all() for value in after.values())
    start = {
        name: worker.drawn(name, value.shape)
        for name, value in after.items()
        if not name.startswith(("momentum/", "scaler/")) and name not in ("loss", "grad_norm")
    }
    for name, value in start.items():
        if ".running_" not in name:
            np.testing.assert_allclose(after[name], value * (1 - worker.RATE * 1e-3), rtol=1e-6, atol=1e-9)
    assert any(not np.array_equal(after[name], value) for name, value in start.items() if ".running_" in name)
