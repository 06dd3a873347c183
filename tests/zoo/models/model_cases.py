"""The cases of the models, one body over all frameworks; test_models.py runs them.

PyTorch's own view of the shift (layouts, dtypes, export, second derivatives) is in tsm/test_shift.py.
"""

import importlib
from itertools import product

import numpy as np
import pytest

from tests.helpers.paths import GOLDEN
from tests.zoo.models.tsm import golden
from tests.zoo.weights.state_dicts import drawn_state_dict
from zoo.models import load_model_class, load_spec
from zoo.models.resnet import spec as resnet_spec
from zoo.models.tsm import spec as tsm_spec
from zoo.models.tsm_mobilenet_v2 import spec as mobile_spec
from zoo.weights import layouts


def tsm_module(backend):
    return importlib.import_module(f"zoo.models.tsm.{backend.FRAMEWORK}")


def make(backend, name, arch, tensors=None):
    """Return a model; tensors: function of name and shape, for its weights and statistics."""
    model = load_model_class(name, backend.FRAMEWORK)(arch)
    if tensors:
        backend.load_tensors(model, {name: tensors(name, shape) for name, shape in backend.shapes(model).items()})
    return model


def case_tsm_mobilenet_v2_equals_upstream(backend):
    """Logits and statistics of mit-han-lab's own model; see tests/golden/README.txt."""
    arch = mobile_spec.Arch(num_classes=golden.CLASSES, segments=golden.SEGMENTS, dropout=0.0)
    model = make(backend, "tsm_mobilenet_v2", arch, golden.drawn)
    found = {"eval": backend.run(backend.set_train(model, False), golden.video())}
    found["train"] = backend.run(backend.set_train(model, True), golden.video())
    statistics = backend.statistics(model)
    found |= {f"bn1.running_{name}": np.array(statistics[f"bn1.running_{name}"]) for name in ("mean", "var")}
    block = "blocks.9.bn2.running_"
    found |= {block + name: np.array(statistics[block + name])[::12] for name in ("mean", "var")}
    with np.load(GOLDEN / "mobilenet_v2.npz") as recorded:
        differences = {key: golden.relative(found[key], recorded[key]) for key in recorded}
    assert len(differences) == 6 and max(differences.values()) <= golden.TOLERANCE, differences


def case_names_and_shapes_are_the_spec_s(backend):
    """In the spec's canonical layout; parameters come before statistics."""
    for name, spec, options in (
        ("tsm", tsm_spec, dict(depth=18, segments=2)),
        ("tsm", tsm_spec, dict(depth=50, non_local=True)),
        ("tsm_mobilenet_v2", mobile_spec, dict(segments=2)),
        ("resnet", resnet_spec, dict(depth=34)),
        ("resnet", resnet_spec, dict(depth=50)),
    ):
        arch = spec.Arch(num_classes=5, width=8, **options)
        shapes = backend.shapes(make(backend, name, arch))
        assert shapes == spec.shapes(arch)
        is_statistic = [".running_" in name for name in shapes]
        assert is_statistic == sorted(is_statistic) and any(is_statistic)


def case_a_dilated_resnet_keeps_its_resolution(backend):
    arch = resnet_spec.Arch(depth=50, width=8, num_classes=5, dilate=(False, True, True))
    model = backend.set_train(make(backend, "resnet", arch), False)

    def features(x):
        return model.layer4(model.layer3(model.layer2(model.layer1(model.stem(x)))))

    assert backend.run(features, np.ones((1, 3, 64, 64), np.float32)).shape == (1, 256, 8, 8)


def case_dropout_scales_the_features_that_are_kept(backend):
    arch = tsm_spec.Arch(depth=18, width=8, num_classes=5, segments=2, dropout=0.5)
    model = backend.set_train(make(backend, "tsm", arch, golden.drawn), False)
    video = np.random.default_rng(0).standard_normal((4, 2, 3, 16, 16), np.float32)
    bias = golden.drawn("fc.bias", (5,))
    plain = backend.run(model, video) - bias
    doubled, nothing = (backend.run(model, video, np.full((4, 2, 64), keep, np.uint8)) - bias for keep in (1, 0))
    np.testing.assert_allclose(doubled, 2 * plain, rtol=1.3e-6, atol=1e-6)
    assert (nothing == 0).all()


def shifted(x, segments, fold, offsets):
    """The shift of x (N*T, C, ...): of each fold of channels by its offset in time, 1 for the next frame."""
    clips = x.reshape(-1, segments, *x.shape[1:])
    out = clips.copy()
    for i, offset in enumerate(offsets):
        moved = slice(i * fold, (i + 1) * fold)
        out[:, :, moved] = 0
        if offset == 1:
            out[:, :-1, moved] = clips[:, 1:, moved]
        else:
            out[:, 1:, moved] = clips[:, :-1, moved]
    return out.reshape(x.shape)


def case_the_gradient_of_a_shift_is_the_opposite_shift(backend):
    rng, temporal_shift = np.random.default_rng(0), tsm_module(backend).temporal_shift
    widths = [(8, 8), (9, 3), (8, 2), (7, 2), (3, 8), *((19, div) for div in range(4, 10))]
    directions = {"future": (1, -1), "past": (-1, 1), "causal": (-1,)}
    for segments, (channels, div), direction in product((1, 2, 3, 8), widths, directions):
        x, weight = rng.standard_normal((2, 2 * segments, channels, 2, 3), np.float32)

        def shift(x, segments=segments, div=div, direction=direction):
            return temporal_shift(x, segments, div, direction)

        y, gradient = backend.gradient(shift, x, weight)
        offsets = directions[direction]
        opposite = [-offset for offset in offsets]
        np.testing.assert_array_equal(y, shifted(x, segments, channels // div, offsets))
        np.testing.assert_array_equal(gradient, shifted(weight, segments, channels // div, opposite))
        np.testing.assert_array_equal(backend.run(shift, x), y)


def case_a_shift_by_hand(backend):
    temporal_shift = tsm_module(backend).temporal_shift
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3, 1, 1)  # frames 1 2 3 and 4 5 6
    for arguments, expected in (
        ((2, 3), [4, 0, 3, 0, 2, 6]),
        ((2, 3, "past"), [0, 5, 3, 1, 0, 6]),
        ((2, 3, "causal"), [0, 2, 3, 1, 5, 6]),
    ):
        assert backend.run(lambda x, a=arguments: temporal_shift(x, *a), x).flatten().tolist() == expected
    for arguments in ((3,), (2, 1), (2, 3, "back")):
        with pytest.raises(ValueError):
            backend.run(lambda x, a=arguments: temporal_shift(x, *a), x)


def case_a_temporal_pool_by_hand(backend):
    temporal_pool = tsm_module(backend).temporal_pool
    x = np.array([-5, -1, -3, -4, 2, 1, 0, 7], np.float32).reshape(8, 1, 1, 1)
    for segments, expected in ((4, [-1, -1, 2, 7]), (2, [-1, -3, 2, 7])):
        assert backend.run(lambda x, s=segments: temporal_pool(x, s), x).flatten().tolist() == expected
    with pytest.raises(ValueError):
        backend.run(lambda x: temporal_pool(x, 1), x)


def case_a_non_local_block_begins_as_the_identity(backend):
    block = backend.set_train(tsm_module(backend).NonLocal(4), True)
    backend.load_tensors(block, {"bn.weight": np.zeros(4, np.float32)})
    x = np.random.default_rng(0).standard_normal((4, 4, 4, 4), np.float32)
    np.testing.assert_array_equal(backend.run(lambda x: block(x, 2), x), x)


def case_the_running_variance_is_unbiased(backend):
    rng = np.random.default_rng(0)
    for shape in ((3, 4, 2, 2), (2, 4, 1, 1), (2, 4, 3, 1, 2)):
        model = backend.set_train(backend.batch_norm(len(shape) - 2, 4), True)
        mean, variance, axes = np.zeros(4), np.ones(4), (0, *range(2, len(shape)))
        for _ in range(2):
            x = (rng.standard_normal(shape) * 3 + 1).astype(np.float32)
            backend.run(model, x)
            mean = 0.9 * mean + 0.1 * x.mean(axes, np.float64)
            variance = 0.9 * variance + 0.1 * x.astype(np.float64).var(axes, ddof=1)
        statistics = backend.statistics(model)
        np.testing.assert_allclose(statistics["0.running_mean"], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(statistics["0.running_var"], variance, rtol=1e-5)


# Causal models, frame by frame.
EXACT = 1e-5
FRAMES, STREAMS, HEIGHT, WIDTH = 4, 2, 41, 56
BACKBONES = (  # both kinds of block and both places of the shift
    ("tsm", dict(depth=18, width=16, shift_place="block")),
    ("tsm", dict(depth=50, width=4, shift_div=3)),
    ("tsm_mobilenet_v2", dict(width=16)),
)


def zero_state(backend, spec, arch, streams, height, width):
    """Return the state before the first frame."""
    shapes = spec.state_shapes(arch, height, width)
    return tuple(backend.to_tensor(np.zeros((streams, *shape), np.float32)) for shape in shapes)


def stream(backend, model, state, video):
    """Return the logits of the frames of a video (N, T, 3, H, W), given one by one, (N, T, K), and the last state."""
    rows = []
    for frame in np.moveaxis(video, 1, 0):

        def forward(x):
            nonlocal state
            logits, state = model.forward_frame(x, state)
            return logits

        rows.append(backend.run(forward, np.ascontiguousarray(frame)))
    return np.stack(rows, 1), state


def case_a_stream_equals_its_clip_frame_by_frame(backend):
    video = np.random.default_rng(0).standard_normal((STREAMS, FRAMES, 3, HEIGHT, WIDTH), np.float32)
    for name, options in BACKBONES:
        spec = load_spec(name)
        arch = spec.Arch(num_classes=5, segments=FRAMES, shift_direction="causal", **options)
        model = backend.set_train(make(backend, name, arch, golden.drawn), False)
        state = zero_state(backend, spec, arch, STREAMS, HEIGHT, WIDTH)
        frames, _ = stream(backend, model, state, video)
        assert golden.relative(frames, backend.run(model.frame_logits, video)) <= EXACT, (name, options)
        for count in (1, FRAMES - 1, FRAMES):  # the mean of the first logits is the output for a clip of these frames
            clip = backend.run(model, np.ascontiguousarray(video[:, :count]))
            assert golden.relative(frames[:, :count].mean(1), clip) <= EXACT, (name, options, count)
        backwards, _ = stream(backend, model, state, np.ascontiguousarray(video[:, ::-1]))
        assert golden.relative(backwards[:, ::-1], frames) > 1e-3  # the past matters


def case_streams_do_not_mix(backend):
    spec = load_spec("tsm_mobilenet_v2")
    arch = spec.Arch(num_classes=5, shift_direction="causal", width=16)
    model = backend.set_train(make(backend, "tsm_mobilenet_v2", arch, golden.drawn), False)
    video = np.random.default_rng(1).standard_normal((3, 3, 3, 32, 32), np.float32)
    together, _ = stream(backend, model, zero_state(backend, spec, arch, 3, 32, 32), video)
    for i in range(3):
        alone, _ = stream(backend, model, zero_state(backend, spec, arch, 1, 32, 32), video[i : i + 1])
        assert golden.relative(alone[0], together[i]) <= EXACT


def case_the_online_mobilenet_equals_upstream(backend):
    """Logits of 8 frames of 2 streams and the last state of mit-han-lab's online_demo; see tests/golden/README.txt."""
    spec = load_spec("tsm_mobilenet_v2")
    arch = spec.Arch(num_classes=golden.CLASSES, shift_direction="causal")
    model = backend.set_train(make(backend, "tsm_mobilenet_v2", arch, golden.drawn), False)
    with np.load(GOLDEN / "mobilenet_v2_online.npz") as recorded:
        logits, last = recorded["logits"], recorded["state"]
    state = zero_state(backend, spec, arch, golden.VIDEOS, golden.SIDE, golden.SIDE)
    frames, state = stream(backend, model, state, golden.video())
    assert golden.relative(frames, logits) <= EXACT
    assert golden.relative(backend.to_array(state[-1]), last) <= EXACT
    assert golden.relative(backend.run(model.frame_logits, golden.video()), logits) <= EXACT


def case_a_model_that_looks_ahead_has_no_stream(backend):
    for name, options in (("tsm", dict(depth=18, width=8)), ("tsm_mobilenet_v2", dict(width=8))):
        for direction in ("future", "past"):
            arch = load_spec(name).Arch(num_classes=5, shift_direction=direction, **options)
            model = backend.set_train(make(backend, name, arch), False)
            with pytest.raises(ValueError, match=f"^shift_direction: .* {direction}"):
                stream(backend, model, (), np.zeros((1, 1, 3, 32, 32), np.float32))


# Padding and epsilon of the ResNets of MindSpore's projects.
PADDED_CLASSES, PADDED_SIDE, ODD_SIZE = 7, 64, (75, 54)
PADDED_TOLERANCE = 5e-6  # of the largest logit; measured: up to 2e-6 in evaluation
DEEP = {"padding": "same", "bn_eps": 1e-4}  # of mindspore-ai/models
KERNELS = ((3, 1), (3, 2), (7, 1))  # kernel, dilation


def images(count, height, width):
    return np.random.default_rng(2015).standard_normal((count, 3, height, width), np.float32)


def difference(backend, key, origin, depth, options, train=False):
    """Return the largest difference to recorded logits, relative to the largest of them."""
    with np.load(GOLDEN / "resnets.npz") as arrays:
        expected = arrays[key]
    arch = resnet_spec.Arch(depth, PADDED_CLASSES, **options)
    model = load_model_class("resnet", backend.FRAMEWORK)(arch)
    file = f"names_{origin}_resnet{depth}"
    backend.load_tensors(model, layouts.to_canonical(drawn_state_dict(file), origin))
    size = ODD_SIZE if key.endswith("odd") else (PADDED_SIDE, PADDED_SIDE)
    logits = backend.run(backend.set_train(model, train), images(len(expected), *size))
    return np.abs(logits - expected).max() / np.abs(expected).max()


def case_mindcv_s_18_layers(backend):
    assert difference(backend, "mindcv_resnet18_odd", "mindcv", 18, {"padding": "same_pool"}) < PADDED_TOLERANCE
    assert difference(backend, "mindcv_resnet18", "mindcv", 18, {}) > 0.01


def case_mindspore_s_50_layers(backend):
    assert difference(backend, "mindspore_resnet50_odd", "mindspore", 50, DEEP) < PADDED_TOLERANCE


def case_mindspore_s_50_layers_in_training(backend):
    """The epsilon counts where it normalizes by the statistics of a batch, too."""
    right, wrong = (
        difference(backend, "mindspore_resnet50_train", "mindspore", 50, {**DEEP, "bn_eps": eps}, train=True)
        for eps in (1e-4, 1e-5)
    )
    assert right < 1e-4 < 1e-3 < wrong, (right, wrong)


def convolution(image, weight, padding, stride, dilation):
    """Return the convolution of (H, W) with (K, K); padding is left, right, top, bottom."""
    left, right, top, bottom = padding
    padded = np.pad(image, ((top, bottom), (left, right)))
    extent = (len(weight) - 1) * dilation + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, (extent, extent))[::stride, ::stride]
    return (windows[..., ::dilation, ::dilation] * weight).sum((-1, -2))


def case_convolutions_of_all_sizes(backend):
    """Of stride 2, and their gradients, by the rule in numpy; MindSpore's own padding confirms the rule itself."""
    module, rng = importlib.import_module(f"zoo.models.resnet.{backend.FRAMEWORK}"), np.random.default_rng(0)
    for kernel, dilation in KERNELS:
        weight = rng.standard_normal((1, 1, kernel, kernel), np.float32)
        layer = module.conv7x7(1, 1, True) if kernel == 7 else module.conv3x3(1, 1, 2, dilation, True)
        backend.load_tensors(layer, {"weight": weight})
        for size in ((7, 8), (8, 7), (9, 10), (12, 11)):
            image = rng.standard_normal((1, 1, *size), np.float32)
            padding = resnet_spec.same_padding(*size, kernel, 2, dilation)
            expected = convolution(image[0, 0], weight[0, 0], padding, 2, dilation)
            direction, factor = rng.standard_normal(image.shape, np.float32), rng.standard_normal(expected.shape)
            output, gradient = backend.gradient(layer, image, factor[None, None].astype(np.float32))
            np.testing.assert_allclose(output[0, 0], expected, rtol=1e-5, atol=1e-5)
            change = (convolution(direction[0, 0], weight[0, 0], padding, 2, dilation) * factor).sum()
            np.testing.assert_allclose((gradient * direction).sum(), change, rtol=1e-4, atol=1e-4)
