"""Cases of the MindSpore trainer; tests/zoo/trainer/mindspore/test_trainer.py runs them in a process of their own."""

import functools
import socket
import threading
import time

import mindspore  # after the trainer, which chooses how much MindSpore says
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from data.batch import Field
from data.errors import UserError
from zoo.models import initializers
from zoo.models.resnet import spec as resnet_spec
from zoo.models.tsm import spec
from zoo.models.tsm.mindspore import Model
from zoo.tasks.classify import CrossEntropy
from zoo.trainer.mindspore import Trainer, objectives, start
from zoo.trainer.mindspore.trainer import Normalise
from zoo.trainer.mindspore.update import scalar
from zoo.trainer.mindspore.world import _await_scheduler
from zoo.trainer.protocol import Launch, Mode, Plan

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FIELDS = (Field("video", (2, 16, 16, 3), "uint8", MEAN, STD), Field("label", (), "int64"))
resnet_spec.BLOCKS[10] = (1, 1, 1, 1)  # no such net is trained; it compiles in half the time of the smallest that is
WORLD = start(Launch(), "cpu")  # the device must be set before the first computation
GRAPH = dict(clip_norm=1.0, dropout=0.5, smoothing=0.1)  # what all cases of compiled fp32 are content with
TINY = dict(depth=10, width=8, num_classes=5, segments=2)


def make(
    decay=1e-2,
    smoothing=0.0,
    compute="fp32",
    level=None,
    compiled=False,
    dropout=0.0,
    partial_bn=False,
    frozen=False,
    depth=TINY["depth"],
    **plan,
):
    """A new trainer. frozen: every normalisation uses its running statistics."""
    arch = spec.Arch(dropout=dropout, partial_bn=partial_bn, **{**TINY, "depth": depth})

    def param_group(name):
        factor, share = spec.lr_and_decay_scale(arch, name)
        return (0.0 if frozen and resnet_spec.is_norm(name) else factor), share * decay

    noise = spec.dropout_masks(arch)
    trainer = Trainer(
        Model,
        arch,
        CrossEntropy(smoothing),
        Plan(
            FIELDS + tuple(source.field for source in noise),
            tuple(source.name for source in noise),
            param_group,
            Mode(compute, level, False, compiled),
            **plan,
        ),
        WORLD,
    )
    trainer.load_state_dict(
        {
            param.name: initializers.initialize(
                spec.initializer(arch, param.name, param.shape), 1, param.name, param.shape
            )
            for param in trainer.params
        }
    )
    return trainer


@functools.cache
def compiled_once(**options):
    trainer = make(compiled=True, **options)
    return trainer, trainer.state_dict()


def compiled(**options):
    """A graph-mode trainer as if it were new; cases with the same options share it, since compiling takes seconds."""
    trainer, fresh = compiled_once(**options)
    trainer.load_state_dict(fresh)
    return use(trainer)


def use(trainer):
    """The mode belongs to the process; a run has one trainer, these cases have many."""
    set_mode(trainer.mode.compile)
    return trainer


def set_mode(graph):
    mindspore.set_context(mode=mindspore.GRAPH_MODE if graph else mindspore.PYNATIVE_MODE)


def batch(rows=4, seed=0, **more):
    rng = np.random.default_rng(seed)
    return {
        "video": rng.integers(0, 256, (rows, 2, 16, 16, 3), dtype=np.uint8),
        "label": rng.integers(0, 5, rows),
        "dropout": rng.integers(0, 2, (rows, 2, 64), dtype=np.uint8),
        "valid": np.ones(rows, np.uint8),
        **more,
    }


def go(trainer, lr=0.05, seed=0, **more):
    use(trainer)
    return trainer.read(trainer.step([trainer.to_device(batch(seed=seed, **more))], lr))


def equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value, err_msg=name)


def close(one, other, rtol, atol):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(other[name], value, rtol=rtol, atol=atol, err_msg=name)


def case_pixels_are_normalised_as_the_field_says():
    set_mode(graph=False)
    one = batch()
    scaled = (one["video"].astype(np.float64) / 255 - np.array(MEAN)) / np.array(STD)
    found = Normalise(FIELDS[0])(Tensor(one["video"])).asnumpy()
    np.testing.assert_allclose(found, np.moveaxis(scaled, -1, -3), atol=1e-6)
    image = Normalise(Field("image", (16, 16, 3), "uint8", MEAN, STD))(Tensor(one["video"][:, 0])).asnumpy()
    np.testing.assert_array_equal(image, found[:, 0])
    passing = Normalise(Field("features", (4,), "float32"))(Tensor(np.arange(8, dtype=np.float32).reshape(2, 4)))
    np.testing.assert_array_equal(passing.asnumpy(), np.arange(8).reshape(2, 4))


def flat(x):
    return x.asnumpy().flatten().tolist()


def case_a_batch_on_the_device_is_a_copy():
    trainer, one = make(), batch()
    device_batch = trainer.to_device(one)
    before = {name: array.copy() for name, array in one.items()}
    for array in one.values():
        array[:] = 0
    for name, array in before.items():
        np.testing.assert_array_equal(device_batch[name].asnumpy(), array)
    assert before["label"].dtype == np.int64 and device_batch["label"].dtype == mindspore.int32


def case_the_first_updates_are_the_formula():
    """v = mu * v + (c * g + decay * p), p -= lr * factor * v: in numpy, from the gradients themselves."""
    trainer = make(clip_norm=0.5)
    velocity = dict.fromkeys(trainer.trained, 0.0)
    for seed, lr in enumerate((0.05, 0.02)):
        before, device_batch = trainer.state_dict(), trainer.to_device(batch(seed=seed))
        loss, found = trainer.gradient(scalar(4), *trainer._fields(device_batch))
        gradients = {name: part.asnumpy().astype(np.float64) for name, part in zip(trainer.trained, found)}
        trainer.load_state_dict(before)  # the gradient moved the running statistics
        numbers = trainer.read(trainer.step([device_batch], lr))
        after = trainer.state_dict()
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        assert numbers["grad_norm"] == pytest.approx(norm, rel=1e-5) and norm > 0.5
        assert numbers["loss"] == pytest.approx(float(loss.asnumpy()), rel=1e-6)
        for name, gradient in gradients.items():
            factor, decay = trainer.plan.param_group(name)
            velocity[name] = 0.9 * velocity[name] + gradient * 0.5 / norm + decay * before[name]
            expected = before[name] - lr * factor * velocity[name]
            np.testing.assert_allclose(after[name], expected, rtol=1e-5, atol=1e-7, err_msg=name)
            np.testing.assert_allclose(after[f"momentum/{name}"], velocity[name], rtol=1e-4, atol=1e-7, err_msg=name)
    assert {trainer.plan.param_group(name) for name in trainer.trained} == {
        (1.0, 0.01),
        (1.0, 0.0),
        (5.0, 0.01),
        (10.0, 0.0),
    }  # else a factor or a decay was not tried


def case_two_parts_are_one_batch():
    """With frozen statistics, accumulating is exact: the mean over all samples, not a mean of means."""
    whole, split = make(frozen=True), make(frozen=True, accumulate=2, compiled=True)
    both = batch(rows=6)
    parts = [{name: array[rows] for name, array in both.items()} for rows in (slice(0, 3), slice(3, 6))]
    a = use(whole).read(whole.step([whole.to_device(both)], 0.1))
    b = use(split).read(split.step([split.to_device(part) for part in parts], 0.1))
    assert a == pytest.approx(b, rel=1e-5)
    close(whole.state_dict(), split.state_dict(), 1e-4, 1e-6)
    uneven = [{name: array[rows] for name, array in both.items()} for rows in (slice(0, 2), slice(2, 6))]
    fresh = make(frozen=True, accumulate=2)
    use(fresh).step([fresh.to_device(part) for part in uneven], 0.1)
    close(whole.state_dict(), fresh.state_dict(), 1e-4, 1e-6)


def case_a_step_without_finite_gradient_changes_nothing():
    for trainer in (make(clip_norm=1.0), compiled(**GRAPH)):
        for seed in (1, 2):  # the very first step may be skipped too
            before = trainer.state_dict()
            trainer.load_state_dict({"scaler/scale": np.array(np.inf, np.float32)})
            for consecutive_skips in (1, 2):
                numbers = go(trainer, seed=seed)
                assert (
                    numbers["consecutive_skips"] == consecutive_skips
                    and numbers["skipped"] == before["scaler/skipped"] + consecutive_skips
                )
                assert not np.isfinite(numbers["grad_norm"])
            after = trainer.state_dict()
            for name in trainer.trained:
                np.testing.assert_array_equal(after[name], before[name])
                np.testing.assert_array_equal(after[f"momentum/{name}"], before[f"momentum/{name}"])
            assert not np.array_equal(after["bn1.running_mean"], before["bn1.running_mean"])
            trainer.load_state_dict({"scaler/scale": np.array(1, np.float32)})
            numbers = go(trainer, seed=seed)
            assert numbers["consecutive_skips"] == 0 and numbers["skipped"] == before["scaler/skipped"] + 2
            assert not np.array_equal(trainer.state_dict()["fc.weight"], before["fc.weight"])


def case_the_loss_scale_halves_and_doubles():
    trainer = compiled(compute="fp16", level="O1", loss_scale=8.0)
    head = trainer.state_dict()["fc.weight"]
    trainer.load_state_dict({"fc.weight": np.full_like(head, np.nan)})
    assert go(trainer)["scale"] == 8.0 and trainer.state_dict()["scaler/scale"] == 4.0
    assert trainer.nonfinite_report().startswith("not finite: weight or statistic fc.weight")
    trainer.load_state_dict({"fc.weight": head, "scaler/good": np.array(1998, np.float32)})
    for scale, after, good in ((4.0, 4.0, 1999), (4.0, 8.0, 0), (8.0, 8.0, 1)):
        numbers, state = go(trainer, 0.001), trainer.state_dict()
        assert (numbers["scale"], numbers["skipped"], numbers["consecutive_skips"]) == (scale, 1, 0)
        assert (state["scaler/scale"], state["scaler/good"], state["scaler/skipped"]) == (after, good, 1)
    assert trainer.nonfinite_report() == "all finite"


def case_the_scale_is_taken_out_of_the_gradient():
    trainer = compiled(**GRAPH)
    plain = go(trainer), trainer.state_dict()
    compiled(**GRAPH).load({"scaler/scale": np.array(1024, np.float32)})  # a power of two: exact
    scaled = go(trainer), trainer.state_dict()
    assert plain[0]["grad_norm"] == pytest.approx(scaled[0]["grad_norm"], rel=1e-6) and scaled[0]["scale"] == 1024
    for name in trainer.trained:
        np.testing.assert_allclose(scaled[1][name], plain[1][name], rtol=1e-6, atol=1e-8, err_msg=name)


def case_sixteen_bits_are_real_and_stay_out_of_evaluation():
    plain, one = make(), batch(seed=3)
    exact, losses = go(plain, 0.0)["loss"], []
    for level in ("O1", "O2", "O3"):
        trainer = compiled(compute="fp16", level=level, loss_scale=8.0)
        numbers = go(trainer, 0.0)
        losses.append(numbers["loss"])
        assert 1e-7 < abs(numbers["loss"] - exact) < 1e-2 and numbers["scale"] == 8 and numbers["skipped"] == 0
        assert all(value.dtype == np.float32 for value in trainer.state_dict().values())
        trainer.load_state_dict(plain.state_dict())
        predicted = []
        for each in (plain, trainer):
            set_mode(graph=False)  # spares compiling
            predicted.append(each.predict(each.to_device(one)))
        np.testing.assert_allclose(predicted[1], predicted[0], rtol=1e-6, atol=1e-6)
    assert len(set(losses)) == 3
    eager = make(compute="fp16", level="O1", loss_scale=8.0)
    assert go(eager, 0.0)["loss"] == pytest.approx(losses[0], abs=1e-5)


class Probe(nn.Cell):
    """Its only logit says what is computed in fp16: 1 the convolution, 2 the normalisation, 4 the softmax."""

    def __init__(self, arch):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 1, has_bias=False), nn.BatchNorm2d(4)

    def construct(self, video):
        convolved = self.conv(video.reshape((-1,) + video.shape[2:]))
        normalised = self.bn(convolved)
        code = 0.0
        for bit, part in ((1, convolved), (2, normalised), (4, ops.softmax(normalised, 1))):
            code += bit * float(part.dtype == mindspore.float16)
        return normalised.mean((1, 2, 3)).reshape(-1, 2).astype(mindspore.float32) * 0 + code


def case_levels_are_what_the_protocol_says():
    for compute, level, code in (("fp32", None, 0), ("fp16", "O1", 1), ("fp16", "O2", 7), ("fp16", "O3", 7)):
        for graph in (False, True):
            trainer = Trainer(
                Probe,
                None,
                CrossEntropy(0.0),
                Plan(FIELDS, (), lambda name: (1.0, 0.0), Mode(compute, level, False, graph)),
                WORLD,
            )
            found = trainer.gradient.forward(trainer.prepare(trainer.to_device(batch())["video"]))
            assert flat(found) == [code] * 8, level


def case_both_modes_do_the_same():
    """Compiled and operator by operator: numbers, weights, statistics, predictions."""
    eager, graph = make(**GRAPH), compiled(**GRAPH)
    device_batch = eager.to_device(batch(seed=5))
    for seed, lr in enumerate((0.01, 0.005)):
        assert go(eager, lr, seed) == pytest.approx(go(graph, lr, seed), rel=1e-5)
    close(eager.state_dict(), graph.state_dict(), 1e-5, 1e-5)
    before = graph.state_dict()
    np.testing.assert_allclose(use(graph).predict(device_batch), use(eager).predict(device_batch), rtol=1e-5, atol=1e-5)
    equal(before, graph.state_dict())  # evaluation leaves the statistics alone


def case_a_net_of_152_layers_compiles():
    """Its update goes over 467 tensors, and the compiler nests no more than 1000 calls."""
    eager, graph = make(depth=152), make(depth=152, compiled=True)
    found, expected = go(graph), go(eager)
    assert abs(found["loss"] / expected["loss"] - 1) <= 1e-5
    assert abs(found["grad_norm"] / expected["grad_norm"] - 1) <= 1e-3
    close(graph.state_dict(), eager.state_dict(), 1e-3, 1e-5)


def case_steps_without_compiling_do_not_slow_down():
    trainer, seconds = make(), []
    for seed in range(12):
        begun = time.process_time()  # of this process alone, whatever else the machine does
        go(trainer, 0.01 / (seed + 1), seed)
        seconds.append(time.process_time() - begun)
    assert min(seconds[-4:]) < 2 * min(seconds[1:5]), seconds


def case_partial_bn_freezes_all_but_the_first():
    trainer = make(partial_bn=True)
    before = trainer.state_dict()
    go(trainer, 0.5)
    trainer.predict(trainer.to_device(batch()))  # evaluation must not unfreeze
    go(trainer, 0.5)
    changed = {
        name
        for name, value in trainer.state_dict().items()
        if name in before and "/" not in name and not np.array_equal(value, before[name])
    }
    norms = {param.name for param in trainer.params if resnet_spec.is_norm(param.name)}
    assert changed & norms == {f"bn1.{part}" for part in ("weight", "bias", "running_mean", "running_var")}
    assert {param.name for param in trainer.params} - norms <= changed


def case_dropout_follows_the_mask_and_stays_out_of_evaluation():
    trainer, one = make(dropout=0.5), batch()
    x, bias = trainer.prepare(trainer.to_device(one)["video"]), trainer.net.fc.bias
    plain = (trainer.net(x) - bias).asnumpy()
    doubled, nothing = (
        (trainer.net(x, Tensor(np.full((4, 2, 64), value, np.uint8))) - bias).asnumpy() for value in (1, 0)
    )
    np.testing.assert_allclose(doubled, 2 * plain, rtol=1e-5, atol=1e-6)
    assert (nothing == 0).all()
    np.testing.assert_allclose(trainer.predict(trainer.to_device(one)), plain + bias.asnumpy(), atol=1e-6)
    losses = [go(trainer, 0.0, dropout=np.full((4, 2, 64), value, np.uint8))["loss"] for value in (1, 0)]
    assert losses[1] == pytest.approx(np.log(5), rel=1e-5) and abs(losses[0] - losses[1]) > 1e-3


def case_dump_and_load_continue_bit_for_bit():
    first, second = make(clip_norm=1.0), make(clip_norm=1.0)
    for one, other, begun in ((first, second, False), (compiled(**GRAPH),) * 2 + (True,)):
        go(one, 0.05, 0)
        state = one.state_dict()
        go(one, 0.02, 1)
        wanted = one.state_dict()
        if begun:
            go(other, 0.05, 7)  # loading in the middle forgets what was
        other.load_state_dict(state)
        go(other, 0.02, 1)
        equal(wanted, other.state_dict())


def case_a_dump_is_what_every_framework_dumps():
    trainer = make(partial_bn=True)
    arch = spec.Arch(partial_bn=True, **TINY)
    expected = spec.shapes(arch)
    expected.update(
        {
            f"momentum/{name}": shape
            for name, shape in spec.shapes(arch).items()
            if "running_" not in name and spec.lr_and_decay_scale(arch, name)[0]
        }
    )
    expected.update({f"scaler/{name}": () for name in ("scale", "good", "skipped")})
    dumped, rng = trainer.state_dict(), np.random.default_rng(3)
    assert {name: value.shape for name, value in dumped.items()} == expected
    assert all(type(value) is np.ndarray and value.dtype == np.float32 for value in dumped.values())
    assert [param.name for param in trainer.params if param.statistic] == [
        name for name in spec.shapes(arch) if "running_" in name
    ]
    made = {name: rng.standard_normal(value.shape, dtype=np.float32) for name, value in dumped.items()}
    made.update({name: np.array(value) for name, value in made.items() if not np.shape(value)})
    trainer.load_state_dict(made)
    equal(made, trainer.state_dict())
    kept = {name: value.copy() for name, value in dumped.items()}
    go(trainer, 0.5)
    equal(kept, dumped)  # a copy


def case_label_smoothing_is_spread_over_all_classes():
    set_mode(graph=False)
    rng = np.random.default_rng(0)
    logits, labels = rng.standard_normal((6, 5)).astype(np.float32), rng.integers(0, 5, 6).astype(np.int32)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    for smoothing in (0.0, 0.1):
        target = (1 - smoothing) * np.eye(5)[labels] + smoothing / 5
        objective = objectives.build(CrossEntropy(smoothing))
        found = objective(Tensor(logits), Tensor(labels))
        assert float(found.asnumpy()) == pytest.approx(-(target * logs).sum(), rel=1e-5)
        assert objective.count({"label": Tensor(labels)}) == 6


def case_a_worker_waits_until_the_scheduler_listens():
    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        begun = time.monotonic()
        threading.Timer(0.3, late.listen).start()
        _await_scheduler(*late.getsockname())
        assert 0.3 <= time.monotonic() - begun < 30


def case_the_world_says_what_it_will_do():
    assert (WORLD.rank, WORLD.size) == (0, 1) and WORLD.device.startswith("cpu (")
    assert WORLD.resolve_mode(Mode("fp32")) == Mode("fp32", None, False, True)
    assert WORLD.resolve_mode(Mode("fp32", "O2", False, False)) == Mode("fp32", None, False, False)
    assert WORLD.resolve_mode(Mode("amp")) == Mode("fp16", "O1", False, True)
    assert WORLD.resolve_mode(Mode("fp16", "O3", None, True)) == Mode("fp16", "O3", False, True)
    for wish, word in ((Mode("bf16"), "no bf16 .*use fp16"), (Mode("fp32", None, True), "channels_last")):
        with pytest.raises(UserError, match=word):
            WORLD.resolve_mode(wish)
    missing = [] if mindspore.hal.is_available("GPU") else ["cuda", "cuda:0"]
    for device in ("tpu", "gpu", "cpu:1", "cuda:x", "npu:99", "cuda:99", *missing):
        with pytest.raises(UserError, match="device"):
            start(Launch(), device)
