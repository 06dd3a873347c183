"""Compiled training in PyTorch: whole graphs, and the updates of eager training, on one rank and on two."""

import functools
import os

import numpy as np
import pytest
import torch

from tests.helpers.frameworks import adapter
from tests.helpers.processes import run
from tests.zoo.trainer.trainer_setup import make_model, random_inputs, update
from zoo.models import load_spec
from zoo.trainer.plan import Mode

pytestmark = pytest.mark.slow  # compiling takes seconds to minutes

CLASSES = 5
MODELS = {  # options, shape of a sample, settings of the task
    "arcface": ({"depth": 18, "width": 8, "embedding": 8}, (32, 32, 3), {"scale": 8.0}),
    "deeplabv3plus": (
        {"depth": 18, "width": 8, "head_width": 8, "low_width": 4, "aux_width": 4},
        (32, 32, 3),
        {},
    ),
    "resnet": ({"depth": 18, "width": 8}, (32, 32, 3), {"label_smoothing": 0.1}),
    "tsm": ({"depth": 18, "width": 8}, (2, 32, 32, 3), {"label_smoothing": 0.1}),
}


def make(name, compiled, checkpointed):
    """Return a trainer of a small model."""
    options, shape, task = MODELS[name]
    spec = load_spec(name)
    modules = spec.checkpointed_modules(spec.Arch(**options)) if checkpointed else ()
    mode = Mode("fp32", None, True, compiled)
    return make_model(adapter("torch"), name, options, shape, CLASSES, task, mode, checkpointed_modules=modules)[0]


@pytest.mark.parametrize("name, checkpointed", [("resnet", False), *((name, True) for name in MODELS)])
def test_a_model_is_one_graph(name, checkpointed, monkeypatch):
    """Also with checkpointed activations; its updates and predictions are those of the eager model.

    Without code of its own, because generating that takes minutes; Tiny in trainer_setup has it.
    """
    compile_whole = functools.partial(torch.compile, backend="aot_eager", fullgraph=True)
    torch.compiler.reset()
    eager = make(name, False, False)
    batch = random_inputs(eager, CLASSES)
    monkeypatch.setattr(torch, "compile", compile_whole)
    compiled = make(name, True, checkpointed)
    for step in range(2):
        numbers, expected = (update(trainer, batch, lr=0.01, step=step) for trainer in (compiled, eager))
        assert numbers == pytest.approx(expected, rel=1e-4)
    state, expected = compiled.state_dict(), eager.state_dict()
    for key, value in expected.items():
        np.testing.assert_allclose(state[key], value, rtol=1e-3, atol=1e-5, err_msg=key)
    inputs = {compiled.input_name: batch[compiled.input_name]}
    predictions, expected = (trainer.predict(trainer.to_device(inputs)) for trainer in (compiled, eager))
    assert np.abs(predictions - expected).max() <= 1e-3 * np.abs(expected).max()


def test_two_ranks_compute_compiled_what_they_compute_eager(tmp_path):
    """With micro-batches, checkpointed activations and synchronized normalizations; generated code for a CPU."""
    run("mpirun", 2, None, ["-m", "tests.zoo.trainer.torch.compiled_worker", str(tmp_path)], 600)
    names = {name.removesuffix(".npz") for name in os.listdir(tmp_path)}
    assert len(names) == 2
    for name in names:
        arrays = dict(np.load(tmp_path / f"{name}.npz"))
        expected = {key.removeprefix("eager "): value for key, value in arrays.items() if key.startswith("eager ")}
        assert "loss" in expected and "bn.running_var" in expected
        for key, value in expected.items():
            np.testing.assert_allclose(arrays[f"compiled {key}"], value, rtol=1e-4, atol=1e-6, err_msg=f"{name}: {key}")
