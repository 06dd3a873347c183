"""Models, published weights and transforms beside those of the torchvision that is installed."""

import numpy as np
import pytest
import torch
from PIL import Image

from tests.configs.upstream import recipe
from zoo.bench.peers import upstream
from zoo.data.augment import policies
from zoo.data.datasets.imagenet import ImageSplit
from zoo.data.transforms import pixels
from zoo.data.transforms.geometry import Geometry
from zoo.models.resnet import spec as resnet
from zoo.models.resnet import torch as resnet_torch
from zoo.weights import layouts, names, registry

SIZES = [(61, 47), (301, 256), (333, 500)]  # width, height
FILL = (124, 116, 104)


@pytest.fixture(scope="module")
def torchvision():
    upstream.installed("torchvision.transforms.autoaugment")
    return upstream.installed("torchvision")


def picture(width, height):
    """Return an image of noise on a slope, uint8 (height, width, 3)."""
    slope = np.linspace(0, 200, width)[None, :, None] * np.ones((height, 1, 3))
    return (slope + np.random.default_rng(width).integers(0, 56, slope.shape)).astype(np.uint8)


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


@pytest.mark.parametrize("size", SIZES)
def test_evaluation_gives_the_pixels_of_torchvision_s_preset(torchvision, size):
    preset = torchvision.models.ResNet50_Weights.IMAGENET1K_V1.transforms()
    settings, image = recipe("resnet50_imagenet_v1").config.data, picture(*size)
    found = ImageSplit(settings, [], ("a",), False).from_pixels(image, np.random.default_rng())
    normalized = (found / 255 - np.array(settings.mean)) / np.array(settings.std)
    expected = preset(Image.fromarray(image)).permute(1, 2, 0).numpy()
    np.testing.assert_allclose(normalized, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_random_resized_crops_have_the_pixels_of_torchvision_s(torchvision, size):
    transform = torchvision.transforms.RandomResizedCrop(56)
    image = picture(*size)
    for seed in range(20):
        torch.manual_seed(seed)
        top, left, height, width = transform.get_params(Image.fromarray(image), transform.scale, transform.ratio)
        torch.manual_seed(seed)
        expected = np.asarray(transform(Image.fromarray(image)))
        geometry = Geometry((left, top, width, height), (56, 56), antialias=True)
        np.testing.assert_array_equal(pixels.apply(image, geometry), expected)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("name", policies.NAMES)
def test_operations_of_trivial_augment_have_the_pixels_of_torchvision_s(torchvision, name, interpolation):
    auto = torchvision.transforms.autoaugment
    space = auto.TrivialAugmentWide()._augmentation_space(policies.BINS)
    titles = dict(zip(policies.NAMES, space, strict=True))
    magnitudes, signed = space[titles[name]]
    assert signed == (name in policies.SIGNED)
    image, keys = picture(*SIZES[0]), {"interpolation": interpolation, "fill": FILL}
    for magnitude in range(0, policies.BINS, 5):
        value = float(magnitudes[magnitude]) if magnitudes.ndim else 0.0
        for sign in (1, -1) if signed else (1,):
            mode = auto.InterpolationMode(interpolation)
            expected = auto._apply_op(Image.fromarray(image), titles[name], value * sign, mode, list(FILL))
            found = policies.operation(name, magnitude, sign, policies.TRIVIAL_LIMITS, keys)(image)
            np.testing.assert_array_equal(found, np.asarray(expected))
