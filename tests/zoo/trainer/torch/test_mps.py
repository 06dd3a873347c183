"""Apple's GPUs, without one: their precisions, one process, and updates and predictions without a float64 number."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.zoo.trainer.torch import adapter
from tests.zoo.trainer.trainer_setup import make_model, random_inputs
from zoo.data.errors import UserError
from zoo.optim import load_settings
from zoo.optim.ema import Ema
from zoo.trainer.plan import Mode
from zoo.trainer.torch import ops, optimizer, start
from zoo.trainer.world import Launch, UnsupportedPrecision

MODELS = {  # name: options, shape of a sample, task
    "resnet": ({"depth": 18, "width": 8}, (16, 16, 3), {"label_smoothing": 0.1}),
    "tsm": ({"depth": 18, "width": 8}, (2, 16, 16, 3), {}),
    "deeplabv3plus": ({"depth": 18, "width": 8}, (32, 32, 3), {}),
    "arcface": ({"variant": "insightface", "depth": 18, "width": 8, "embedding": 8}, (16, 16, 3), {}),
}


class NoFloat64(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        wide = [leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64]
        assert not wide, f"{function} makes a float64 tensor"
        return found


@pytest.fixture
def without_float64(monkeypatch):
    monkeypatch.setattr(ops, "widest", lambda device: torch.float32)
    monkeypatch.setattr(optimizer, "KERNELS", {})


@pytest.mark.parametrize(
    "name, optim", [*((name, "sgd") for name in MODELS), *(("resnet", o) for o in ("adamw", "lars", "lamb"))]
)
def test_nothing_is_computed_in_float64(name, optim, without_float64):
    options, shape, task = MODELS[name]
    extra = {"optimizer": load_settings(optim)(), "clip_norm": 0.5, "ema": Ema(0.9)}
    trainer, _ = make_model(adapter, name, options, shape, 5, task, **extra)
    batch = trainer.to_device(random_inputs(trainer, 5))
    with NoFloat64():
        values = [trainer.read(trainer.step([batch], 0.01, step)) for step in range(2)]
        trainer.predict({trainer.input_name: batch[trainer.input_name]}, shape[:2] if name == "deeplabv3plus" else None)
    assert all(np.isfinite(value["loss"]) and value["grad_norm"] > 0 for value in values)


def test_a_device_of_one_process_and_no_fp64(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *version: version <= (13, 0))
    assert start(Launch(), "auto").torch_device.type != "mps"
    world = start(Launch(), "mps")
    assert world.torch_device == torch.device("mps:0") and world.device == "mps"
    assert world.resolve_mode(Mode("amp")) == Mode("fp16", "O1", False, False, False)
    assert world.resolve_mode(Mode("fp32", channels_last=True)).channels_last
    for compute, message in {"exact": "mps has no fp64", "fp64": "mps has no fp64", "bf16": "mps has no bf16"}.items():
        with pytest.raises(UnsupportedPrecision, match=message):
            world.resolve_mode(Mode(compute))
    with pytest.raises(UserError, match="mps is for one process"):
        start(Launch(size=2), "mps")
