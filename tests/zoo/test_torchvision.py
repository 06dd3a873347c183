"""Models and published weights beside those of the torchvision that is installed."""

import numpy as np
import pytest
import torch

from zoo.bench.peers import upstream
from zoo.models.resnet import spec as resnet
from zoo.models.resnet import torch as resnet_torch
from zoo.weights import layouts, names, registry


@pytest.fixture(scope="module")
def torchvision():
    return upstream.installed("torchvision")


def copy_into(model, tensors):
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if not name.endswith(names.COUNTER):
                tensor.copy_(torch.from_numpy(tensors[name]))


def arrays(tensors):
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors if not name.endswith(names.COUNTER)}


@pytest.mark.parametrize("depth", [18, 50])
def test_resnets_have_the_outputs_gradients_and_statistics_of_torchvision_s(torchvision, depth):
    """In float64, from torchvision's own random weights; both directions of the conversion."""
    torch.manual_seed(depth)
    theirs = torchvision.models.get_model(f"resnet{depth}", num_classes=7).double()
    ours = resnet_torch.Model(resnet.Arch(depth, 7)).double()
    copy_into(ours, layouts.to_canonical(arrays(theirs.state_dict().items()), "torchvision"))
    images = torch.rand(4, 3, 32, 32, dtype=torch.float64)
    for model in (theirs, ours):
        model(images).square().sum().backward()
    gradients = [arrays((name, x.grad) for name, x in model.named_parameters()) for model in (theirs, ours)]
    states = [arrays(model.state_dict().items()) for model in (theirs, ours)]
    converted = layouts.to_torchvision(states[1])
    assert converted.keys() == theirs.state_dict().keys()
    converted = {name: array for name, array in converted.items() if not name.endswith(names.COUNTER)}
    for found, expected in ((gradients[1], gradients[0]), (converted, states[0])):
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-11 * np.abs(array).max(), err_msg=name)
    logits = [model.eval()(images).detach().numpy() for model in (theirs, ours)]
    np.testing.assert_allclose(logits[1], logits[0], rtol=1e-11)


def test_published_files_are_those_that_torchvision_names(torchvision):
    ours = [weights for weights in registry.table().values() if weights.title.startswith("torchvision ")]
    assert len(ours) == 9
    for weights in ours:
        theirs = torchvision.models.get_model_weights(weights.model)[weights.title.split()[1]]
        assert weights.urls == [theirs.url]
        assert weights.metric == theirs.meta["_metrics"]["ImageNet-1K"]["acc@1"]
