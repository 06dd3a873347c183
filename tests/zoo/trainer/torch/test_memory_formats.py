"""Parameters that are not contiguous are trained as contiguous ones are, by every optimizer and in every precision."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.zoo.trainer.tiny_reference import CLASSES, random_batch
from tests.zoo.trainer.torch import adapter
from tests.zoo.trainer.trainer_setup import DECAY, IMAGE, copied_state, update
from zoo import optim
from zoo.data.batch import LABEL
from zoo.optim.ema import Ema
from zoo.tasks import classify
from zoo.trainer.plan import ParamGroup, Plan

FORMATS = {
    "volume": lambda tensor: tensor.to(memory_format=torch.channels_last_3d),
    "matrix": lambda tensor: tensor.t().contiguous().t(),
    "columns": lambda tensor: torch.cat((tensor, tensor), 1)[:, : tensor.shape[1]],  # a part of something larger
}
MODES = (adapter.FP32_MODES[0], adapter.FP64_MODES[0], adapter.FP64_MODES[0]._replace(rounds_gradients=True))


class Net(nn.Module):
    """A convolution of volumes and two matrices: (N, 3, H, W) -> logits (N, CLASSES)."""

    def __init__(self, formats):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        shapes = {"volume": (6, 3, 1, 3, 3), "matrix": (6, 8), "columns": (8, CLASSES)}
        for name, shape in shapes.items():
            values = torch.randn(shape, generator=generator) * 0.3
            self.register_parameter(name, nn.Parameter(formats.get(name, lambda tensor: tensor)(values)))

    def forward(self, image):
        x = torch.nn.functional.conv3d(image[:, :, None], self.volume).mean((2, 3, 4))
        return torch.relu(x @ self.matrix) @ self.columns


def train(formats, mode, name):
    kind = optim.load_settings(name)
    settings = kind(eps=1e-3) if name in ("adamw", "lamb", "muon") else kind()
    group = ParamGroup(1.0, DECAY)
    plan = Plan((IMAGE, LABEL), (), lambda name: group, mode, optimizer=settings, clip_norm=0.5, ema=Ema(0.9))
    trainer = adapter.Trainer(Net, formats, classify.Settings(), plan, adapter.WORLD)
    states = []
    for step in range(3):
        update(trainer, random_batch(seed=step), lr=0.05, step=step)
        states.append(copied_state(trainer))
    return states


@pytest.mark.parametrize("mode", MODES, ids=("fp32", "fp64", "exact"))
@pytest.mark.parametrize("name", optim.OPTIMIZERS)
def test_updates_do_not_depend_on_the_memory_format(mode, name):
    plain, odd = train({}, mode, name), train(FORMATS, mode, name)
    for expected, found in zip(plain, odd, strict=True):
        for key, array in expected.items():
            np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-6, err_msg=key)
    for key in FORMATS:
        assert not np.array_equal(odd[0][key], odd[1][key])
