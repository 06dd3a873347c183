"""Forward passes of all models against reference.py, one body over all frameworks (test_forward.py).

In evaluation, and in training with the running statistics that it leaves. The models are small: a few seconds for all.
"""

import numpy as np

from tests.zoo.models import reference
from tests.zoo.models.model_cases import make, tsm_module
from tests.zoo.models.reference import Layers
from tests.zoo.models.tsm.golden import drawn, relative
from zoo.models import load_spec

EXACT = 1e-5  # in evaluation
TRAINED = 1e-4  # batch statistics of few pixels amplify float32's rounding


def random(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def random_mask(shape, seed=1):
    return np.random.default_rng(seed).integers(0, 2, shape, np.uint8)


def check(backend, name, options, image, masks, forward, epsilon=1e-5):
    """Compare a model with a reference.

    Args:
        name: of the model.
        options: of its architecture.
        image: its input.
        masks: its dropout masks in training.
        forward: (layers, image, masks) -> the outputs of the reference.
        epsilon: of its normalizations.
    """
    spec = load_spec(name)
    arch = spec.Arch(num_classes=5, **options)
    shapes = {key: shape for key, shape in spec.shapes(arch).items() if key not in spec.SHARDED_PARAMETERS}
    tensors = {key: drawn(key, shape) for key, shape in shapes.items()}
    model = make(backend, name, arch, drawn)
    (expected, *_) = forward(Layers(tensors, False, epsilon), image.astype(np.float64), [None] * len(masks))
    evaluated = backend.run(backend.set_train(model, False), image)
    assert evaluated.shape == expected.shape
    assert relative(evaluated, expected) <= EXACT
    layers = Layers(tensors, True, epsilon)
    expected = forward(layers, image.astype(np.float64), masks)
    model = backend.set_train(model, True)
    for index, value in enumerate(expected):
        output = backend.run(lambda *inputs, i=index: select(model(*inputs), i), image, *masks)
        assert relative(output, value) <= TRAINED
        if index == 0:  # every forward pass moves them
            statistics = {key: np.array(array) for key, array in backend.statistics(model).items()}
    assert statistics.keys() == layers.statistics.keys()
    for key, value in layers.statistics.items():
        assert relative(statistics[key], value) <= TRAINED, key


def select(outputs, index):
    return outputs[index] if isinstance(outputs, tuple) else outputs


def case_a_resnet_of_basic_blocks(backend):
    options = dict(depth=18, width=8)
    check(backend, "resnet", options, random((4, 3, 48, 40)), [], lambda net, x, _: [reference.resnet(net, x, 18)])


def case_a_dilated_resnet_of_bottlenecks(backend):
    dilate = (False, False, True, True)

    def forward(layers, x, _):
        return [reference.resnet(layers, x, 50, dilate)]

    check(backend, "resnet", dict(depth=50, width=4, dilate=dilate[1:]), random((4, 3, 64, 48)), [], forward)


def case_a_tsm_that_shifts_residual_branches(backend):
    def forward(layers, x, masks):
        return [reference.tsm(layers, x, "blockres", mask=masks[0], rate=0.25)]

    options = dict(depth=18, width=8, segments=3, dropout=0.25)
    check(backend, "tsm", options, random((3, 3, 3, 32, 40)), [random_mask((3, 3, 64))], forward)


def case_a_tsm_that_shifts_blocks_and_pools(backend):
    """Towards the past, by another fraction of the channels."""

    def forward(layers, x, _):
        return [reference.tsm(layers, x, "block", div=3, direction="past", pools=True)]

    options = dict(depth=18, width=8, segments=4, dropout=0.0, shift_place="block", shift_div=3, temporal_pool=True)
    check(backend, "tsm", {**options, "shift_direction": "past"}, random((3, 4, 3, 32, 40)), [], forward)


def case_a_causal_tsm(backend):
    def forward(layers, x, _):
        return [reference.tsm(layers, x, "blockres", direction="causal")]

    options = dict(depth=18, width=8, segments=3, dropout=0.0, shift_direction="causal")
    check(backend, "tsm", options, random((3, 3, 3, 32, 40)), [], forward)


def case_a_non_local_block(backend):
    """Of 4 frames of 4 x 6 pixels, with attention that is not uniform."""
    block = backend.set_train(tsm_module(backend).NonLocal(8), False)
    tensors = {name: 2 * drawn(f"nl.{name}", shape) for name, shape in backend.shapes(block).items()}
    backend.load_tensors(block, tensors)
    x = random((8, 8, 4, 6))
    expected = reference.non_local(Layers(tensors, False), x.astype(np.float64), 4)
    assert relative(backend.run(lambda x: block(x, 4), x), expected) <= EXACT


SMALL_HEAD = dict(head_width=16, low_width=8, aux_width=8, width=8, dropout=0.25)


def case_a_deeplab_of_mmsegmentation(backend):
    """Of stride 8, with an auxiliary head."""
    rates, dilations = (3, 6, 9), ((1, 1), (1, 1), (1, 2), (2, 4))

    def forward(layers, x, masks):
        return reference.deeplab(layers, x, (1, 2, 1, 1), dilations, rates, True, masks=masks, rate=0.25)

    options = dict(depth=18, rates=rates, **SMALL_HEAD)
    masks = [random_mask((3, 16)), random_mask((3, 8), 2)]
    check(backend, "deeplabv3plus", options, random((3, 3, 48, 64)), masks, forward)


def case_a_deeplab_with_aligned_corners_and_a_plain_stem(backend):
    rates, dilations = (2, 4, 6), ((1, 1), (1, 1), (1, 1), (1, 2))

    def forward(layers, x, masks):
        return reference.deeplab(layers, x, (1, 2, 2, 1), dilations, rates, True, True, masks, 0.25)

    options = dict(depth=18, stem="plain", align_corners=True, output_stride=16, rates=rates, **SMALL_HEAD)
    masks = [random_mask((3, 16)), random_mask((3, 8), 2)]
    check(backend, "deeplabv3plus", options, random((3, 3, 49, 65)), masks, forward)


def case_a_deeplab_of_paddleseg(backend):
    """Of an odd size, whose average pooling has a border."""
    rates = (2, 4, 6)
    dilations = ((1,) * 3, (1,) * 4, (2,) * 6, (4, 8, 16))

    def forward(layers, x, masks):
        return reference.deeplab(layers, x, (1, 2, 1, 1), dilations, rates, False, False, masks, 0.25)

    options = dict(variant="paddleseg", depth=50, rates=rates, **SMALL_HEAD)
    masks = [random_mask((3, 16, 7, 6))]
    check(backend, "deeplabv3plus", {**options, "crop": (49, 41)}, random((3, 3, 49, 41)), masks, forward)


def case_an_iresnet_of_insightface(backend):
    options = dict(depth=18, width=8, embedding=16, size=45)
    check(backend, "arcface", options, random((4, 3, 45, 45)), [], lambda net, x, _: [reference.arcface(net, x)])


def case_an_iresnet_of_plsc(backend):
    """One slope per PReLU, another epsilon, dropout."""

    def forward(layers, x, masks):
        return [reference.arcface(layers, x, masks[0], 0.4)]

    options = dict(variant="plsc", depth=18, width=8, embedding=16, size=32)
    check(backend, "arcface", options, random((4, 3, 32, 32)), [random_mask((4, 256))], forward, epsilon=2e-5)


def check_epsilon(backend, name, options, image, norms, forward):
    """Compare an evaluation in which some running variances are as small as epsilon, here 1e-5."""
    spec = load_spec(name)
    arch = spec.Arch(num_classes=3, **options)
    tensors = {key: drawn(key, shape) for key, shape in spec.shapes(arch).items() if key not in spec.SHARDED_PARAMETERS}
    for norm in norms:
        tensors[f"{norm}.running_var"] = np.full_like(tensors[f"{norm}.running_var"], 1e-5)
    model = backend.set_train(make(backend, name, arch, lambda key, _: tensors[key]), False)
    expected = forward(Layers(tensors, False), image.astype(np.float64))
    assert relative(backend.run(model, image), expected) <= EXACT


def case_the_epsilon_of_a_resnet(backend):
    norms = ("bn1", "layer1.0.bn1", "layer2.0.downsample.1", "layer4.1.bn2")
    image, options = random((2, 3, 32, 32)), dict(depth=18, width=4)
    check_epsilon(backend, "resnet", options, image, norms, lambda layers, x: reference.resnet(layers, x, 18))


def case_the_epsilon_of_an_iresnet(backend):
    norms = ("bn1", "layer1.0.bn2", "features")
    options = dict(depth=18, width=4, embedding=8, size=32)
    check_epsilon(backend, "arcface", options, random((2, 3, 32, 32)), norms, reference.arcface)
