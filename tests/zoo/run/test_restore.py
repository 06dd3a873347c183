"""Warnings of a run about the weights that it starts from."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from data.datasets import kinetics, synthetic
from data.errors import UserError
from tests.zoo import api_cases
from tests.zoo.weights.state_dicts import small_resnet
from zoo.models.arcface import spec as arcface
from zoo.models.resnet import spec as resnet_spec
from zoo.models.tsm import spec
from zoo.run import restore
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
