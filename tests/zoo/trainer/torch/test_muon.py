"""Muon beside torch.optim.Muon, which has it for matrices, in fp32 as here and in its own bfloat16."""

import numpy as np
import pytest

from zoo import optim
from zoo.optim.base import Math
from zoo.trainer import numpy_ops

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this PyTorch has no Muon")
SHAPES = [(16, 3, 3, 3), (4, 16, 3, 3), (12, 12, 1, 1)]  # more columns than rows, fewer, as many
LR, DECAY = 0.02, 0.1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("precision, tolerance", [("fp32", 1e-5), ("bf16", 0.08)])
def test_updates_are_those_of_pytorch(shape, precision, tolerance, monkeypatch):
    if precision == "fp32":
        monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor)
    rng = np.random.default_rng(0)
    weight = (rng.standard_normal(shape) * 0.05).astype(np.float32)
    slots, squares = tuple(np.zeros_like(weight) for _ in range(2)), 0.0
    theirs = torch.nn.Parameter(torch.from_numpy(weight.reshape(len(weight), -1).copy()))
    optimizer = torch.optim.Muon([theirs], lr=LR, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw")
    spec = optim.load_settings("muon")()
    for number in range(5):
        gradient = rng.standard_normal(shape).astype(np.float32)
        step, slots = spec.direction(Math(numpy_ops), weight, gradient, slots, DECAY, number + 1)
        weight = weight - np.float32(LR) * step
        theirs.grad = torch.from_numpy(gradient.reshape(len(gradient), -1).copy())
        optimizer.step()
        expected = theirs.detach().numpy().reshape(shape)
        assert np.abs(weight - expected).max() <= tolerance * LR * np.abs(step).max() * (number + 1)
        assert np.allclose(slots[1], squares := spec.beta2 * squares + (1 - spec.beta2) * gradient**2)  # AdamW's


def test_other_parameters_have_adamw():
    rng = np.random.default_rng(0)
    for shape in ((8,), (8, 5)):
        weight, gradient, mean = (rng.standard_normal(shape) for _ in range(3))
        square = rng.random(shape)
        updates = [
            optim.load_settings(name)().direction(Math(numpy_ops), weight, gradient, (mean, square), DECAY, 3)
            for name in ("muon", "adamw")
        ]
        np.testing.assert_array_equal(updates[0][0], updates[1][0])
        np.testing.assert_array_equal(updates[0][1], updates[1][1])
