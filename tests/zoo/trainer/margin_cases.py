"""The cases of the margin objective and its sharded class matrix, one body over all frameworks (test_trainer.py).

Truth is the definition in numpy and float64 (zoo/compare/reference).
"""

import re
from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest

from zoo.compare.reference.margin import loss_and_gradients, moved, target_logit
from zoo.data.batch import LABEL, Field
from zoo.losses import load_loss
from zoo.tasks import face
from zoo.trainer import numpy_ops, sharding
from zoo.trainer.plan import ParamGroup, Plan
from zoo.trainer.protocol import Param
from zoo.trainer.update import round_gradients

VARIANTS = {
    "arcface": {},
    "no threshold": {"threshold": False},
    "cosface": {"m2": 0.0, "m3": 0.4},
    "sphereface": {"m1": 1.35, "m2": 0.0, "threshold": False},
    "combined": {"m1": 1.1, "m2": 0.2, "m3": 0.15, "threshold": False},
    "filter": {"interclass": 0.2},
    "straight": {"gradient": "straight"},
    "arcface by name": {"loss": "arcface", "m2": 0.3},
    "cosface by name": {"loss": "cosface"},
    "adaface": {"loss": "adaface"},
    "adaface, large": {"loss": "adaface", "m": 0.7, "h": 2.0, "interclass": 0.3},
}
DIFFERENT = ("combined", "straight", "adaface, large")  # those that take other branches of the code
INPUTS, WIDTH, CLASSES, MANY_CLASSES, DECAY = 5, 6, 11, 200, 1e-2
AVERAGES = "objective/batch_mean", "objective/batch_std"
HEAD, MOMENTUM = face.HEAD_WEIGHT, f"optimizer/momentum/{face.HEAD_WEIGHT}"


def objective(loss="combined", **changes):
    return load_loss("face", loss)(**{"scale": 16.0, **changes})


def param_group(name):
    return ParamGroup(2.0, DECAY / 2) if name == HEAD else ParamGroup(1.0, DECAY)


def make(backend, mode=None, classes=CLASSES, task=None, model=None, width=WIDTH, **plan):
    """Return a trainer of one linear layer and a class matrix, of which it holds its rows, with random weights."""
    fields = (Field("x", (INPUTS,), "float32"), LABEL)
    plan = Plan(fields, (), param_group, mode or backend.FP32_MODES[0], seed=3, **plan)
    arch = SimpleNamespace(inputs=INPUTS, embedding=width, num_classes=classes)
    trainer = backend.Trainer(model or backend.Linear, arch, objective(**(task or {})), plan, backend.WORLD)
    rng = np.random.default_rng(1)
    weights = {param.name: (rng.standard_normal(param.shape, np.float32), param.rows) for param in trainer.params}
    trainer.load_state_dict({name: array[slice(*rows or (None,))] for name, (array, rows) in weights.items()})
    return trainer


def random_batch(samples=12, seed=0, classes=CLASSES):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((samples, INPUTS), np.float32),
        "label": rng.integers(0, classes, samples),
        "valid": np.ones(samples, np.uint8),
    }


def update(trainer, *micro_batches, lr=0.1, step=0):
    """Do one update; return its numbers."""
    return trainer.read(trainer.step([trainer.to_device(batch) for batch in micro_batches], lr, step))


def copied_state(trainer):
    return {name: np.array(array) for name, array in trainer.state_dict().items()}


def split(batch, *bounds):
    return [{name: array[first:last] for name, array in batch.items()} for first, last in pairwise(bounds)]


def expected_update(state, batch, settings, rows=None, averages=None):
    """Return the mean loss and all gradients in float64; those of the class matrix for the chosen rows.

    averages: of AdaFace, before the batch.
    """
    x, matrix, labels = batch["x"].astype(np.float64), state[HEAD].astype(np.float64), batch["label"]
    if rows is not None:
        matrix, labels = matrix[rows], np.searchsorted(rows, labels)
    embeddings = x @ state["fc.weight"].T.astype(np.float64) + state["fc.bias"]
    loss, to_embeddings, to_matrix = (
        total / len(x) for total in loss_and_gradients(embeddings, matrix, labels, settings, averages)
    )
    return loss, {"fc.weight": to_embeddings.T @ x, "fc.bias": to_embeddings.sum(0), HEAD: to_matrix}


def norm(*arrays):
    return np.sqrt(sum((array**2).sum() for array in arrays))


def assert_unchanged(state, expected):
    for name, value in expected.items():
        if not name.startswith("scaler/"):
            np.testing.assert_array_equal(state[name], value, err_msg=name)


def assert_loss_and_gradients(backend, mode, x, weight, labels, settings, message=""):
    results = backend.margin_loss(x, weight, labels, settings, mode)
    for result, expected in zip(results, loss_and_gradients(x, weight, labels, settings)):
        atol = 2e-6 * np.abs(expected).max()
        np.testing.assert_allclose(result, expected, rtol=2e-5, atol=atol, err_msg=message)


def case_loss_and_gradients_follow_the_definition(backend):
    rng = np.random.default_rng(3)
    x, weight = rng.standard_normal((24, 8), np.float32), rng.standard_normal((11, 8), np.float32)
    labels = rng.integers(0, 11, 24)
    for mode in backend.FP32_MODES:
        for variant in DIFFERENT if mode.compile else VARIANTS:  # compiling takes seconds
            settings = objective(**VARIANTS[variant])
            assert_loss_and_gradients(backend, mode, x, weight, labels, settings, variant)


def case_adaface_is_that_of_its_authors(backend):
    """Recorded once: the sum of the losses, and the norms of both gradients, in float64.

    By forward of AdaFace in head.py of mk-minchul/AdaFace at 9cb981642eb7b579487bfadb0ee9ad8fc3772b74 with t_alpha of 1
    and of 0.5, torch.nn.functional.cross_entropy and autograd.
    """
    rng = np.random.default_rng(12)
    x, weight = rng.standard_normal((6, 4)) * rng.uniform(1, 9, (6, 1)), rng.standard_normal((7, 4))
    labels = rng.integers(0, 7, 6)
    for t_alpha, recorded in (
        (1.0, (372.14912486601713, 42.86103826198575, 104.01622608470505)),
        (0.5, (371.4703087272298, 42.95177812445901, 102.21683712122595)),
    ):
        settings, mode = objective("adaface", scale=64.0, t_alpha=t_alpha), backend.FP32_MODES[0]
        results = backend.margin_loss(x.astype(np.float32), weight.astype(np.float32), labels, settings, mode)
        for result, expected in zip(results, recorded):
            assert np.linalg.norm(result) == pytest.approx(expected, rel=2e-6)


def averages_of(state):
    return np.array([state[key] for key in AVERAGES])


def lengths_of(state, batch):
    embeddings = batch["x"].astype(np.float64) @ state["fc.weight"].T.astype(np.float64) + state["fc.bias"]
    return np.linalg.norm(embeddings, axis=1)


def case_the_averages_of_adaface_over_several_updates(backend):
    """Each micro-batch moves them before it uses them; they are saved, and a skipped update takes its move back."""
    task = {"loss": "adaface", "h": 8.0, "t_alpha": 0.25}
    settings = objective(**task)
    for mode, bounds in zip(backend.FP32_MODES, ((0, 6, 12), (0, 12))):
        trainer = make(backend, mode, task=task, accumulate=len(bounds) - 1)
        assert trainer.statistics == tuple(Param(name, (), True) for name in ("batch_mean", "batch_std"))
        averages, before = (20.0, 100.0), copied_state(trainer)
        assert tuple(averages_of(before)) == averages
        for step in range(3):
            micro_batches = split(random_batch(seed=step), *bounds)
            losses, gradients = [], []
            for batch in micro_batches:
                loss, of_batch = expected_update(before, batch, settings, averages=averages)
                averages = moved(averages, lengths_of(before, batch), settings)
                losses.append(loss)
                gradients.append(of_batch)
            assert update(trainer, *micro_batches, step=step)["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
            np.testing.assert_allclose(averages_of(trainer.state_dict()), averages, rtol=1e-6)
            for name, gradient in trainer.gradients().items():
                expected = np.mean([of_batch[name] for of_batch in gradients], axis=0)
                atol = 2e-6 * np.abs(expected).max()
                np.testing.assert_allclose(gradient, expected, rtol=2e-5, atol=atol, err_msg=name)
            before = copied_state(trainer)
        del before["scaler/skipped"]  # so that the next update has skipped ones behind it
        infinite, nan = {"scaler/scale": np.array(np.inf, np.float32)}, {"fc.bias": np.full(WIDTH, np.nan, np.float32)}
        for broken in (infinite, nan):
            trainer.load_state_dict(broken)
            assert update(trainer, *micro_batches, step=3)["consecutive_skips"] > 0
            np.testing.assert_array_equal(averages_of(trainer.state_dict()), averages_of(before))
            trainer.load_state_dict(before)
        update(trainer, *micro_batches, step=3)
        after = copied_state(trainer)
        assert (averages_of(after) != averages_of(before)).all()
        trainer.load_state_dict(before)
        update(trainer, *micro_batches, step=3)
        assert_unchanged(trainer.state_dict(), after)


def case_loss_of_more_classes_than_a_block(backend):
    rng = np.random.default_rng(4)
    x, weight = rng.standard_normal((3, 4), np.float32), rng.standard_normal((9000, 4), np.float32)
    assert_loss_and_gradients(backend, backend.FP32_MODES[0], x, weight, np.array([8999, 4096, 0]), objective())


def case_target_logits_follow_the_formula(backend):
    """To 1e-6 of the scale, the ends and the threshold included."""
    turn = objective().threshold_cosine
    cosines = np.concatenate([np.linspace(-1, 1, 4001), [turn, turn - 1e-4, turn + 1e-4, 1 - 1e-7, -1 + 1e-7]])
    cosines = cosines.astype(np.float32)
    clear = np.abs(cosines - turn) > 1e-6  # nearer, rounding decides the side of the threshold
    inner = clear & (np.abs(cosines) < 1 - 1e-5) & (np.abs(np.abs(cosines) - 0.999) > 1e-6)  # AdaFace's last cosine
    norms = np.random.default_rng(8).uniform(0, 130, len(cosines)).astype(np.float32)
    for variant, changes in VARIANTS.items():
        settings = objective(**{**changes, "gradient": "true"})
        value, slope = backend.target_logits(cosines, settings, norms)
        expected, expected_slope = target_logit(cosines, settings, norms)
        np.testing.assert_allclose(value[clear], expected[clear], atol=1e-6, err_msg=variant)
        np.testing.assert_allclose(slope[inner], expected_slope[inner], rtol=1e-4, atol=1e-4, err_msg=variant)
        assert np.isfinite(slope).all()


def case_the_threshold_keeps_the_target_logit_monotonic(backend):
    cosines = np.linspace(1, -1, 2001, dtype=np.float32)
    kept, risen = (
        backend.target_logits(cosines, objective(threshold=threshold), cosines)[0] for threshold in (True, False)
    )
    assert (np.diff(kept) < 0).all() and not (np.diff(risen) < 0).all()


def case_an_untrained_loss(backend):
    """ln C + scale * sin m2, where all cosines are 0."""
    weight, x = np.zeros((1000, 4), np.float32), np.zeros((2, 4), np.float32)
    weight[:, 0], x[:, 1] = 1, 1
    loss, *_ = backend.margin_loss(x, weight, np.array([7, 900]), objective(scale=64.0), backend.FP32_MODES[0])
    # Of the target, exp(-64 sin 0.5) is left in the sum, so ln 999 and not ln 1000.
    assert loss / 2 == pytest.approx(np.log(999) + 64 * np.sin(0.5), rel=1e-6)


def case_embeddings_that_coincide_with_rows_have_finite_gradients(backend):
    """Cosines of 1 and -1, of the target class and of others; some are rounded to above 1."""
    weight = np.eye(4, 6, dtype=np.float32) * 3
    x, labels = np.concatenate([weight, -weight]), np.array([0, 1, 3, 2, 0, 1, 3, 2])
    rows, mode = np.random.default_rng(5).standard_normal((64, 8), np.float32), backend.FP32_MODES[0]
    for variant in ("arcface", "no threshold", *DIFFERENT):
        settings = objective(**VARIANTS[variant])
        loss, *gradients = backend.margin_loss(x, weight, labels, settings, mode)
        assert loss == pytest.approx(loss_and_gradients(x, weight, labels, settings)[0], rel=1e-6)
        assert all(np.isfinite(gradient).all() for gradient in gradients)
        assert all(
            np.isfinite(result).all() for result in backend.margin_loss(rows, rows, np.arange(64), settings, mode)
        )


def case_an_embedding_or_a_row_of_zeros_has_finite_gradients(backend):
    weight, x = np.ones((4, 6), np.float32), np.ones((2, 6), np.float32)
    weight[1], x[0] = 0, 0
    results = backend.margin_loss(x, weight, np.array([1, 2]), objective(), backend.FP32_MODES[0])
    assert all(np.isfinite(result).all() for result in results)


def case_updates_follow_the_formulas(backend):
    """Of model and class matrix: one norm over both, unless the matrix stays out of clipping."""
    eager, *others = backend.FP32_MODES
    for mode, clip_norm, clip_sharded in (
        *((eager, None, True), (eager, 0.5, True), (eager, 0.5, False)),
        *((mode, 0.5, False) for mode in others),
    ):
        trainer = make(backend, mode, clip_norm=clip_norm, clip_sharded=clip_sharded)
        momentum, before = {}, copied_state(trainer)
        for step, lr in enumerate((0.1, 0.05)):
            batch = random_batch(seed=step)
            loss, gradients = expected_update(before, batch, objective())
            numbers, after = update(trainer, batch, lr=lr, step=step), copied_state(trainer)
            assert numbers["loss"] == pytest.approx(loss, rel=1e-5)
            assert numbers["grad_norm"] == pytest.approx(norm(*gradients.values()), rel=1e-5)
            clipped_norm = norm(*(gradient for name, gradient in gradients.items() if clip_sharded or name != HEAD))
            clip = 1 if clip_norm is None else clip_norm / clipped_norm
            assert clip == 1 or clip < 0.9  # otherwise clipping is not tested
            for name, gradient in gradients.items():
                factor, decay = param_group(name)
                gradient = gradient * (clip if clip_sharded or name != HEAD else 1) + decay * before[name]
                momentum[name] = 0.9 * momentum.get(name, 0) + gradient
                weight = before[name] - lr * factor * momentum[name]
                for key, value, rtol in ((name, weight, 1e-5), (f"optimizer/momentum/{name}", momentum[name], 1e-4)):
                    atol = min(1e-6, 2e-6 * np.abs(value).max())
                    np.testing.assert_allclose(after[key], value, rtol=rtol, atol=atol, err_msg=key)
            before = after


def case_gradients_are_those_of_the_mean_loss(backend):
    """Not clipped, whether or not the class matrix is; of the active rows alone under Partial FC."""
    for mode, (rate, clip_sharded) in product(backend.FP32_MODES, ((1.0, True), (0.25, False))):
        task = {"sample_rate": rate}
        trainer = make(backend, mode, MANY_CLASSES, task, clip_norm=0.5, clip_sharded=clip_sharded)
        before, batch = copied_state(trainer), random_batch(classes=MANY_CLASSES)
        rows = None
        if rate < 1:
            rows = sharding.choose_active_rows(batch["label"], MANY_CLASSES, rate, 3, 0, 4)
        _, expected = expected_update(before, batch, objective(), rows)
        trainer.load_state_dict({"scaler/scale": np.array(1024, np.float32)})
        assert update(trainer, batch, step=4)["grad_norm"] > 0.6
        gradients = trainer.gradients()
        assert gradients.keys() == expected.keys()
        for name, value in expected.items():
            atol = 2e-6 * np.abs(value).max()
            np.testing.assert_allclose(gradients[name], value, rtol=2e-5, atol=atol, err_msg=name)


def case_gradients_of_an_exact_run_are_rounded(backend):
    """Those of the class matrix with the floor of the model's; the first momentum shows them."""
    mode = backend.FP64_MODES[0]
    plain, exact = (make(backend, each) for each in (mode, mode._replace(rounds_gradients=True)))
    before = copied_state(exact)
    for trainer in (plain, exact):
        update(trainer, random_batch())
    gradients, after = plain.gradients(), exact.state_dict()
    of_matrix = gradients.pop(HEAD)
    rounded = dict(zip([*gradients, HEAD], round_gradients(numpy_ops, list(gradients.values()), [of_matrix])))
    for name, gradient in rounded.items():
        momentum = gradient + param_group(name)[1] * before[name]
        np.testing.assert_allclose(after[f"optimizer/momentum/{name}"], momentum, rtol=1e-12, atol=1e-14, err_msg=name)
    assert np.abs(rounded[HEAD] - of_matrix).max() > 1e-9


def case_micro_batches_compiling_and_loss_scale_change_nothing(backend):
    """With all rows, and with those drawn once for all micro-batches of an update."""
    for task in ({}, {"sample_rate": 0.3}):
        whole = make(backend, classes=60, task=task)
        others = [(make(backend, mode, 60, task, accumulate=2), (0, 6, 12)) for mode in backend.FP32_MODES]
        scaled = make(backend, classes=60, task=task)
        scaled.load_state_dict({"scaler/scale": np.array(1024, np.float32)})
        others.append((scaled, (0, 12)))
        for step in range(3):
            batch = random_batch(seed=step, classes=60)
            expected, state = update(whole, batch, step=step), copied_state(whole)
            for trainer, bounds in others:
                numbers = update(trainer, *split(batch, *bounds), step=step)
                assert numbers["loss"] == pytest.approx(expected["loss"], rel=1e-6)
                assert numbers["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)
                assert numbers["skipped"] == 0
        for trainer, _ in others:
            for name, value in trainer.state_dict().items():
                if not name.startswith("scaler/"):
                    np.testing.assert_allclose(value, state[name], rtol=1e-5, atol=1e-6, err_msg=name)


def case_the_loss_scale_is_divided_out_of_both_gradients(backend):
    """Clipped, with a limit that only the scaled gradients exceed, and with the class matrix left out of it."""
    for clip_norm, clip_sharded in ((0.5, True), (64.0, True), (64.0, False)):
        plain, scaled = (make(backend, clip_norm=clip_norm, clip_sharded=clip_sharded) for _ in range(2))
        scaled.load_state_dict({"scaler/scale": np.array(1024, np.float32)})
        expected, numbers = update(plain, random_batch()), update(scaled, random_batch())
        assert numbers["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-6) and numbers["grad_norm"] < 32
        state = plain.state_dict()
        for name in (HEAD, MOMENTUM, "fc.weight"):
            np.testing.assert_allclose(scaled.state_dict()[name], state[name], rtol=1e-5, atol=1e-7, err_msg=name)


def case_partial_fc_updates_the_drawn_rows_alone(backend):
    """Weight, momentum and decay of all other rows stay; a skipped update changes none."""
    count = int(0.25 * MANY_CLASSES)
    for mode in backend.FP32_MODES:
        trainer = make(backend, mode, MANY_CLASSES, {"sample_rate": 0.25})
        before = copied_state(trainer)
        for step in (7, 8, 9):
            batch = random_batch(seed=step, classes=MANY_CLASSES)
            rows = sharding.sample_active_rows(np.unique(batch["label"]), MANY_CLASSES, count, 3, 0, step)
            loss, gradients = expected_update(before, batch, objective(), rows)
            assert update(trainer, batch, step=step)["loss"] == pytest.approx(loss, rel=1e-5)
            after, others = copied_state(trainer), np.setdiff1d(np.arange(MANY_CLASSES), rows)
            for name in (HEAD, MOMENTUM):
                np.testing.assert_array_equal(after[name][others], before[name][others])
            factor, decay = param_group(HEAD)
            momentum = 0.9 * before[MOMENTUM][rows] + gradients[HEAD] + decay * before[HEAD][rows]
            weight = before[HEAD][rows] - 0.1 * factor * momentum
            np.testing.assert_allclose(after[MOMENTUM][rows], momentum, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(after[HEAD][rows], weight, rtol=1e-5, atol=1e-6)
            before = after
        trainer.load_state_dict({"scaler/scale": np.array(np.inf, np.float32)})
        assert update(trainer, random_batch(classes=MANY_CLASSES), step=10)["skipped"] == 1
        assert_unchanged(trainer.state_dict(), before)


def case_a_skipped_update_changes_nothing(backend):
    """Neither a loss scale that overflows nor a model whose output is NaN reaches weights or momentum."""
    for mode, rate in zip(backend.FP32_MODES, (0.5, 1.0)):
        trainer = make(backend, mode, 60, {"sample_rate": rate}, clip_norm=1.0)
        update(trainer, random_batch(classes=60))
        before, batch = copied_state(trainer), random_batch(seed=1, classes=60)
        for broken, repaired in (
            ({"scaler/scale": np.array(np.inf, np.float32)}, {"scaler/scale": np.array(1, np.float32)}),
            ({"fc.bias": np.full(WIDTH, np.nan, np.float32)}, {"fc.bias": before["fc.bias"]}),
        ):
            trainer.load_state_dict(broken)
            assert update(trainer, batch, step=1)["consecutive_skips"] == 1
            assert re.search(f"gradients of .*{HEAD}", trainer.nonfinite_report())
            trainer.load_state_dict(repaired)
            assert_unchanged(trainer.state_dict(), before)
            assert update(trainer, batch, lr=0.0, step=1)["consecutive_skips"] == 0
            assert trainer.nonfinite_report() == "all finite"
            trainer.load_state_dict(before)


def case_an_update_with_an_overflow_in_the_class_matrix_alone_is_skipped(backend):
    """Samples that are all alike add up to an infinite row; the model's gradient is small, as embeddings are long."""
    batch = {"x": np.zeros((40, INPUTS), np.float32), "label": np.zeros(40, np.int64), "valid": np.ones(40, np.uint8)}
    bias = np.array([1e18] + [0] * (WIDTH - 1), np.float32)
    for mode in backend.FP32_MODES[:1]:
        trainer = make(backend, mode)
        rows = 1e-5 * trainer.state_dict()[HEAD]
        trainer.load_state_dict({HEAD: rows, "fc.bias": bias, "scaler/scale": np.array(5e32, np.float32)})
        before = copied_state(trainer)
        assert update(trainer, batch)["consecutive_skips"] == 1
        assert trainer.nonfinite_report() == f"not finite: gradients of {HEAD}"
        assert_unchanged(trainer.state_dict(), before)


def case_a_loaded_state_continues_bit_for_bit(backend):
    for mode, rate in zip(backend.FP32_MODES, (1.0, 0.5)):
        first, second = (make(backend, mode, 60, {"sample_rate": rate}) for _ in range(2))
        update(first, random_batch(classes=60))
        assert first.state_dict()[MOMENTUM].any()
        update(second, random_batch(seed=7, classes=60), step=5)  # loading in the middle forgets what was there
        second.load_state_dict(first.state_dict())
        for trainer in (first, second):
            update(trainer, random_batch(seed=1, classes=60), step=1)
        state, expected = copied_state(second), copied_state(first)
        assert state[HEAD].shape == state[MOMENTUM].shape == (60, WIDTH) and state.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(state[name], value, err_msg=name)


def case_the_class_matrix_is_a_sharded_param(backend):
    trainer = make(backend)
    assert trainer.params == (
        Param("fc.weight", (WIDTH, INPUTS)),
        Param("fc.bias", (WIDTH,)),
        Param(HEAD, (CLASSES, WIDTH), rows=(0, CLASSES)),
    )
    trainer.load_state_dict({HEAD: np.full((CLASSES, WIDTH), np.nan, np.float32)})
    assert trainer.nonfinite_report() == f"not finite: weights {HEAD}"


def case_a_rank_holds_its_rows_and_draws_among_them(backend):
    """The second of three ranks."""
    shape, local, rows = backend.choose_rows(np.array([[0, 4, 7], [8, 3, 5]]), 11, WIDTH, 1.0, 0, 1, 3, 0)
    assert shape == (4, WIDTH) and rows is None and local.tolist() == [[-1, 0, 3], [-1, -1, 1]]
    classes = np.array([[0, 21, 39], [40, 59, 21]])
    shape, local, rows = backend.choose_rows(classes, 60, WIDTH, 0.5, 5, 1, 3, 4)
    assert shape == (20, WIDTH)
    np.testing.assert_array_equal(rows, sharding.sample_active_rows(np.array([1, 19]), 20, 10, 5, 1, 4))
    held = local >= 0
    np.testing.assert_array_equal(held, (classes >= 20) & (classes < 40))
    np.testing.assert_array_equal(rows[local[held]] + 20, classes[held])
    shape, local, rows = backend.choose_rows(np.array([99, 100, 150, 199, 200]), 300, WIDTH, 0.3, 0, 1, 3, 0)
    assert len(rows) == 30 and local[[0, 4]].tolist() == [-1, -1] and rows[local[1:4]].tolist() == [0, 50, 99]
