"""Cases of the Paddle nets and their trainer; tests/zoo/trainer/paddle/test_trainer.py runs them in a process of their own."""

import os

import numpy as np
import paddle  # after the trainer, which chooses the number of threads
import pytest

from data.batch import Field
from data.errors import UserError
from tests.zoo.models.tsm.golden import (
    CASES,
    CLASSES,
    SEGMENTS,
    TOLERANCE,
    differences,
    drawn,
    video,
)
from zoo.models import initializers
from zoo.models.resnet import spec as resnet_spec
from zoo.models.resnet.paddle import Model as ResNet
from zoo.models.tsm import spec
from zoo.models.tsm.paddle import Model, NonLocal, temporal_pool, temporal_shift
from zoo.tasks.classify import CrossEntropy
from zoo.trainer.paddle import Trainer, batchnorm, names, objectives, start
from zoo.trainer.paddle.world import World
from zoo.trainer.protocol import Launch, Mode, Plan

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FIELDS = (Field("video", (2, 16, 16, 3), "uint8", MEAN, STD), Field("label", (), "int64"))
TINY = dict(depth=18, width=8, num_classes=5, segments=2)


def make(decay=1e-2, smoothing=0.0, compute="fp32", compiled=False, dropout=0.0, partial_bn=False, **plan):
    arch = spec.Arch(dropout=dropout, partial_bn=partial_bn, **TINY)

    def param_group(name):
        factor, share = spec.lr_and_decay_scale(arch, name)
        return factor, share * decay

    noise = spec.dropout_masks(arch)
    trainer = Trainer(
        Model,
        arch,
        CrossEntropy(smoothing),
        Plan(
            FIELDS + tuple(source.field for source in noise),
            tuple(source.name for source in noise),
            param_group,
            Mode(compute, None, False, compiled),
            **plan,
        ),
        start(Launch(), "cpu"),
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


def batch(rows=4, seed=0, **more):
    rng = np.random.default_rng(seed)
    return {
        "video": rng.integers(0, 256, (rows, 2, 16, 16, 3), dtype=np.uint8),
        "label": rng.integers(0, 5, rows),
        "valid": np.ones(rows, np.uint8),
        **more,
    }


def go(trainer, lr=0.05, seed=0, **more):
    return trainer.read(trainer.step([trainer.to_device(batch(seed=seed, **more))], lr))


def equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value, err_msg=name)


def golden(case):
    net, clips = Model(spec.Arch(num_classes=CLASSES, segments=SEGMENTS, dropout=0.0, **CASES[case])), video()
    if batchnorm.is_biased(paddle.CPUPlace()):
        batchnorm.convert_batchnorm(net)
    turned = names.transposed(net)
    for name, tensor in names.tensors(net).items():
        shape = tuple(tensor.shape)
        names.fill(tensor, drawn(name, shape[::-1] if name in turned else shape), name in turned)
    with paddle.no_grad():
        net.eval()
        evaluated = net(paddle.to_tensor(clips)).numpy()
        net.train()
        trained = net(paddle.to_tensor(clips)).numpy()
    found = differences(case, evaluated, trained, {name: tensor.numpy() for name, tensor in names.tensors(net).items()})
    assert max(found.values()) <= TOLERANCE, found


def case_equals_upstream_blockres():
    golden("r50_blockres")


def case_equals_upstream_block():
    golden("r50_block")


def case_equals_upstream_tpool():
    golden("r50_tpool")


def case_equals_upstream_nonlocal():
    golden("r50_nonlocal")


def case_equals_upstream_101():
    golden("r101_blockres")


def case_every_tensor_is_the_specs():
    """Names and canonical shapes; parameters come before statistics."""
    for its, kind, options in (
        (spec, Model, dict(depth=18, segments=2)),
        (spec, Model, dict(depth=50, non_local=True)),
        (resnet_spec, ResNet, dict(depth=34)),
        (resnet_spec, ResNet, dict(depth=50)),
    ):
        arch = its.Arch(num_classes=5, width=8, **options)
        net = kind(arch)
        found = {
            name: tuple(tensor.shape[::-1] if name in names.transposed(net) else tensor.shape)
            for name, tensor in names.tensors(net).items()
        }
        assert found == its.shapes(arch)
        kinds = [names.is_statistic(name) for name in found]
        assert kinds == sorted(kinds) and any(kinds)


def case_dilated_resnet():
    net = ResNet(resnet_spec.Arch(depth=50, width=8, num_classes=5, dilate=(False, True, True)))
    net.eval()
    x = net.layer4(net.layer3(net.layer2(net.layer1(net.stem(paddle.ones((1, 3, 64, 64)))))))
    assert x.shape == [1, 256, 8, 8]


def shifted(x, segments, fold, future):
    clips = x.reshape(-1, segments, *x.shape[1:])
    out = clips.copy()
    a, b = slice(0, fold), slice(fold, 2 * fold)
    following, previous = (a, b) if future else (b, a)
    out[:, :, : 2 * fold] = 0
    out[:, :-1, following], out[:, 1:, previous] = clips[:, 1:, following], clips[:, :-1, previous]
    return out.reshape(x.shape)


def case_shift_and_its_gradient():
    rng = np.random.default_rng(0)
    for segments in (1, 2, 8):
        for channels, div in ((8, 8), (9, 3), (8, 2), (7, 2), (3, 8)):
            for direction, future in (("future", True), ("past", False)):
                source = rng.standard_normal((2 * segments, channels, 2, 3)).astype(np.float32)
                weight = rng.standard_normal(source.shape).astype(np.float32)
                x = paddle.to_tensor(source, stop_gradient=False)
                y = temporal_shift(x, segments, div, direction)
                (y * paddle.to_tensor(weight)).sum().backward()
                np.testing.assert_array_equal(y.numpy(), shifted(source, segments, channels // div, future))
                np.testing.assert_array_equal(x.grad.numpy(), shifted(weight, segments, channels // div, not future))
                np.testing.assert_array_equal(x.numpy(), source)
                with paddle.no_grad():
                    np.testing.assert_array_equal(temporal_shift(x, segments, div, direction).numpy(), y.numpy())


def case_shift_by_hand():
    x = paddle.arange(1, 7, dtype="float32").reshape((2, 3, 1, 1))  # frames 1 2 3 and 4 5 6
    assert temporal_shift(x, 2, 3).flatten().tolist() == [4, 0, 3, 0, 2, 6]
    assert temporal_shift(x, 2, 3, "past").flatten().tolist() == [0, 5, 3, 1, 0, 6]
    for arguments in ((3,), (2, 1), (2, 3, "back")):
        with pytest.raises(ValueError):
            temporal_shift(x, *arguments)


def case_temporal_pool():
    x = paddle.to_tensor(np.array([-5, -1, -3, -4, 2, 1, 0, 7], np.float32).reshape(8, 1, 1, 1))  # clips of 4
    assert temporal_pool(x, 4).flatten().tolist() == [-1, -1, 2, 7]
    assert temporal_pool(x, 2).flatten().tolist() == [-1, -3, 2, 7]
    with pytest.raises(ValueError):
        temporal_pool(x, 1)


def case_nonlocal_begins_as_the_identity():
    layer = NonLocal(4)
    layer.bn.weight.set_value(np.zeros(4, np.float32))
    x = paddle.randn((4, 4, 4, 4))
    np.testing.assert_array_equal(layer(x, 2).numpy(), x.numpy())


def case_pixels_are_normalised_as_the_field_says():
    trainer, one = make(), batch()
    scaled = (one["video"].astype(np.float64) / 255 - np.array(MEAN)) / np.array(STD)
    ours = trainer._prepare(trainer.to_device(one)["video"]).numpy()
    np.testing.assert_allclose(ours, np.moveaxis(scaled, -1, -3), atol=1e-6)


def case_the_first_updates_are_the_formula():
    """v = mu * v + (c * g + decay * p), p -= lr * factor * v: in numpy, from the gradients themselves."""
    trainer = make(clip_norm=0.5)
    velocity = dict.fromkeys(trainer.trained, 0.0)
    for seed, lr in enumerate((0.05, 0.02)):
        before = trainer.state_dict()
        numbers = go(trainer, lr, seed)
        after = trainer.state_dict()
        gradients = {
            name: names.to_numpy(tensor.grad, name in trainer.transposed).astype(np.float64)
            for name, tensor in trainer.trained.items()
        }
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        assert numbers["grad_norm"] == pytest.approx(norm, rel=1e-5) and norm > 0.5
        for name, gradient in gradients.items():
            factor, decay = trainer.plan.param_group(name)
            velocity[name] = 0.9 * velocity[name] + gradient * 0.5 / norm + decay * before[name]
            expected = before[name] - lr * factor * velocity[name]
            np.testing.assert_allclose(after[name], expected, rtol=1e-5, atol=1e-7, err_msg=name)
            np.testing.assert_allclose(after[f"momentum/{name}"], velocity[name], rtol=1e-4, atol=1e-7, err_msg=name)


def case_two_parts_are_one_batch():
    """With frozen statistics, accumulating is exact: the mean over all samples, not a mean of means."""
    whole, split = make(partial_bn=True), make(partial_bn=True, accumulate=2)
    for trainer in (whole, split):
        trainer.frozen.append(trainer.net.bn1)  # the one that partial_bn leaves
    both = batch(rows=6)
    parts = [{name: array[rows] for name, array in both.items()} for rows in (slice(0, 2), slice(2, 6))]
    a = whole.read(whole.step([whole.to_device(both)], 0.1))
    b = split.read(split.step([split.to_device(part) for part in parts], 0.1))
    assert a["loss"] == pytest.approx(b["loss"], rel=1e-6)
    for name, value in whole.state_dict().items():
        np.testing.assert_allclose(split.state_dict()[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def case_a_step_without_finite_gradient_changes_nothing():
    for trained_before in (True, False):
        trainer = make(clip_norm=1.0)
        if trained_before:
            go(trainer)
        before = trainer.state_dict()
        trainer.scaler.scale = float("inf")
        numbers = go(trainer, seed=1)
        after = trainer.state_dict()
        assert numbers["skipped"] == 1 and numbers["consecutive_skips"] == 1 and not np.isfinite(numbers["grad_norm"])
        for name in trainer.trained:
            np.testing.assert_array_equal(after[name], before[name])
            np.testing.assert_array_equal(after[f"momentum/{name}"], before[f"momentum/{name}"])
        assert not np.array_equal(after["bn1.running_mean"], before["bn1.running_mean"])
        trainer.scaler.scale = 1.0
        numbers = go(trainer, seed=1)
        assert numbers["skipped"] == 1 and numbers["consecutive_skips"] == 0


def case_the_loss_scale_halves_and_doubles():
    trainer = make(loss_scale=8.0)
    trainer.scaler = type(trainer.scaler)(dynamic=True, initial=8.0)  # as in fp16, which a CPU lacks
    head = trainer.state_dict()["fc.weight"]
    trainer.load_state_dict({"fc.weight": np.full_like(head, np.nan)})
    assert go(trainer)["scale"] == 8.0 and trainer.scaler.scale == 4.0
    assert trainer.nonfinite_report().startswith("not finite: weight or statistic fc.weight")
    trainer.load_state_dict({"fc.weight": head, "scaler/good": np.array(1999, np.float32)})
    assert go(trainer)["consecutive_skips"] == 0
    assert trainer.scaler.scale == 8.0 and trainer.scaler.good == 0
    assert {name: float(value) for name, value in trainer.state_dict().items() if name.startswith("scaler/")} == {
        "scaler/scale": 8.0,
        "scaler/good": 0.0,
        "scaler/skipped": 1.0,
    }
    assert trainer.nonfinite_report() == "all finite"


def case_the_scale_is_taken_out_of_the_gradient():
    plain, scaled = make(), make()
    scaled.scaler.scale = 1024.0  # a power of two: exact
    assert go(plain)["grad_norm"] == pytest.approx(go(scaled)["grad_norm"], rel=1e-6)
    for name in plain.trained:
        np.testing.assert_allclose(scaled.state_dict()[name], plain.state_dict()[name], rtol=1e-6, atol=1e-8)


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
    norms = {param.name for param in trainer.params if spec.resnet.is_norm(param.name)}
    assert changed & norms == {f"bn1.{part}" for part in ("weight", "bias", "running_mean", "running_var")}
    assert {param.name for param in trainer.params} - norms <= changed


def case_dropout_follows_the_mask_and_stays_out_of_evaluation():
    trainer, one = make(dropout=0.5), batch()
    trainer.net.eval()
    with paddle.no_grad():
        x, bias = trainer._prepare(trainer.to_device(one)["video"]), trainer.net.fc.bias
        plain = trainer.net(x) - bias
        doubled, nothing = (trainer.net(x, paddle.full((4, 2, 64), value, "uint8")) - bias for value in (1, 0))
    np.testing.assert_allclose(doubled.numpy(), 2 * plain.numpy(), rtol=1e-5, atol=1e-6)
    assert (nothing.numpy() == 0).all()
    np.testing.assert_allclose(trainer.predict(trainer.to_device(one)), (plain + bias).numpy(), atol=1e-6)
    assert np.isfinite(go(trainer, dropout=np.ones((4, 2, 64), np.uint8))["loss"])


def case_dump_and_load_continue_bit_for_bit():
    first = make(clip_norm=1.0)
    for seed in range(2):
        go(first, 0.05, seed)
    second = make(clip_norm=1.0)
    go(second, 0.05, 7)  # loading in the middle forgets what was
    second.load_state_dict(first.state_dict())
    for trainer in (first, second):
        for seed in (2, 3):
            go(trainer, 0.02, seed)
    equal(first.state_dict(), second.state_dict())


def case_loading_and_dumping_keep_every_bit():
    trainer, rng = make(), np.random.default_rng(3)
    made = {name: rng.standard_normal(value.shape).astype(np.float32) for name, value in trainer.state_dict().items()}
    trainer.load_state_dict(made)
    equal(made, trainer.state_dict())
    assert all(value.dtype == np.float32 for value in trainer.state_dict().values())
    np.testing.assert_array_equal(trainer.net.fc.weight.numpy(), made["fc.weight"].T)
    assert made["fc.weight"].shape == made["momentum/fc.weight"].shape == (5, 64)


def case_a_dump_is_a_copy():
    trainer = make()
    before = trainer.state_dict()
    kept = {name: value.copy() for name, value in before.items()}
    go(trainer, 0.5)
    equal(kept, before)


def case_compiled_steps_are_the_same_steps():
    plain, compiled = (make(dropout=0.5, compiled=compiled) for compiled in (False, True))
    mask = np.random.default_rng(0).integers(0, 2, (4, 2, 64), dtype=np.uint8)
    for seed, lr in enumerate((0.05, 0.02)):
        for trainer in (plain, compiled):
            go(trainer, lr, seed, dropout=mask)
    device_batch = plain.to_device(batch())
    np.testing.assert_allclose(compiled.predict(device_batch), plain.predict(device_batch), rtol=1e-5, atol=1e-6)
    before = compiled.state_dict()
    compiled.predict(device_batch)
    equal(before, compiled.state_dict())  # evaluation leaves the statistics alone
    for name, value in plain.state_dict().items():
        np.testing.assert_allclose(before[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def case_running_variance_is_unbiased():
    rng = np.random.default_rng(0)
    for kind, shape in (
        (paddle.nn.BatchNorm2D, (3, 4, 2, 2)),
        (paddle.nn.BatchNorm2D, (2, 4, 1, 1)),
        (paddle.nn.BatchNorm3D, (2, 4, 3, 1, 2)),
    ):
        net = paddle.nn.Sequential(kind(4))
        if batchnorm.is_biased(paddle.CPUPlace()):
            batchnorm.convert_batchnorm(net)
        mean, variance, axes = np.zeros(4), np.ones(4), (0, *range(2, len(shape)))
        for _ in range(2):
            x = rng.standard_normal(shape) * 3 + 1
            net(paddle.to_tensor(x.astype(np.float32)))
            mean = 0.9 * mean + 0.1 * x.mean(axes)
            variance = 0.9 * variance + 0.1 * x.var(axes, ddof=1)
        np.testing.assert_allclose(net[0]._mean.numpy(), mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(net[0]._variance.numpy(), variance, rtol=1e-5)
    net = paddle.nn.Sequential(paddle.nn.BatchNorm2D(2))
    batchnorm.convert_batchnorm(net)
    assert np.isfinite(net(paddle.ones((1, 2, 1, 1))).numpy()).all() and np.isfinite(net[0]._variance.numpy()).all()


def case_label_smoothing_is_spread_over_all_classes():
    rng = np.random.default_rng(0)
    logits, labels = rng.standard_normal((6, 5)).astype(np.float32), rng.integers(0, 5, 6)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    device_batch = {"label": paddle.to_tensor(labels)}
    for smoothing in (0.0, 0.1):
        target = (1 - smoothing) * np.eye(5)[labels] + smoothing / 5
        objective = objectives.build(CrossEntropy(smoothing))
        found = objective.total(paddle.to_tensor(logits), device_batch)
        assert float(found) == pytest.approx(-(target * logs).sum(), rel=1e-5) and objective.count(device_batch) == 6


def case_the_world_says_what_it_will_do():
    world = start(Launch(), "auto") if not paddle.is_compiled_with_cuda() else start(Launch(), "cpu")
    assert (world.rank, world.size, world.device) == (0, 1, f"cpu ({os.environ['OMP_NUM_THREADS']} threads)")
    assert world.resolve_mode(Mode("fp32")) == Mode("fp32", None, False, False)
    assert world.resolve_mode(Mode("fp32", "O2", False, True)) == Mode("fp32", None, False, True)
    for wish, word in (
        (Mode("amp"), "--framework torch"),
        (Mode("fp16"), "no 16-bit"),
        (Mode("bf16"), "silently"),
        (Mode("fp32", None, True), "channels_last"),
    ):
        with pytest.raises(UserError, match=word):
            world.resolve_mode(wish)
    for device in ("gpu", "cpu:0", "cuda:x", "npu:99", "cuda:99"):
        with pytest.raises(UserError, match="device"):
            start(Launch(), device)


def case_sixteen_bits_as_the_card_has_them():
    """Without a card: its compute capability is made up."""
    world, asked = World(0, 1, "gpu:0", None), paddle.device.cuda
    true = asked.get_device_capability, asked.get_device_name
    asked.get_device_name = lambda number: "a card"
    try:
        asked.get_device_capability = lambda number: (8, 0)
        assert world.device == "cuda:0 (a card)"
        assert world.resolve_mode(Mode("amp")) == Mode("fp16", "O1", False, False)
        assert world.resolve_mode(Mode("bf16", "O2", False, True)) == Mode("bf16", "O2", False, True)
        with pytest.raises(UserError, match="there is no O3"):
            world.resolve_mode(Mode("amp", "O3"))
        asked.get_device_capability = lambda number: (7, 0)
        with pytest.raises(UserError, match="no bf16; use fp16"):
            world.resolve_mode(Mode("bf16"))
        asked.get_device_capability = lambda number: (6, 0)
        with pytest.raises(UserError, match="no fp16; use fp32"):
            world.resolve_mode(Mode("amp"))
    finally:
        asked.get_device_capability, asked.get_device_name = true
