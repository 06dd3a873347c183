"""zoo/compare/proof.py: parameters without a gradient from the initial weights, and what must stay in fp32."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from tests.zoo.trainer.tiny_reference import CLASSES, random_batch
from tests.zoo.trainer.torch import adapter
from tests.zoo.trainer.trainer_setup import IMAGE, assert_equal, copied_state
from zoo.compare import proof
from zoo.data.batch import LABEL
from zoo.parity.record import Call, empty
from zoo.tasks import classify
from zoo.trainer.plan import ParamGroup, Plan


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


@pytest.mark.parametrize("precision, dtype", [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_numbers_of_16_bits_where_fp32_should_be(precision, dtype):
    fine = np.random.default_rng(0).standard_normal(50)
    coarse = torch.from_numpy(fine).to(dtype).double().numpy()

    def found(loss, output, eval_mixed=False):
        plan = SimpleNamespace(fp32_modules=("fc",), eval_mixed=eval_mixed, output=classify.Scores())
        record = empty("torch", precision, {})
        record.passes["training"] = [Call("training/0", "fc", 0, "Linear", (), (), 1, 1, (1, 2))]
        record.steps.append({"loss": loss})
        record.add("training/0/out0", output)
        record.add("prediction", coarse)
        return proof._coarse(record, SimpleNamespace(plan=plan))

    assert found(fine[0], fine, eval_mixed=True) == []
    assert found(fine[0], fine) == ["the prediction"]
    assert found(coarse[0], coarse) == ["the output of fc", "the loss", "the prediction"]
