"""zoo/compare/proof.py: gradients of 0, what must stay in fp32, rounding of exact runs, and sizes made small."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from tests.helpers.paths import ROOT
from tests.zoo.trainer.tiny_reference import CLASSES, random_batch
from tests.zoo.trainer.torch import adapter
from tests.zoo.trainer.trainer_setup import IMAGE, assert_equal, copied_state
from zoo.compare import proof
from zoo.data.batch import LABEL
from zoo.parity.record import Call, empty
from zoo.tasks import classify, segment
from zoo.trainer import margin, numpy_ops, update
from zoo.trainer.plan import ParamGroup, Plan
from zoo.trainer.torch import cpu_layers


class Residual(nn.Module):
    """A classifier and a branch beside it, relu(x @ first) @ second: (N, 3, H, W) -> logits."""

    def __init__(self, arch):
        super().__init__()
        self.fc = nn.Linear(3, CLASSES)
        self.first, self.second = nn.Parameter(torch.zeros(3, 4)), nn.Parameter(torch.zeros(4, CLASSES))

    def forward(self, image):
        x = image.mean((2, 3))
        return self.fc(x) + torch.relu(x @ self.first) @ self.second


@pytest.mark.parametrize("drawn, expected", [((), ["first", "second"]), (("first",), []), (("first", "second"), [])])
def test_a_branch_of_zeros_gets_no_gradient(drawn, expected):
    """With only the last layer of zeros, the first one gets a gradient from the second update on."""
    plan = Plan((IMAGE, LABEL), (), lambda name: ParamGroup(1.0, 0.0), adapter.FP32_MODES[0])
    trainer = adapter.Trainer(Residual, None, classify.Settings(), plan, adapter.WORLD)
    before, weights = copied_state(trainer), {"first": (3, 4), "second": (4, CLASSES), "fc.weight": (CLASSES, 3)}
    rng = np.random.default_rng(0)
    kept = {name: rng.normal(0, 1, shape if name in (*drawn, "fc.weight") else 0) for name, shape in weights.items()}
    initial = {name: kept[name] if kept[name].size else np.zeros(shape) for name, shape in weights.items()}
    batches = [trainer.to_device(random_batch(seed=seed)) for seed in range(proof.UPDATES)]
    assert proof._without_gradient(trainer, initial, batches, 0.1) == expected
    assert_equal(copied_state(trainer), before)


@pytest.mark.parametrize("size", proof.NEARBY.values())
def test_how_far_gradients_are_spread_at_nearby_weights(size, monkeypatch):
    """Of several points the farthest counts."""
    plan = Plan((IMAGE, LABEL), (), lambda name: ParamGroup(1.0, 0.0), adapter.FP32_MODES[0])
    trainer = adapter.Trainer(Residual, None, classify.Settings(), plan, adapter.WORLD)
    before, batch = copied_state(trainer), trainer.to_device(random_batch())
    rng = np.random.default_rng(0)
    weights = {param.name: rng.normal(0, 1, before[param.name].shape).astype(np.float32) for param in trainer.params}
    spreads = []
    for draws in (1, 2, 3, 20):
        monkeypatch.setattr(proof, "DRAWS", draws)
        spreads.append(proof._spread(trainer, weights, [batch], 0.1, size)["fc.weight"])
    assert_equal(copied_state(trainer), before)
    assert 0 < spreads[0] < spreads[-1] < 10 * size
    assert spreads == sorted(spreads)


@pytest.mark.parametrize("precision, dtype", [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_numbers_of_16_bits_where_fp32_should_be(precision, dtype):
    fine = np.random.default_rng(0).standard_normal(50)
    coarse = torch.from_numpy(fine).to(dtype).double().numpy()

    def found(loss, output, eval_mixed=False, evaluated=fine):
        plan = SimpleNamespace(fp32_modules=("fc",), eval_mixed=eval_mixed, output=classify.Scores())
        record = empty("torch", precision, {})
        for title, value in (("training", output), ("evaluation", evaluated)):
            record.passes[title] = [Call(f"{title}/0", "fc", 0, "Linear", (), (), 1, 1, (1, 2))]
            record.add(f"{title}/0/out0", value)
        record.steps.append({"loss": loss})
        record.add("prediction", coarse)
        return proof._coarse(record, SimpleNamespace(plan=plan))

    assert found(fine[0], fine, eval_mixed=True) == []
    assert found(fine[0], fine) == ["the prediction"]
    assert found(fine[0], fine, evaluated=coarse) == ["the output in evaluation", "the prediction"]
    assert found(coarse[0], coarse) == ["the output of fc", "the loss", "the prediction"]


def test_larger_images_are_predicted_in_windows_and_mirrored():
    images, seen = np.random.default_rng(0).integers(0, 256, (2, 8, 10, 3)).astype(np.float64), []

    def forward(pixels):
        seen.append(pixels)
        return np.moveaxis(pixels, 3, 1) / 256

    plan = Plan((IMAGE, LABEL), (), lambda name: ParamGroup(1.0, 0.0), adapter.FP32_MODES[0], output=segment.ClassMap())
    arch = SimpleNamespace(align_corners=False)
    trainer = SimpleNamespace(plan=plan, to_device=lambda batch: batch)
    trainer.predict = lambda batch, size: trainer.plan.output.predict(numpy_ops, arch, forward, [*batch.values()], size)
    found = proof._predict_windows(trainer, "image", images)
    assert found.shape == (2, 3, 7, 6) and np.allclose(found.sum(1), 1) and trainer.plan is plan
    top, bottom, *mirrored = seen
    assert np.array_equal(top, images) and np.array_equal(bottom, np.roll(images, 4, 1))
    assert np.array_equal(mirrored, [top[:, :, ::-1], bottom[:, :, ::-1]])


def test_gradients_of_exact_runs_are_rounded():
    gradients = list(np.random.default_rng(0).standard_normal((200, 50))) + [np.zeros(3)]
    rounded = update.round_gradients(numpy_ops, gradients, [gradients[0] * 1e3])
    assert all(map(proof._is_rounded, rounded)) and not any(map(proof._is_rounded, gradients[:-1]))


def test_sizes_are_small_for_a_while(monkeypatch):
    monkeypatch.setitem(proof.SMALL_SIZES, "zoo.trainer.no_such_framework", {"SIZE": 1})
    before = margin.CHUNK_ELEMENTS, cpu_layers.NORM_SUMS
    with proof._small_sizes():
        assert (margin.CHUNK_ELEMENTS, cpu_layers.NORM_SUMS) == (1009, 251)
    assert before == (margin.CHUNK_ELEMENTS, cpu_layers.NORM_SUMS)


def test_every_size_that_is_made_small_exists():
    for module, sizes in proof.SMALL_SIZES.items():
        text = Path(ROOT, *module.split(".")).with_suffix(".py").read_text()
        assert all(f"\n{name} = " in text for name in sizes), module
