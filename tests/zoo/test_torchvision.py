"""ResNets beside values recorded from torchvision, and the published weights that an installed one names."""

import importlib

import numpy as np
import pytest
import torch

from tests.helpers.paths import GOLDEN
from tests.zoo.weights.test_origins import CLASSES, images, state_dict_of
from zoo.models.resnet import spec as resnet
from zoo.models.resnet import torch as resnet_torch
from zoo.weights import layouts, names, registry

FILES = {18: "torchvision_resnet18", 50: "torchvision"}  # depth -> name list


def thinned(array):
    """Return some values of an array, as they are recorded."""
    return array.ravel()[:: max(1, array.size // 3)]


@pytest.mark.parametrize("depth", FILES)
def test_resnets_have_the_outputs_gradients_and_statistics_of_torchvision_s(depth):
    """In float64; the processor changes the last digits alone."""
    model = resnet_torch.Model(resnet.Arch(depth, CLASSES)).double()
    weights = layouts.to_canonical(state_dict_of(FILES[depth]), "torchvision")
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if not name.endswith(names.COUNTER):
                tensor.copy_(torch.from_numpy(weights[name]))
    model(images(4).double()).square().sum().backward()
    found = {
        "gradients": [parameter.grad.numpy() for parameter in model.parameters()],
        "state": [tensor.numpy() for name, tensor in model.state_dict().items() if "running" in name],
        "logits": [*model.eval()(images(2).double()).detach().numpy()],
    }
    with np.load(GOLDEN / "torchvision.npz") as recorded:
        for kind, arrays in found.items():
            scale = np.concatenate([np.full(thinned(array).shape, np.abs(array).max()) for array in arrays])
            differences = np.concatenate([thinned(array) for array in arrays]) - recorded[f"{depth}/{kind}"].ravel()
            assert np.abs(differences / scale).max() < 1e-11, kind


def test_published_files_are_those_that_torchvision_names():
    try:
        torchvision = importlib.import_module("torchvision")
    except (ImportError, RuntimeError) as error:  # the latter beside another build of PyTorch
        pytest.skip(f"torchvision: {error}")
    ours = [weights for weights in registry.table().values() if weights.title.startswith("torchvision ")]
    assert len(ours) == 9
    for weights in ours:
        theirs = torchvision.models.get_model_weights(weights.model)[weights.title.split()[1]]
        assert weights.urls == [theirs.url]
        assert weights.metric == theirs.meta["_metrics"]["ImageNet-1K"]["acc@1"]
