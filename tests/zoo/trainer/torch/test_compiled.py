"""Compiled training in PyTorch: whole graphs, and the updates of eager training, on one rank and on two."""

import functools
import os
import subprocess

import numpy as np
import pytest
import torch

from tests.helpers.frameworks import adapter
from tests.helpers.processes import ROOT, environment, launcher
from tests.zoo.trainer.tiny_reference import MEAN, STD
from tests.zoo.trainer.trainer_setup import update
from zoo.data.batch import LABEL, Field
from zoo.models import initializers, load_model_class, load_spec
from zoo.tasks import classify, face, segment
from zoo.trainer.plan import Mode, ParamGroup, Plan

pytestmark = pytest.mark.slow  # compiling takes seconds to minutes

SIDE, CLASSES = 32, 5
IMAGE = Field("image", (SIDE, SIDE, 3), "uint8", MEAN, STD)
MODELS = {
    "arcface": ({"depth": 18, "width": 8, "embedding": 8, "size": SIDE}, face.Settings(scale=8.0)),
    "deeplabv3plus": (
        {"depth": 18, "width": 8, "head_width": 8, "low_width": 4, "aux_width": 4, "crop": (SIDE, SIDE)},
        segment.Settings(),
    ),
    "resnet": ({"depth": 18, "width": 8}, classify.Settings(label_smoothing=0.1)),
    "tsm": ({"depth": 18, "width": 8, "segments": 2}, classify.Settings(label_smoothing=0.1)),
}


def make(name, compiled, checkpointed):
    """Return a trainer of a small model, and a batch for it."""
    options, objective = MODELS[name]
    spec = load_spec(name)
    arch = spec.Arch(num_classes=CLASSES, **options)
    image = Field("video", (2, SIDE, SIDE, 3), "uint8", MEAN, STD) if name == "tsm" else IMAGE
    label = Field("label", (SIDE, SIDE), "uint8", missing=255) if name == "deeplabv3plus" else LABEL
    masks = spec.dropout_masks(arch)
    plan = Plan(
        (image, label, *(mask.field for mask in masks)),
        tuple(mask.name for mask in masks),
        lambda name: ParamGroup(1.0, 1e-3),
        Mode("fp32", None, True, compiled),
        checkpointed_modules=spec.checkpointed_modules(arch) if checkpointed else (),
    )
    trainer = adapter("torch").Trainer(load_model_class(name, "torch"), arch, objective, plan, adapter("torch").WORLD)
    trainer.load_state_dict(
        {
            param.name: initializers.initialize(
                spec.initializer(arch, param.name, param.shape), 1, param.name, param.shape
            )
            for param in trainer.params
        }
    )
    rng = np.random.default_rng(0)
    batch = {
        image.name: rng.integers(0, 256, (4, *image.shape), np.uint8),
        "label": rng.integers(0, CLASSES, (4, *label.shape)).astype(label.dtype),
        **{mask.name: np.stack([mask.sample(rng) for _ in range(4)]) for mask in masks},
        "valid": np.ones(4, np.uint8),
    }
    return trainer, batch


@pytest.mark.parametrize("name, checkpointed", [("resnet", False), *((name, True) for name in MODELS)])
def test_a_model_is_one_graph(name, checkpointed, monkeypatch):
    """Also with checkpointed activations; its updates and predictions are those of the eager model.

    Without code of its own, because generating that takes minutes; Tiny in trainer_setup has it.
    """
    compile_whole = functools.partial(torch.compile, backend="aot_eager", fullgraph=True)
    torch.compiler.reset()
    eager, batch = make(name, False, False)
    monkeypatch.setattr(torch, "compile", compile_whole)
    compiled, _ = make(name, True, checkpointed)
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
    command = launcher("mpirun", 2, None)
    if command[0] is None:
        pytest.skip("mpirun is not installed")
    process = subprocess.run(
        [*command, "-m", "tests.zoo.trainer.torch.compiled_worker", str(tmp_path)],
        cwd=ROOT,
        text=True,
        env={**environment(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-4000:]
    names = {name.removesuffix(".npz") for name in os.listdir(tmp_path)}
    assert len(names) == 2
    for name in names:
        arrays = dict(np.load(tmp_path / f"{name}.npz"))
        expected = {key.removeprefix("eager "): value for key, value in arrays.items() if key.startswith("eager ")}
        assert "loss" in expected and "bn.running_var" in expected
        for key, value in expected.items():
            np.testing.assert_allclose(arrays[f"compiled {key}"], value, rtol=1e-4, atol=1e-6, err_msg=f"{name}: {key}")
