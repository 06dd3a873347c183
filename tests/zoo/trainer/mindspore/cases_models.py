"""Cases of the MindSpore nets; tests/zoo/trainer/mindspore/test_trainer.py runs them in a process of their own."""

import mindspore  # after the trainer, which chooses how much MindSpore says
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from tests.zoo.models.tsm.golden import (
    CASES,
    CLASSES,
    SEGMENTS,
    TOLERANCE,
    differences,
    drawn,
    video,
)
from zoo.models.resnet import spec as resnet_spec
from zoo.models.resnet.mindspore import Model as ResNet
from zoo.models.tsm import spec
from zoo.models.tsm.mindspore import Model, NonLocal, temporal_pool, temporal_shift
from zoo.trainer.mindspore import names

mindspore.set_context(mode=mindspore.PYNATIVE_MODE)  # a compiler takes longer than these nets


def golden(case):
    net, clips = Model(spec.Arch(num_classes=CLASSES, segments=SEGMENTS, dropout=0.0, **CASES[case])), Tensor(video())
    tensors = names.tensors(net)
    for name, tensor in tensors.items():
        tensor.set_data(Tensor(drawn(name, tuple(tensor.shape))))
    evaluated = net.set_train(False)(clips).asnumpy()
    trained = net.set_train(True)(clips).asnumpy()
    found = differences(case, evaluated, trained, {name: tensor.asnumpy() for name, tensor in tensors.items()})
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
    """Names and shapes; parameters come before statistics."""
    for its, kind, options in (
        (spec, Model, dict(depth=18, segments=2)),
        (spec, Model, dict(depth=50, non_local=True)),
        (resnet_spec, ResNet, dict(depth=34)),
        (resnet_spec, ResNet, dict(depth=50)),
    ):
        arch = its.Arch(num_classes=5, width=8, **options)
        found = {name: tuple(tensor.shape) for name, tensor in names.tensors(kind(arch)).items()}
        assert found == its.shapes(arch)
        kinds = [names.is_statistic(name) for name in found]
        assert kinds == sorted(kinds) and any(kinds)


def case_dilated_resnet():
    net = ResNet(resnet_spec.Arch(depth=50, width=8, num_classes=5, dilate=(False, True, True))).set_train(False)
    x = net.layer4(net.layer3(net.layer2(net.layer1(net.stem(ops.ones((1, 3, 64, 64)))))))
    assert x.shape == (1, 256, 8, 8)


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
    for segments, channels, div in (
        (1, 8, 2),
        (2, 8, 2),
        (3, 7, 2),
        (8, 9, 3),
        (8, 8, 8),
        (2, 3, 8),
        *((2, 19, div) for div in range(4, 10)),
    ):
        for direction, future in (("future", True), ("past", False)):
            source = rng.standard_normal((2 * segments, channels, 2, 3)).astype(np.float32)
            weight = rng.standard_normal(source.shape).astype(np.float32)
            x, fold = Tensor(source), channels // div

            def weighed(x):
                y = temporal_shift(x, segments, div, direction)
                return (y * Tensor(weight)).sum(), y

            (_, y), gradient = mindspore.value_and_grad(weighed, has_aux=True)(x)
            np.testing.assert_array_equal(y.asnumpy(), shifted(source, segments, fold, future))
            np.testing.assert_array_equal(gradient.asnumpy(), shifted(weight, segments, fold, not future))
            np.testing.assert_array_equal(x.asnumpy(), source)


def flat(x):
    return x.asnumpy().flatten().tolist()


def case_shift_by_hand():
    x = Tensor(np.arange(1, 7, dtype=np.float32).reshape(2, 3, 1, 1))  # frames 1 2 3 and 4 5 6
    assert flat(temporal_shift(x, 2, 3)) == [4, 0, 3, 0, 2, 6]
    assert flat(temporal_shift(x, 2, 3, "past")) == [0, 5, 3, 1, 0, 6]
    for arguments in ((3,), (2, 1), (2, 3, "back")):
        with pytest.raises(ValueError):
            temporal_shift(x, *arguments)


def case_temporal_pool():
    x = Tensor(np.array([-5, -1, -3, -4, 2, 1, 0, 7], np.float32).reshape(8, 1, 1, 1))  # clips of 4
    assert flat(temporal_pool(x, 4)) == [-1, -1, 2, 7]
    assert flat(temporal_pool(x, 2)) == [-1, -3, 2, 7]
    with pytest.raises(ValueError):
        temporal_pool(x, 1)


def case_nonlocal_begins_as_the_identity():
    layer, x = NonLocal(4).set_train(True), np.random.default_rng(0).standard_normal((4, 4, 4, 4)).astype(np.float32)
    named = names.tensors(layer)
    named["bn.weight"].set_data(Tensor(np.zeros(4, np.float32)))
    np.testing.assert_array_equal(layer(Tensor(x), 2).asnumpy(), x)


def case_running_variance_is_unbiased():
    rng = np.random.default_rng(0)
    for kind, shape in (
        (nn.BatchNorm2d, (3, 4, 2, 2)),
        (nn.BatchNorm2d, (2, 4, 1, 1)),
        (nn.BatchNorm3d, (2, 4, 3, 1, 2)),
    ):
        net = nn.SequentialCell(kind(4)).set_train(True)
        mean, variance, axes = np.zeros(4), np.ones(4), (0, *range(2, len(shape)))
        for _ in range(2):
            x = rng.standard_normal(shape) * 3 + 1
            net(Tensor(x.astype(np.float32)))
            mean = 0.9 * mean + 0.1 * x.mean(axes)
            variance = 0.9 * variance + 0.1 * x.var(axes, ddof=1)
        named = names.tensors(net)
        np.testing.assert_allclose(named["0.running_mean"].asnumpy(), mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(named["0.running_var"].asnumpy(), variance, rtol=1e-5)
