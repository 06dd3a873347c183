"""Warnings of a run about the weights that it starts from."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

from data.datasets import kinetics, synthetic
from data.errors import UserError
from tests.zoo import api_cases
from tests.zoo.weights.state_dicts import small_resnet
from zoo.models.arcface import spec as arcface
from zoo.models.resnet import spec as resnet_spec
from zoo.models.tsm import spec
from zoo.optim import sgd
from zoo.run import restore
from zoo.run.checkpoint import UPDATE, latest, save_checkpoint
from zoo.trainer import loss_scale, state
from zoo.trainer.plan import Mode, ParamGroup, Plan
from zoo.trainer.protocol import Param
from zoo.weights import files


def warnings(path, data):
    arch = spec.Arch(depth=18, num_classes=3, width=2)
    cfg = SimpleNamespace(seed=1, weights=str(path), fresh_head=False, model=arch, data=data)
    params = [Param(name, shape) for name, shape in spec.shapes(arch).items()]
    lines = []
    tensors, _ = restore.initial(cfg, spec, arch, params, ["a", "b", "c"], lines.append)
    assert all(np.array_equal(tensors[name], array) for name, array in small_resnet().items())
    return [line for line in lines if line.startswith("warning")]


@pytest.mark.parametrize("antialias", [True, False])
def test_weights_that_were_trained_on_frames_of_another_filter(tmp_path, antialias):
    path = tmp_path / "tsm.safetensors"
    files.write(str(path), small_resnet(), {"data": json.dumps({"antialias": antialias})})
    assert warnings(path, kinetics.Settings(antialias=antialias)) == []
    assert warnings(path, synthetic.Settings()) == []  # has no such key
    (line,) = warnings(path, kinetics.Settings(antialias=not antialias))
    trained, recipe = ("true", "false") if antialias else ("false", "true")
    option = f"data.antialias={trained}"
    assert line == f"warning: {path} was trained with {option}, the recipe has {recipe}; give -o {option}"


def start_from(checkpoint, arch, spec=resnet_spec):
    """Return the lines of a run that starts a model from a checkpoint; raises UserError."""
    cfg = SimpleNamespace(seed=1, weights=checkpoint, fresh_head=False, model=arch, data=kinetics.Settings())
    params = [Param(name, shape) for name, shape in spec.shapes(arch).items()]
    lines = []
    restore.initial(cfg, spec, arch, params, api_cases.CLASSES, lines.append)
    return lines


def test_a_checkpoint_of_another_size_is_told_in_one_line(tmp_path):
    path, _ = api_cases.write_checkpoint(tmp_path)
    lines = start_from(path, resnet_spec.Arch(18, 3, 8))
    assert lines[-1].startswith("weights: 102 tensors from")
    for arch, key in ((resnet_spec.Arch(34, 3, 8), "depth=18"), (resnet_spec.Arch(18, 3, 16), "width=8")):
        with pytest.raises(UserError, match=f"last.* is for model.{key}, the recipe has [0-9]+; give -o") as error:
            start_from(path, arch)
        assert len(str(error.value).splitlines()) == 1


def test_tensors_of_another_model_without_a_record_are_told_in_one_line(tmp_path):
    path = str(tmp_path / "faces.safetensors")
    arch = arcface.Arch(18, num_classes=2, width=8, size=32)
    files.write(path, {name: np.zeros(shape, np.float32) for name, shape in arcface.shapes(arch).items()})
    message = "holds a model of the kind arcface that is not this recipe's: 87 of its 155 tensors fit"
    with pytest.raises(UserError, match=message) as error:
        start_from(path, resnet_spec.Arch(18, 3, 8))
    assert len(str(error.value).splitlines()) == 1


def test_weights_without_a_record_of_their_preprocessing(tmp_path):
    files.write(str(tmp_path / "tsm.safetensors"), small_resnet())
    assert warnings(tmp_path / "tsm.safetensors", kinetics.Settings()) == []


@pytest.mark.parametrize("rows", [None, (0, 2), (2, 5)], ids=["whole", "first rows", "last rows"])
def test_a_checkpoint_whose_momentum_had_no_folder_is_resumed(tmp_path, rows):
    """A trainer receives the tensors that it would of today's keys, of a sharded class matrix its own rows."""
    rng, loaded = np.random.default_rng(1), {}
    arrays = {name: rng.standard_normal((5, 3), np.float32) for name in ("head.weight", "fc.weight")}
    slots = {f"momentum/{name}": rng.standard_normal((5, 3), np.float32) for name in arrays}
    scaler = {key: np.array(number, np.float32) for number, key in enumerate(loss_scale.KEYS)}
    record = {"classes": ["a"], "step": 7, "weights": "before", "global_batch": 8}
    save_checkpoint(str(tmp_path), 7, {**arrays, **slots, **scaler}, record, 1)
    folder = latest(str(tmp_path))
    written = load_file(f"{folder}/{UPDATE}")
    assert set(slots) <= set(written)
    params = [Param("head.weight", (5, 3), rows=rows), Param("fc.weight", (5, 3))]
    plan = Plan((), (), lambda name: ParamGroup(1.0, 0.0), Mode("fp32"), optimizer=sgd.Settings())
    job = SimpleNamespace(
        trainer=SimpleNamespace(params=params, load_state_dict=loaded.update),
        plan=plan,
        clock=SimpleNamespace(global_batch=8),
        val_set=SimpleNamespace(classes=["a"]),
        group=SimpleNamespace(launch=SimpleNamespace(local_rank=0), all_gather=lambda value: [value]),
    )
    assert restore.restore(None, job, str(tmp_path), print) == (7, "before")
    part = slice(*rows) if rows else slice(None)
    for name, own in (("head.weight", part), ("fc.weight", slice(None))):
        assert np.array_equal(loaded[name], arrays[name][own])
        assert np.array_equal(loaded[state.slot_key("momentum", name)], slots[f"momentum/{name}"][own])
    assert set(loaded) == set(state.shapes(params, plan))
