"""Causal models frame by frame, one body over all frameworks (test_stream.py)."""

import numpy as np
import pytest

from tests.helpers.paths import GOLDEN
from tests.zoo.models.model_cases import make
from tests.zoo.models.tsm import golden
from tests.zoo.models.tsm.golden import drawn, relative
from zoo.models import load_spec

EXACT = 1e-5
FRAMES, STREAMS, HEIGHT, WIDTH = 4, 2, 41, 56
BACKBONES = (  # both kinds of block and both places of the shift
    ("tsm", dict(depth=18, width=16, shift_place="block")),
    ("tsm", dict(depth=50, width=4, shift_div=3)),
    ("tsm_mobilenet_v2", dict(width=16)),
)
OTHER_DEPTHS = tuple(("tsm", dict(depth=depth, width=4)) for depth in (34, 101, 152))  # of the same blocks


def zero_state(backend, spec, arch, streams, height, width):
    """Return the state before the first frame."""
    shapes = spec.state_shapes(arch, height, width)
    return tuple(backend.to_tensor(np.zeros((streams, *shape), np.float32)) for shape in shapes)


def stream(backend, model, state, video):
    """Return the logits of the frames of a video (N, T, 3, H, W), given one by one: (N, T, K)."""
    rows = []
    for frame in np.moveaxis(video, 1, 0):

        def forward(x):
            nonlocal state
            logits, state = model.forward_frame(x, state)
            return logits

        rows.append(backend.run(forward, np.ascontiguousarray(frame)))
    return np.stack(rows, 1)


def case_a_stream_equals_its_clip_frame_by_frame(backend):
    video = np.random.default_rng(0).standard_normal((STREAMS, FRAMES, 3, HEIGHT, WIDTH), np.float32)
    for name, options in BACKBONES + (OTHER_DEPTHS if backend.FRAMEWORK == "torch" else ()):
        spec = load_spec(name)
        arch = spec.Arch(num_classes=5, segments=FRAMES, shift_direction="causal", **options)
        model = backend.set_train(make(backend, name, arch, drawn), False)
        state = zero_state(backend, spec, arch, STREAMS, HEIGHT, WIDTH)
        frames = stream(backend, model, state, video)
        assert relative(frames, backend.run(model.frame_logits, video)) <= EXACT, (name, options)
        for count in (1, FRAMES - 1, FRAMES):  # the mean of the first logits is the output for a clip of these frames
            clip = backend.run(model, np.ascontiguousarray(video[:, :count]))
            assert relative(frames[:, :count].mean(1), clip) <= EXACT, (name, options, count)
        backwards = stream(backend, model, state, np.ascontiguousarray(video[:, ::-1]))
        assert relative(backwards[:, ::-1], frames) > 1e-3  # the past matters


def case_streams_do_not_mix(backend):
    spec = load_spec("tsm_mobilenet_v2")
    arch = spec.Arch(num_classes=5, shift_direction="causal", width=16)
    model = backend.set_train(make(backend, "tsm_mobilenet_v2", arch, drawn), False)
    video = np.random.default_rng(1).standard_normal((3, 3, 3, 32, 32), np.float32)
    together = stream(backend, model, zero_state(backend, spec, arch, 3, 32, 32), video)
    for i in range(3):
        alone = stream(backend, model, zero_state(backend, spec, arch, 1, 32, 32), video[i : i + 1])
        assert relative(alone[0], together[i]) <= EXACT


def case_the_online_mobilenet_equals_upstream(backend):
    """Logits of 8 frames of 2 streams and the last state of mit-han-lab's online_demo; see tests/golden/README.txt."""
    spec = load_spec("tsm_mobilenet_v2")
    arch = spec.Arch(num_classes=golden.CLASSES, shift_direction="causal")
    model = backend.set_train(make(backend, "tsm_mobilenet_v2", arch, drawn), False)
    with np.load(GOLDEN / "mobilenet_v2_online.npz") as recorded:
        logits, last = recorded["logits"], recorded["state"]
    state = zero_state(backend, spec, arch, golden.VIDEOS, golden.SIDE, golden.SIDE)
    assert relative(stream(backend, model, state, golden.video()), logits) <= EXACT
    assert relative(backend.run(model.frame_logits, golden.video()), logits) <= EXACT

    def last_state(*frames):
        current = state
        for frame in frames:
            _, current = model.forward_frame(frame, current)
        return current[-1]

    frames = [np.ascontiguousarray(frame) for frame in np.moveaxis(golden.video(), 1, 0)]
    assert relative(backend.run(last_state, *frames), last) <= EXACT


def case_a_model_that_looks_ahead_has_no_stream(backend):
    for name, options in (("tsm", dict(depth=18, width=8)), ("tsm_mobilenet_v2", dict(width=8))):
        for direction in ("future", "past"):
            arch = load_spec(name).Arch(num_classes=5, shift_direction=direction, **options)
            model = backend.set_train(make(backend, name, arch), False)
            with pytest.raises(ValueError, match=f"^shift_direction: .* {direction}"):
                stream(backend, model, (), np.zeros((1, 1, 3, 32, 32), np.float32))
