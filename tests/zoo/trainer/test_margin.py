"""The margin objective in PyTorch against its definition in float64: values, gradients, and the awkward angles."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.zoo.trainer.margin_reference import loss_and_gradients, target_logit
from zoo.tasks import face

torch = pytest.importorskip("torch")
from zoo.trainer.torch.margin import Margin, margin

KINDS = {
    "arcface": {},
    "no threshold": {"threshold": False},
    "cosface": {"m2": 0.0, "m3": 0.4},
    "sphereface": {"m1": 1.35, "m2": 0.0, "threshold": False},
    "combined": {"m1": 1.1, "m2": 0.2, "m3": 0.15, "threshold": False},
    "filter": {"interclass": 0.2},
    "straight": {"gradient": "straight"},
}


def settings(**changes):
    return face.objective(face.Settings(**{"scale": 16.0, **changes}))


def run(x, weight, labels, chosen):
    """Loss and gradients by our objective, in one process."""
    arch = SimpleNamespace(num_classes=len(weight), embedding=weight.shape[1])
    world = SimpleNamespace(rank=0, size=1, torch_device=torch.device("cpu"))
    objective = Margin(chosen, arch, SimpleNamespace(seed=1), world)
    objective.shard.values.data.copy_(torch.from_numpy(weight))
    output = torch.from_numpy(x).requires_grad_()
    (part,) = objective.begin([{"label": torch.from_numpy(labels)}], 0)
    loss = objective.total(output, part)
    loss.backward()
    return float(loss.detach()), output.grad.numpy(), objective.shard.values.grad.numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients(kind):
    rng, chosen = np.random.default_rng(3), settings(**KINDS[kind])
    x, weight = rng.standard_normal((24, 8), np.float32), rng.standard_normal((11, 8), np.float32)
    labels = rng.integers(0, 11, 24)
    for mine, true in zip(run(x, weight, labels, chosen), loss_and_gradients(x, weight, labels, chosen)):
        np.testing.assert_allclose(mine, true, rtol=2e-5, atol=2e-6 * np.abs(true).max())


@pytest.mark.parametrize("kind", KINDS)
def test_target_logits(kind):
    """The formula's values to 1e-6 of the scale, the ends and the threshold included."""
    chosen, turn = settings(**KINDS[kind]), face.turning_point(0.5)
    cosines = np.concatenate([np.linspace(-1, 1, 4001), [turn, turn - 1e-4, turn + 1e-4, 1 - 1e-7, -1 + 1e-7]])
    cosines = cosines.astype(np.float32)
    value, slope = (array.numpy() for array in margin(torch.from_numpy(cosines), chosen))
    true, true_slope = target_logit(cosines, chosen)
    clear = np.abs(cosines - turn) > 1e-6  # there the two sides of the threshold differ
    np.testing.assert_allclose(value[clear], true[clear], atol=1e-6)
    inner = clear & (np.abs(cosines) < 1 - 1e-5)
    np.testing.assert_allclose(slope[inner], true_slope[inner], rtol=1e-4, atol=1e-4)
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_coincide_with_embeddings(kind):
    """cos = 1 and cos = -1, with the own class and with others: finite values and gradients everywhere."""
    weight = np.eye(4, 6, dtype=np.float32) * 3
    x = np.concatenate([weight, -weight])
    labels = np.array([0, 1, 3, 2, 0, 1, 3, 2])
    chosen = settings(**KINDS[kind])
    loss, to_x, to_weight = run(x, weight, labels, chosen)
    assert loss == pytest.approx(loss_and_gradients(x, weight, labels, chosen)[0], rel=1e-6)
    assert np.isfinite(to_x).all() and np.isfinite(to_weight).all()


def test_the_threshold_keeps_the_target_logit_falling():
    cosines = torch.linspace(1, -1, 2001)
    kept, risen = margin(cosines, settings())[0], margin(cosines, settings(threshold=False))[0]
    assert (kept[1:] < kept[:-1]).all() and not (risen[1:] < risen[:-1]).all()


def test_an_untrained_loss():
    """ln C + scale * sin m2, where all cosines are 0."""
    weight, x = np.zeros((1000, 4), np.float32), np.zeros((2, 4), np.float32)
    weight[:, 0], x[:, 1] = 1, 1
    loss, _, _ = run(x, weight, np.array([7, 900]), settings(scale=64.0))
    # Of the target, exp(-64 sin 0.5) is left in the sum, so ln 999 and not ln 1000.
    assert loss / 2 == pytest.approx(np.log(999) + 64 * np.sin(0.5), rel=1e-6)
