"""Graphs of all models against the frameworks' own modules, one body over all frameworks (test_onnx.py).

Each option that changes what is computed in an evaluation occurs. The models are small: seconds for all.
"""

import importlib

import numpy as np
import onnxruntime

from tests.zoo.models.drawing import drawn
from tests.zoo.models.model_cases import make
from tests.zoo.models.tsm.golden import relative
from zoo.models import load_graph, load_spec
from zoo.models.onnx_graph import Graph

EXACT = 1e-5
SENSITIVE = 0.01  # relative change of the output from sample to sample, at least: a fault must not stay below EXACT
FACES = dict(depth=18, width=8, embedding=16)
HEAD = dict(depth=18, width=8, head_width=16, low_width=8, aux_width=8, rates=(2, 4, 6))


def export(name, arch, tensors, shape):
    """Return a function that runs the graph of a model for inputs (N, *shape)."""
    graph = Graph(tensors)
    output = load_graph(name).build(graph, arch, graph.input("input", ("batch", *shape)))
    graph.output("output", output, ["batch", *["size"] * (len(graph.shape(output)) - 1)])
    content = graph.model(name, {}).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"input": x})[0]


def export_frame(name, arch, size, streams):
    """Return a function of a frame and a state, which runs the graph of a frame, and the first state."""
    spec, module = load_spec(name), importlib.import_module(f"zoo.models.{name}.onnx")
    graph = Graph({key: drawn(key, shape) for key, shape in spec.shapes(arch).items()})
    frame = graph.input("frame", ("batch", 3, *size))
    shapes = spec.state_shapes(arch, *size)
    inputs = [graph.input(f"state_{i}", ("batch", *shape)) for i, shape in enumerate(shapes)]
    logits, state = module.build_frame(graph, arch, frame, inputs)
    graph.output("logits", logits, ["batch", 5])
    for i, (value, shape) in enumerate(zip(state, shapes, strict=True)):
        graph.output(f"new_state_{i}", value, ["batch", *shape])
    content = graph.model(name, {}).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    first = [np.zeros((streams, *shape), np.float32) for shape in shapes]
    return lambda x, state: session.run(None, {"frame": x, **dict(zip(inputs, state, strict=True))}), first


def check(backend, name, options, *shapes):
    """Compare the graph of a model with its module, for one sample and for five, of each shape."""
    spec = load_spec(name)
    arch = spec.Arch(num_classes=5, **options)
    tensors = {key: drawn(key, size) for key, size in spec.shapes(arch).items() if key not in spec.SHARDED_PARAMETERS}
    model = backend.set_train(make(backend, name, arch, drawn), False)
    dynamic = (3, "height", "width") if len(shapes) > 1 else shapes[0]
    run = export(name, arch, tensors, dynamic)
    for shape in shapes:
        for count in (1, 5):
            x = np.random.default_rng(count).standard_normal((count, *shape), np.float32)
            expected = backend.run(model, x)
            found = run(x)
            assert found.shape == expected.shape and relative(found, expected) <= EXACT, (shape, count)
        assert relative(expected[1:], expected[:-1]) > SENSITIVE, shape


def case_a_resnet_of_basic_blocks(backend):
    check(backend, "resnet", dict(depth=18, width=8), (3, 48, 40))


def case_a_resnet_with_dilation_and_the_padding_same(backend):
    options = dict(depth=50, width=4, dilate=(True, False, False), padding="same", bn_eps=1e-2)
    check(backend, "resnet", options, (3, 47, 52))


def case_a_resnet_with_the_pooling_of_mindcv(backend):
    options = dict(depth=50, width=4, dilate=(False, True, True), padding="same_pool")
    check(backend, "resnet", options, (3, 48, 52))


def case_a_tsm_that_shifts_residual_branches(backend):
    check(backend, "tsm", dict(depth=18, width=8, segments=3), (3, 3, 32, 40))


def case_a_tsm_that_shifts_blocks_and_pools(backend):
    options = dict(depth=18, width=8, segments=4, shift_place="block", shift_div=3, temporal_pool=True)
    check(backend, "tsm", {**options, "shift_direction": "past"}, (4, 3, 32, 40))


def case_a_tsm_with_non_local_blocks(backend):
    check(backend, "tsm", dict(depth=50, width=4, segments=4, non_local=True, temporal_pool=True), (4, 3, 70, 66))


def case_a_tsm_without_a_shift_and_one_that_moves_all_channels(backend):
    check(backend, "tsm", dict(depth=18, width=8, segments=2, shift_place="none"), (2, 3, 32, 32))
    check(backend, "tsm", dict(depth=18, width=8, segments=2, shift_div=2), (2, 3, 32, 32))


def case_causal_tsms(backend):
    check(backend, "tsm", dict(depth=18, width=8, segments=3, shift_direction="causal"), (3, 3, 32, 32))
    check(backend, "tsm_mobilenet_v2", dict(width=8, segments=3, shift_direction="causal"), (3, 3, 33, 40))
    check(backend, "tsm_mobilenet_v2", dict(width=8, segments=3, shift_direction="past"), (3, 3, 33, 40))


def case_frames_of_a_stream(backend):
    """Against the clip of them all, in the framework."""
    for name, options in (
        ("tsm", dict(depth=50, width=4, shift_div=3)),
        ("tsm", dict(depth=18, width=16, shift_place="block")),
        ("tsm_mobilenet_v2", dict(width=16)),
    ):
        arch = load_spec(name).Arch(num_classes=5, shift_direction="causal", **options)
        model = backend.set_train(make(backend, name, arch, drawn), False)
        video = np.random.default_rng(0).standard_normal((2, 4, 3, 33, 40), np.float32)
        expected = backend.run(model.frame_logits, video)
        step, state = export_frame(name, arch, (33, 40), len(video))
        for number in range(video.shape[1]):
            logits, *state = step(video[:, number], state)
            assert relative(logits, expected[:, number]) <= EXACT, (name, number)


def case_a_tsm_of_one_frame(backend):
    check(backend, "tsm", dict(depth=18, width=8, segments=1), (1, 3, 32, 32))


def case_a_tsm_on_mobilenet(backend):
    check(backend, "tsm_mobilenet_v2", dict(width=8, segments=3, shift_div=4), (3, 3, 33, 40))


def case_a_deeplab_of_mmsegmentation(backend):
    check(backend, "deeplabv3plus", {**HEAD, "rates": (3, 6, 9)}, (3, 48, 64), (3, 51, 37))


def case_a_deeplab_with_aligned_corners_and_a_plain_stem(backend):
    options = {**HEAD, "stem": "plain", "align_corners": True, "output_stride": 16}
    check(backend, "deeplabv3plus", options, (3, 49, 65), (3, 40, 33))


def case_a_deeplab_of_paddleseg(backend):
    check(backend, "deeplabv3plus", {**HEAD, "depth": 50, "variant": "paddleseg"}, (3, 49, 41), (3, 64, 48))


def case_a_deeplab_with_a_multi_grid(backend):
    check(backend, "deeplabv3plus", {**HEAD, "multi_grid": (1, 2), "auxiliary": False}, (3, 48, 64), (3, 33, 40))


def case_an_iresnet_of_insightface(backend):
    check(backend, "arcface", {**FACES, "size": 45}, (3, 45, 45))


def case_an_iresnet_of_plsc(backend):
    check(backend, "arcface", {**FACES, "size": 32, "variant": "plsc"}, (3, 32, 32))
