"""Cases of Paddle's margin objective and of its class matrix; tests/zoo/trainer/paddle/test_margin.py runs them."""

from types import SimpleNamespace

import numpy as np
import paddle  # after the trainer, which chooses the number of threads
import pytest
from paddle import nn
from paddle.base import core

from data.batch import LABEL, Field
from tests.zoo.trainer.margin_reference import loss_and_gradients, target_logit
from zoo.tasks import face
from zoo.trainer import sharding
from zoo.trainer.paddle import Trainer, fp32, outputs, start
from zoo.trainer.paddle.margin import Margin, margin
from zoo.trainer.paddle.shard import Shard
from zoo.trainer.paddle.update import total_norm
from zoo.trainer.protocol import Launch, Mode, Param, Plan

KINDS = {
    "arcface": {},
    "no threshold": {"threshold": False},
    "cosface": {"m2": 0.0, "m3": 0.4},
    "sphereface": {"m1": 1.35, "m2": 0.0, "threshold": False},
    "combined": {"m1": 1.1, "m2": 0.2, "m3": 0.15, "threshold": False},
    "filter": {"interclass": 0.2},
    "straight": {"gradient": "straight"},
}
INPUTS, WIDTH, CLASSES, DECAY, MOMENTUM = 5, 6, 11, 1e-2, "momentum/head.weight"


class Linear(nn.Layer):
    def __init__(self, arch):
        super().__init__()
        self.fc = nn.Linear(INPUTS, arch.embedding)

    def forward(self, x):
        return self.fc(x)


def settings(**changes):
    return face.objective(face.Settings(**{"scale": 16.0, **changes}))


def run(x, weight, labels, chosen):
    """Loss and gradients by our objective, in one process."""
    arch = SimpleNamespace(num_classes=len(weight), embedding=weight.shape[1])
    objective = Margin(chosen, arch, Plan((), (), lambda name: (1.0, 0.0)), start(Launch(), "cpu"))
    objective.shard.values.set_value(weight)
    output = paddle.to_tensor(x, stop_gradient=False)
    (part,) = objective.begin([{"label": paddle.to_tensor(labels)}], 0)
    loss = objective.total(output, part)
    loss.backward()
    return float(loss), output.grad.numpy(), objective.shard.values.grad.numpy()


def make(task=None, classes=CLASSES, width=WIDTH, compiled=False, decay=DECAY, **plan):
    trainer = Trainer(
        Linear,
        SimpleNamespace(num_classes=classes, embedding=width),
        settings(**(task or {})),
        Plan(
            (Field("x", (INPUTS,), "float32"), LABEL),
            (),
            lambda name: (1.0, decay),
            Mode("fp32", None, False, compiled),
            seed=3,
            **plan,
        ),
        start(Launch(), "cpu"),
    )
    rng = np.random.default_rng(1)
    trainer.load_state_dict({param.name: rng.standard_normal(param.shape, np.float32) for param in trainer.params})
    return trainer


def batch(rows=12, seed=0, classes=CLASSES):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((rows, INPUTS), np.float32),
        "label": rng.integers(0, classes, rows),
        "valid": np.ones(rows, np.uint8),
    }


def go(trainer, *batches, lr=0.1, number=0):
    return trainer.read(trainer.step([trainer.to_device(one) for one in batches], lr, number))


def dumped(trainer):
    return {name: np.array(array) for name, array in trainer.state_dict().items()}


def case_loss_and_gradients():
    rng = np.random.default_rng(3)
    x, weight = rng.standard_normal((24, 8), np.float32), rng.standard_normal((11, 8), np.float32)
    labels = rng.integers(0, 11, 24)
    for kind, changes in KINDS.items():
        chosen = settings(**changes)
        for mine, true in zip(run(x, weight, labels, chosen), loss_and_gradients(x, weight, labels, chosen)):
            np.testing.assert_allclose(mine, true, rtol=2e-5, atol=2e-6 * np.abs(true).max(), err_msg=kind)


def case_more_rows_than_are_taken_at_once():
    rng = np.random.default_rng(4)
    x, weight = rng.standard_normal((3, 4), np.float32), rng.standard_normal((9000, 4), np.float32)
    for mine, true in zip(
        run(x, weight, np.array([8999, 4096, 0]), settings()),
        loss_and_gradients(x, weight, np.array([8999, 4096, 0]), settings()),
    ):
        np.testing.assert_allclose(mine, true, rtol=2e-5, atol=2e-6 * np.abs(true).max())


def case_target_logits():
    """The formula's values to 1e-6 of the scale, the ends and the threshold included."""
    turn = face.turning_point(0.5)
    cosines = np.concatenate([np.linspace(-1, 1, 4001), [turn, turn - 1e-4, turn + 1e-4, 1 - 1e-7, -1 + 1e-7]])
    cosines = cosines.astype(np.float32)
    for kind, changes in KINDS.items():
        chosen = settings(**changes)
        value, slope = (array.numpy() for array in margin(paddle.to_tensor(cosines), chosen))
        true, true_slope = target_logit(cosines, chosen)
        clear = np.abs(cosines - turn) > 1e-6  # there the two sides of the threshold differ
        np.testing.assert_allclose(value[clear], true[clear], atol=1e-6, err_msg=kind)
        inner = clear & (np.abs(cosines) < 1 - 1e-5)
        np.testing.assert_allclose(slope[inner], true_slope[inner], rtol=1e-4, atol=1e-4, err_msg=kind)
        assert np.isfinite(slope).all()


def case_rows_that_coincide_with_embeddings():
    """cos = 1 and cos = -1, with the own class and with others: finite values and gradients everywhere."""
    weight = np.eye(4, 6, dtype=np.float32) * 3
    x, labels = np.concatenate([weight, -weight]), np.array([0, 1, 3, 2, 0, 1, 3, 2])
    rows = np.random.default_rng(5).standard_normal((64, 8), np.float32)  # some cosines are rounded to above 1
    for changes in KINDS.values():
        chosen = settings(**changes)
        loss, *gradients = run(x, weight, labels, chosen)
        assert loss == pytest.approx(loss_and_gradients(x, weight, labels, chosen)[0], rel=1e-6)
        assert all(np.isfinite(found).all() for found in (*gradients, *run(rows, rows, np.arange(64), chosen)))


def case_an_embedding_or_a_row_of_zeros():
    weight, x = np.ones((4, 6), np.float32), np.ones((2, 6), np.float32)
    weight[1], x[0] = 0, 0
    loss, to_x, to_weight = run(x, weight, np.array([1, 2]), settings())
    assert np.isfinite(loss) and np.isfinite(to_x).all() and np.isfinite(to_weight).all()


def case_updates_are_the_formula():
    """Two updates of the net and of its classes in float64: decay, momentum, and both ways to clip."""
    for clip, together in ((None, True), (0.5, True), (0.5, False)):
        trainer = make(clip_norm=clip, clip_sharded=together)
        assert trainer.params[-1] == Param("head.weight", (CLASSES, WIDTH), rows=(0, CLASSES))
        velocity = {}
        for number, lr in enumerate((0.1, 0.05)):
            before, one = dumped(trainer), batch(seed=number)
            found = go(trainer, one, lr=lr, number=number)
            loss, by_output, by_head = loss_and_gradients(
                one["x"].astype(np.float64) @ before["fc.weight"].T + before["fc.bias"],
                before["head.weight"],
                one["label"],
                settings(),
            )
            gradients = {
                "fc.weight": by_output.T @ one["x"] / 12,
                "fc.bias": by_output.sum(0) / 12,
                "head.weight": by_head / 12,
            }
            squares = {name: (gradient**2).sum() for name, gradient in gradients.items()}
            norm = np.sqrt(sum(squares.values()))
            assert found["loss"] == pytest.approx(loss / 12, rel=1e-5)
            assert found["grad_norm"] == pytest.approx(norm, rel=1e-5)
            seen = norm if together else np.sqrt(squares["fc.weight"] + squares["fc.bias"])
            factor = 1 if clip is None else clip / seen
            assert factor == 1 or factor < 0.9  # else the case tests nothing
            after = dumped(trainer)
            for name, gradient in gradients.items():
                share = factor if together or name != "head.weight" else 1
                velocity[name] = 0.9 * velocity.get(name, 0) + gradient * share + DECAY * before[name]
                np.testing.assert_allclose(after[name], before[name] - lr * velocity[name], rtol=1e-5, atol=1e-6)
                np.testing.assert_allclose(after[f"momentum/{name}"], velocity[name], rtol=1e-4, atol=1e-6)


def case_parts_compiled_and_scaled_are_the_same_update():
    """Two parts for one batch, a compiled net, a loss scale: none changes what is computed."""
    whole, split, compiled, scaled = make(), make(accumulate=2), make(compiled=True), make()
    scaled.scaler.scale = 1024.0
    for number in range(3):
        one = batch(seed=number)
        halves = [{name: array[rows] for name, array in one.items()} for rows in (slice(0, 6), slice(6, 12))]
        expected = go(whole, one, number=number)
        for trainer, parts in ((split, halves), (compiled, [one]), (scaled, [one])):
            found = go(trainer, *parts, number=number)
            assert found["loss"] == pytest.approx(expected["loss"], rel=1e-6)
            assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)
    for trainer in (split, compiled, scaled):
        for name, value in dumped(whole).items():
            if not name.startswith("scaler/"):
                np.testing.assert_allclose(trainer.state_dict()[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def case_partial_fc_updates_the_drawn_rows_alone():
    """Against the objective of the drawn rows only, in float64; weight, momentum and decay of the others stay."""
    classes, trainer = 200, make({"sample_rate": 0.25}, classes=200, decay=0.1)
    for number in range(3):
        before, one = dumped(trainer), batch(seed=number, classes=classes)
        go(trainer, one, number=number)
        after = dumped(trainer)
        drawn = sharding.sample(np.unique(one["label"]), classes, 50, 3, 0, number)
        others = np.setdiff1d(np.arange(classes), drawn)
        for name in ("head.weight", MOMENTUM):
            np.testing.assert_array_equal(after[name][others], before[name][others])
        _, _, gradient = loss_and_gradients(
            one["x"] @ before["fc.weight"].T + before["fc.bias"],
            before["head.weight"][drawn],
            np.searchsorted(drawn, one["label"]),
            settings(),
        )
        velocity = 0.9 * before[MOMENTUM][drawn] + gradient / 12 + 0.1 * before["head.weight"][drawn]
        np.testing.assert_allclose(after[MOMENTUM][drawn], velocity, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(
            after["head.weight"][drawn], before["head.weight"][drawn] - 0.1 * velocity, rtol=1e-5, atol=1e-6
        )


def case_a_skipped_update_touches_nothing():
    for rate in (1.0, 0.5):
        trainer = make({"sample_rate": rate}, classes=60, clip_norm=1.0)
        go(trainer, batch(classes=60))
        before = dumped(trainer)
        trainer.scaler.scale = float("inf")
        assert go(trainer, batch(classes=60, seed=1), number=1)["consecutive_skips"] == 1
        assert "gradient of head.weight" in trainer.nonfinite_report()
        for name, value in dumped(trainer).items():
            if not name.startswith("scaler/"):
                np.testing.assert_array_equal(value, before[name], err_msg=name)
        trainer.scaler.scale = 1.0
        assert go(trainer, batch(classes=60, seed=1), number=1)["consecutive_skips"] == 0
        assert trainer.nonfinite_report() == "all finite"


def case_dump_and_load_continue_bit_for_bit():
    for rate in (1.0, 0.5):
        first, second = make({"sample_rate": rate}, classes=60), make({"sample_rate": rate}, classes=60)
        go(first, batch(classes=60))
        go(second, batch(classes=60, seed=7), number=5)  # loading in the middle forgets what was
        second.load_state_dict(first.state_dict())
        for trainer in (first, second):
            go(trainer, batch(classes=60, seed=1), number=1)
        one, other = dumped(first), dumped(second)
        assert one["head.weight"].shape == one[MOMENTUM].shape == (60, WIDTH)
        for name, value in one.items():
            np.testing.assert_array_equal(other[name], value, err_msg=name)


def case_where_classes_lie():
    """On the second of three ranks, which holds classes 4 to 7 of 11."""
    world = SimpleNamespace(rank=1, size=3)
    shard = Shard(11, WIDTH, 1.0, 0, world)
    assert (shard.first, shard.last, shard.values.shape) == (4, 8, [4, WIDTH])
    classes = paddle.to_tensor([[0, 4, 7], [8, 3, 5]])
    assert shard.choose(classes, 0).tolist() == [[-1, 0, 3], [-1, -1, 1]]
    shard = Shard(300, WIDTH, 0.3, 0, world)
    places = shard.choose(paddle.to_tensor([99, 100, 150, 199, 200]), 0)
    assert len(shard.used) == len(shard.index) == 30 and places[[0, 4]].tolist() == [-1, -1]
    assert shard.index[places[1:4]].tolist() == [0, 50, 99]


def case_memory_of_an_update():
    """Beside weights and momentum: the gradient and one matrix of logits. The dump copies neither."""
    classes, width, rows = 1 << 17, 64, 128
    trainer, unit = make(classes=classes, width=width), 4 * classes * width  # bytes; the logits take two units
    core.host_memory_stat_reset_peak_value("Allocated", 0)
    for number in range(2):
        go(trainer, batch(rows=rows, classes=classes), number=number)
    held = core.host_memory_stat_current_value("Allocated", 0)
    assert 3 * unit <= held < 3.2 * unit
    trainer.state_dict()
    assert 5 * unit <= core.host_memory_stat_peak_value("Allocated", 0) < 5.2 * unit
    weight = trainer.state_dict()["head.weight"]
    trainer.load_state_dict({"head.weight": np.zeros_like(weight)})
    assert not weight.any()


def case_sums_over_millions():
    """Which Paddle's own lose much of."""
    values = np.random.default_rng(0).random((2, 1 << 22), np.float32)
    tensor, wide = paddle.to_tensor(values), values.astype(np.float64)
    assert float(total_norm([tensor, tensor])) == pytest.approx(np.sqrt(2 * (wide**2).sum()), rel=1e-6)
    weight = np.zeros((1 << 21, 2), np.float32)
    weight[:, 0], weight[:, 1] = np.cos(values[0, ::2]), np.sin(values[0, ::2])
    x, labels, chosen = np.ones((1, 2), np.float32), np.array([5]), settings(scale=4.0)
    true = loss_and_gradients(x, weight, labels, chosen)[0]
    assert run(x, weight, labels, chosen)[0] == pytest.approx(true, rel=1e-6)


def case_named_layers_keep_fp32():
    """As the compiled net shows, where a CPU, too, has automatic casts."""

    class Mixed(nn.Layer):
        def __init__(self):
            super().__init__()
            self.first, self.fc, self.features = nn.Linear(4, 4), nn.Linear(4, 6), nn.BatchNorm2D(6)

        def forward(self, x):
            return self.features(self.fc(self.first(x)).unsqueeze([2, 3]))

    def products(level, kept):
        net = Mixed()
        fp32.keep(net, kept)

        def cast(x):
            with paddle.amp.auto_cast(level=level, dtype="bfloat16"):
                return net(x)

        program = paddle.jit.to_static(cast, full_graph=True).get_concrete_program(x)[0].main_program
        return [
            (op.name(), str(op.results()[0].dtype).rpartition(".")[2])
            for op in program.global_block().ops
            if op.name() in ("pd_op.matmul", "pd_op.batch_norm_")
        ]

    x = paddle.rand((3, 4))
    for level in ("O1", "O2"):
        assert [kind for _, kind in products(level, ())][:2] == ["bfloat16", "bfloat16"]
        assert products(level, ("fc", "features")) == [
            ("pd_op.matmul", "bfloat16"),
            ("pd_op.matmul", "float32"),
            ("pd_op.batch_norm_", "float32"),
        ]
    plain, kept = Mixed(), Mixed()
    kept.set_state_dict(plain.state_dict())
    fp32.keep(kept, ("fc", "features"))
    np.testing.assert_array_equal(kept(x).numpy(), plain(x).numpy())
    assert isinstance(kept.fc, nn.Linear) and kept.fc(x.astype("bfloat16")).dtype == paddle.float32
    with pytest.raises(KeyError):
        fp32.keep(plain, ("fd",))


def case_embeddings_of_pictures_and_their_mirror_images():
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 3), dtype=np.uint8)

    def net(x):
        return x.astype("float32").flatten(1)

    for flip in (False, True):
        found = outputs.build(face.Embeddings(flip), None)(net, [paddle.to_tensor(images)], None).numpy()
        assert found.shape == (2, 1 + flip, 36) and found.dtype == np.float32
        np.testing.assert_array_equal(found[:, 0], images.reshape(2, -1))
        if flip:
            np.testing.assert_array_equal(found[:, 1], images[:, :, ::-1].reshape(2, -1))
