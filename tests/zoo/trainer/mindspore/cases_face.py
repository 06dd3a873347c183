"""Cases of the face objective and its class matrix in MindSpore; see tests/zoo/trainer/mindspore/test_trainer.py."""

from types import SimpleNamespace

import mindspore  # after the trainer, which chooses how much MindSpore says
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from data.batch import LABEL, Field
from tests.zoo.trainer.margin_reference import loss_and_gradients, target_logit
from zoo.models import initializers
from zoo.tasks import face
from zoo.trainer import sharding
from zoo.trainer.mindspore import Trainer, outputs, start
from zoo.trainer.mindspore.margin import Margin, margin
from zoo.trainer.mindspore.shard import Shard
from zoo.trainer.protocol import Launch, Mode, Plan

WORLD = start(Launch(), "cpu")  # the device must be set before the first computation
CLASSES, WIDTH, INPUTS, LR, DECAY = 60, 6, 5, 0.3, 1e-2
KINDS = {
    "arcface": {},
    "no threshold": {"threshold": False},
    "cosface": {"m2": 0.0, "m3": 0.4},
    "sphereface": {"m1": 1.35, "m2": 0.0, "threshold": False},
    "combined": {"m1": 1.1, "m2": 0.2, "m3": 0.15, "threshold": False},
    "filter": {"interclass": 0.2},
    "straight": {"gradient": "straight"},
}


class Linear(nn.Cell):
    def __init__(self, arch):
        super().__init__()
        self.fc = nn.Dense(INPUTS, WIDTH)

    def construct(self, x):
        return self.fc(x)


class Tower(nn.Cell):
    """A layer of each kind that must keep 32 bits, and one that need not."""

    def __init__(self, arch):
        super().__init__()
        self.first, self.fc, self.features = nn.Dense(INPUTS, WIDTH), nn.Dense(WIDTH, WIDTH), nn.BatchNorm2d(WIDTH)

    def construct(self, x):
        x = self.first(x)
        return self.features(self.fc(x)[:, :, None, None]).flatten(start_dim=1)


def settings(**changes):
    return face.objective(face.Settings(**{"scale": 16.0, **changes}))


def param_group(name):
    return (2.0, DECAY / 2) if name == face.WEIGHT else (1.0, DECAY)


def use(graph):
    mindspore.set_context(mode=mindspore.GRAPH_MODE if graph else mindspore.PYNATIVE_MODE)


def make(Model=Linear, classes=CLASSES, compiled=True, compute="fp32", level=None, kind=None, **plan):
    """A new trainer of a small net and a class matrix."""
    arch = SimpleNamespace(num_classes=classes, embedding=WIDTH)
    trainer = Trainer(
        Model,
        arch,
        settings(**(kind or {})),
        Plan(
            (Field("x", (INPUTS,), "float32"), LABEL),
            (),
            param_group,
            Mode(compute, level, False, compiled),
            seed=3,
            **plan,
        ),
        WORLD,
    )
    laws = {name: initializers.normal(0.5) for name in (face.WEIGHT, "fc.weight", "first.weight")}
    laws["features.weight"] = initializers.Initializer("ones")
    trainer.load_state_dict(
        {
            param.name: initializers.initialize(
                laws.get(param.name, initializers.Initializer("zeros")), 1, param.name, param.shape
            )
            for param in trainer.params
            if not param.statistic
        }
    )
    return trainer


def batch(rows=8, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((rows, INPUTS), np.float32),
        "label": rng.integers(0, CLASSES, rows),
        "valid": np.ones(rows, np.uint8),
    }


def go(trainer, number=0, lr=LR, parts=None):
    use(trainer.mode.compile)
    parts = [trainer.to_device(part) for part in parts or [batch(seed=number)]]
    return trainer.read(trainer.step(parts, lr, number))


def true(state, one, chosen, rows=slice(None), labels=None):
    """Mean loss and gradients of Linear and the class matrix, of which `rows` alone are used, in float64."""
    x, matrix = one["x"].astype(np.float64), state[face.WEIGHT].astype(np.float64)
    output = x @ state["fc.weight"].T.astype(np.float64) + state["fc.bias"]
    labels = one["label"] if labels is None else labels
    loss, to_output, to_rows = (found / len(x) for found in loss_and_gradients(output, matrix[rows], labels, chosen))
    return loss, {"fc.weight": to_output.T @ x, "fc.bias": to_output.sum(0)}, to_rows


def norm(*arrays):
    return np.sqrt(sum((array**2).sum() for array in arrays))


def close(found, expected, name=""):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-6 * np.abs(expected).max(), err_msg=name)


def run(x, weight, labels, chosen):
    """Loss and gradients by our objective."""
    objective = Margin(
        chosen,
        SimpleNamespace(num_classes=len(weight), embedding=weight.shape[1]),
        SimpleNamespace(seed=1, param_group=param_group, momentum=0.9),
        WORLD,
    )
    objective.split.values.set_data(Tensor(weight))
    (part,) = objective.begin([{"label": Tensor(labels.astype(np.int32))}], 0)
    return [found.asnumpy() for found in objective(Tensor(x), *(part[name] for name in objective.targets))]


def case_loss_and_gradients_are_the_definition():
    rng = np.random.default_rng(3)
    x, weight = rng.standard_normal((24, 8), np.float32), rng.standard_normal((11, 8), np.float32)
    labels = rng.integers(0, 11, 24)
    for graph, kinds in ((False, KINDS), (True, ("filter", "combined"))):  # compiling takes seconds
        use(graph)
        for kind in kinds:
            chosen = settings(**KINDS[kind])
            for mine, wanted in zip(run(x, weight, labels, chosen), loss_and_gradients(x, weight, labels, chosen)):
                np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=2e-6 * np.abs(wanted).max(), err_msg=kind)


def case_target_logits_are_the_formula():
    """The ends and the threshold included."""
    use(graph=False)
    turn = face.turning_point(0.5)
    cosines = np.concatenate([np.linspace(-1, 1, 4001), [turn, turn - 1e-4, turn + 1e-4, 1 - 1e-7, -1 + 1e-7]])
    cosines = cosines.astype(np.float32)
    clear = np.abs(cosines - turn) > 1e-6  # there the two sides of the threshold differ
    inner = clear & (np.abs(cosines) < 1 - 1e-5)
    for changes in KINDS.values():
        chosen = settings(**changes)
        value, slope = (found.asnumpy() for found in margin(Tensor(cosines), chosen))
        wanted, steepness = target_logit(cosines, chosen)
        np.testing.assert_allclose(value[clear], wanted[clear], atol=1e-6)
        np.testing.assert_allclose(slope[inner], steepness[inner], rtol=1e-4, atol=1e-4)
        assert np.isfinite(slope).all()


def case_rows_that_coincide_with_embeddings_have_finite_gradients():
    """cos = 1 and cos = -1, with the own class and with others."""
    weight = np.eye(4, 6, dtype=np.float32) * 3
    x, labels = np.concatenate([weight, -weight]), np.array([0, 1, 3, 2, 0, 1, 3, 2])
    use(graph=False)
    for changes in KINDS.values():
        chosen = settings(**changes)
        loss, to_x, to_weight = run(x, weight, labels, chosen)
        assert float(loss) == pytest.approx(loss_and_gradients(x, weight, labels, chosen)[0], rel=1e-6)
        assert np.isfinite(to_x).all() and np.isfinite(to_weight).all()


def case_a_step_moves_net_and_matrix_by_the_formula():
    """One norm over both, unless the matrix stays out of clipping; v = mu v + (c g + decay w), w -= lr * factor * v."""
    for clip_sharded in (True, False):
        trainer = make(clip_norm=0.5, clip_sharded=clip_sharded)
        velocity, one, before = {}, batch(), trainer.state_dict()
        before = {name: value.copy() for name, value in before.items()}
        for number in range(2):
            loss, gradients, to_rows = true(before, one, trainer.objective.settings)
            numbers, after = go(trainer, number, parts=[one]), trainer.state_dict()
            whole, both = norm(*gradients.values()), norm(to_rows, *gradients.values())
            assert numbers["loss"] == pytest.approx(loss, rel=1e-5)
            assert numbers["grad_norm"] == pytest.approx(both, rel=1e-4) and whole > 0.5
            factor = 0.5 / (both if clip_sharded else whole)
            steps = {name: gradient * factor for name, gradient in gradients.items()}
            for name, step in {**steps, face.WEIGHT: to_rows * (factor if clip_sharded else 1)}.items():
                velocity[name] = 0.9 * velocity.get(name, 0) + step + param_group(name)[1] * before[name]
                close(after[f"momentum/{name}"], velocity[name], name)
                close(after[name], before[name] - LR * param_group(name)[0] * velocity[name], name)
            before = {name: value.copy() for name, value in after.items()}


def case_an_update_touches_the_rows_it_draws_alone():
    for compiled in (True, False):
        trainer = make(kind={"sample_rate": 0.3}, compiled=compiled)
        before = {name: value.copy() for name, value in trainer.state_dict().items()}
        velocity = np.zeros((CLASSES, WIDTH))
        for number in (7, 8):
            one = batch(seed=number)
            rows = sharding.sample(np.unique(one["label"]), CLASSES, int(0.3 * CLASSES), 3, 0, number)
            labels = np.searchsorted(rows, one["label"])
            loss, _, to_rows = true(before, one, trainer.objective.settings, rows, labels)
            assert go(trainer, number)["loss"] == pytest.approx(loss, rel=1e-5)
            after = {name: value.copy() for name, value in trainer.state_dict().items()}
            others = np.setdiff1d(np.arange(CLASSES), rows)
            for name in (face.WEIGHT, f"momentum/{face.WEIGHT}"):
                np.testing.assert_array_equal(after[name][others], before[name][others])
            velocity[rows] = 0.9 * velocity[rows] + to_rows + param_group(face.WEIGHT)[1] * before[face.WEIGHT][rows]
            close(after[f"momentum/{face.WEIGHT}"], velocity)
            close(
                after[face.WEIGHT][rows], before[face.WEIGHT][rows] - LR * param_group(face.WEIGHT)[0] * velocity[rows]
            )
            before = after
        trainer.load_state_dict({"scaler/scale": np.array(np.inf, np.float32)})
        assert go(trainer, 9)["skipped"] == 1
        for name in (face.WEIGHT, f"momentum/{face.WEIGHT}", "fc.weight"):
            np.testing.assert_array_equal(trainer.state_dict()[name], before[name])


def case_a_skipped_update_leaves_a_whole_matrix_alone():
    trainer = make()
    before = {name: value.copy() for name, value in trainer.state_dict().items()}
    trainer.load_state_dict({"fc.bias": np.full(WIDTH, np.nan, np.float32)})
    assert go(trainer)["skipped"] == 1
    for name in (face.WEIGHT, f"momentum/{face.WEIGHT}", "fc.weight"):
        np.testing.assert_array_equal(trainer.state_dict()[name], before[name])


def case_two_parts_are_one_batch():
    """With rows drawn for both together."""
    both = batch(rows=12)
    parts = [{name: array[rows] for name, array in both.items()} for rows in (slice(0, 6), slice(6, 12))]
    for kind in ({}, {"sample_rate": 0.3}):
        for compiled in (True, False):
            whole, split = make(kind=kind, compiled=False), make(kind=kind, compiled=compiled, accumulate=2)
            assert go(whole, parts=[both]) == pytest.approx(go(split, parts=parts), rel=1e-5)
            wanted = whole.state_dict()
            for name, value in split.state_dict().items():
                np.testing.assert_allclose(value, wanted[name], rtol=1e-4, atol=1e-6, err_msg=name)


def case_an_accumulated_update_compiles_once():
    trainer = make(kind={"sample_rate": 0.3}, accumulate=2)
    for number in range(3):
        go(trainer, number, parts=[batch(seed=number), batch(seed=10 + number)])
    assert [len(cell.compile_cache) for cell in (trainer.gradient, trainer.add, trainer.update)] == [1, 1, 1]


def case_the_loss_scale_is_taken_out_of_both():
    plain, scaled = make(clip_norm=0.5), make(clip_norm=0.5)
    scaled.load_state_dict({"scaler/scale": np.array(1024, np.float32)})
    assert go(plain)["grad_norm"] == pytest.approx(go(scaled)["grad_norm"], rel=1e-6)
    wanted = plain.state_dict()
    for name in (face.WEIGHT, f"momentum/{face.WEIGHT}", "fc.weight"):
        np.testing.assert_allclose(scaled.state_dict()[name], wanted[name], rtol=1e-5, atol=1e-7, err_msg=name)


def case_modules_keep_32_bits_at_every_level():
    for level, compiled in (("O1", True), ("O1", False), ("O2", True), ("O3", True)):
        errors = []
        for keep in ((), ("fc", "features")):
            trainer = make(Tower, compute="fp16", level=level, compiled=compiled, fp32_modules=keep)
            net, x = trainer.gradient.forward, trainer.to_device(batch(rows=64))["x"]
            net.set_train(False)  # statistics are 0 and 1: the output is that of fc, all but epsilon
            first, fc = (trainer.state_dict()[f"{name}.weight"] for name in ("first", "fc"))
            half = mindspore.float16
            rough = ops.MatMul(transpose_b=True)(x.astype(half), Tensor(first).astype(half)).asnumpy()
            exact = rough.astype(np.float64) @ fc.astype(np.float64).T / np.sqrt(1 + 1e-5)
            errors.append(np.abs(net(x).asnumpy() - exact).max())
        assert errors[0] > 1e-4 and errors[1] < 5e-6, (level, compiled, errors)


def case_a_rank_holds_its_rows_and_draws_among_them():
    use(graph=False)
    plan, classes = (
        SimpleNamespace(seed=5, param_group=param_group, momentum=0.9),
        np.array([[0, 21, 39], [40, 59, 21]]),
    )
    for rate in (1.0, 0.5):
        shard = Shard(face.WEIGHT, CLASSES, WIDTH, rate, plan, SimpleNamespace(rank=1, size=3))
        assert (shard.first, shard.last) == (20, 40) == sharding.rows(CLASSES, 1, 3)
        assert shard.values.shape == shard.momentum.shape == (20, WIDTH)
        found = {name: value.asnumpy() for name, value in shard.choose(Tensor(classes.astype(np.int32)), 4).items()}
        rows = found.get("index", np.arange(20))
        assert len(rows) == 20 * rate and ("index" in found) == (rate < 1)
        if rate < 1:
            np.testing.assert_array_equal(rows, sharding.sample(np.array([1, 19]), 20, 10, 5, 1, 4))
        held = found["row"] >= 0
        np.testing.assert_array_equal(held, (classes >= 20) & (classes < 40))
        np.testing.assert_array_equal(rows[found["row"][held]] + 20, classes[held])


def case_dump_and_load_hold_the_matrix():
    trainer = make()
    assert {param.name: (param.shape, param.rows) for param in trainer.params} == {
        "fc.weight": ((WIDTH, INPUTS), None),
        "fc.bias": ((WIDTH,), None),
        face.WEIGHT: ((CLASSES, WIDTH), (0, CLASSES)),
    }
    go(trainer, 0)
    state = {name: value.copy() for name, value in trainer.state_dict().items()}
    assert state[f"momentum/{face.WEIGHT}"].any()
    go(trainer, 1)
    wanted = {name: value.copy() for name, value in trainer.state_dict().items()}
    go(trainer, 2)
    trainer.load_state_dict(state)
    go(trainer, 1)
    for name, value in trainer.state_dict().items():
        np.testing.assert_array_equal(value, wanted[name], err_msg=name)
    assert trainer.nonfinite_report() == "all finite"
    trainer.load_state_dict({face.WEIGHT: np.full((CLASSES, WIDTH), np.nan, np.float32)})
    assert trainer.nonfinite_report() == f"not finite: weight or statistic {face.WEIGHT}"


def case_embeddings_of_a_picture_and_of_its_mirror_image():
    use(graph=False)
    image = Tensor(np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3))

    def net(x):  # the first column's first channel
        return x[:, :, 0, 0].astype(mindspore.float32)

    for flip, columns in ((True, (0, 3)), (False, (0,))):
        found = outputs.build(face.Embeddings(flip), None)(net, [image], None).asnumpy()
        np.testing.assert_array_equal(found, np.stack([image.asnumpy()[:, :, column, 0] for column in columns], 1))
