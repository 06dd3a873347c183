"""Warnings of a run about the weights that it starts from."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from data.datasets import kinetics, synthetic
from tests.zoo.weights.state_dicts import small_resnet
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


def test_weights_without_a_record_of_their_preprocessing(tmp_path):
    files.write(str(tmp_path / "tsm.safetensors"), small_resnet())
    assert warnings(tmp_path / "tsm.safetensors", kinetics.Settings()) == []
