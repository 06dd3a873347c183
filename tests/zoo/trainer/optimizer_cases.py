"""Every optimizer against its formula in numpy, one body over all frameworks (test_trainer.py).

From the framework's own gradients: several updates with clipping, parameter groups, a frozen normalization, and one
that is skipped, so that it must not count for the bias correction.
"""

import numpy as np

from tests.zoo.trainer import margin_cases
from tests.zoo.trainer import tiny_reference as tiny
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import copied_state, frozen_norm, make, update
from zoo import optim
from zoo.compare.reference import optimizers
from zoo.trainer.plan import ParamGroup

CLIP_NORM, LRS = 0.2, (0.05, 0.02, 0.05, 0.03)
SKIPPED = 1  # number of the update that is not finite
SHAPES = {name: shape for name, shape in tiny.SHAPES.items() if ".running_" not in name and not name.startswith("bn.")}


class Reference:
    """State of an optimizer, by slot and parameter.

    Args:
        spec: hyper-parameters.
        rounded: rounds numbers that are sums or powers, as an exact run does; else the identity.
    """

    def __init__(self, spec, rounded=lambda number: number):
        self.spec, self.rounded, self.slots, self.applied = spec, rounded, {}, 0

    def update(self, parameter, weight, gradient, rate, decay):
        """Return the new weight. `applied` is the number of this update, from 1."""
        old = tuple(self.slots.get((slot, parameter), np.zeros_like(weight)) for slot in self.spec.slots)
        step, new = optimizers.direction(self.spec, weight, gradient, old, decay, self.applied, self.rounded)
        self.slots.update(((slot, parameter), value) for slot, value in zip(self.spec.slots, new))
        return weight - rate * step


def check(trainer, batches, group, skip, rtol, rounded=lambda number: number):
    """Compare every update; rtol: of a tensor's largest element."""
    reference = Reference(trainer.plan.optimizer, rounded)
    for step, (lr, batch) in enumerate(zip(LRS, batches)):
        before = copied_state(trainer)
        if step == SKIPPED and skip:
            trainer.load_state_dict({"scaler/scale": np.array(np.inf, np.float32)})
        assert update(trainer, batch, lr=lr, step=step)["consecutive_skips"] == (step == SKIPPED and skip)
        after, gradients = copied_state(trainer), trainer.gradients()
        trainer.load_state_dict({"scaler/scale": np.array(1, np.float32)})
        if step == SKIPPED and skip:
            assert all(
                np.array_equal(after[name], before[name])
                for name in after
                if "running" not in name[-14:] and "scaler" not in name
            )
            continue
        reference.applied += 1
        gradients = {name: np.array(gradient, np.float64) for name, gradient in gradients.items()}
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        clip = float(rounded(min(1.0, CLIP_NORM / norm)))
        assert clip < 1
        for name, gradient in gradients.items():
            factor, decay = group(name)
            weight = np.array(before[name], np.float64)
            new = reference.update(name, weight, gradient * clip, lr * factor, decay)
            assert_close(after[name], new, rtol, name)
            for slot in trainer.plan.optimizer.slots:
                assert_close(after[f"optimizer/{slot}/{name}"], reference.slots[slot, name], rtol, f"{slot}/{name}")


def assert_close(array, expected, rtol, name):
    assert array.shape == expected.shape
    assert np.abs(array - expected).max() <= rtol * np.abs(expected).max(), name


def settings(name):
    """Return an optimizer whose eps counts beside the small gradients here."""
    kind = optim.load_settings(name)
    return kind(eps=1e-3) if name in ("adamw", "lamb", "muon") else kind()


def case_updates_in_fp32(backend):
    for name in optim.OPTIMIZERS:
        trainer = make(backend, group=frozen_norm, optimizer=settings(name), clip_norm=CLIP_NORM)
        check(trainer, [random_batch(seed=seed) for seed in range(4)], frozen_norm, True, 1e-5)
    for mode in backend.FP32_MODES[1:2]:  # compiled
        trainer = make(backend, mode, group=frozen_norm, optimizer=settings("lamb"), clip_norm=CLIP_NORM)
        check(trainer, [random_batch(seed=seed) for seed in range(4)], frozen_norm, True, 1e-5)


def case_biases_that_share_a_group_with_matrices_have_no_trust_ratio(backend):
    def group(name):
        return ParamGroup(1.0, 0.01)

    trainer = make(backend, group=group, optimizer=settings("lars"), clip_norm=CLIP_NORM)
    check(trainer, [random_batch(seed=seed) for seed in range(2)], group, False, 1e-5)


def case_updates_in_an_exact_run(backend):
    """The same bits as numpy, but for norms and powers of the last bit that lie beside a limit of fp32."""
    mode = backend.FP64_MODES[0]._replace(rounds_gradients=True)
    for name in optim.OPTIMIZERS:
        trainer = make(backend, mode, group=frozen_norm, optimizer=settings(name), clip_norm=CLIP_NORM)
        batches = [random_batch(seed=seed) for seed in range(4)]
        check(trainer, batches, frozen_norm, False, 0.0, lambda number: float(np.float32(number)))


def case_updates_of_a_class_matrix(backend):
    """Whole; the sharded ones of several ranks are compared in test_sharded.py."""
    for name in ("adamw", "lars", "lamb"):
        trainer = margin_cases.make(backend, optimizer=settings(name), clip_norm=CLIP_NORM)
        batches = [margin_cases.random_batch(seed=seed) for seed in range(4)]
        check(trainer, batches, margin_cases.param_group, True, 1e-5)


def case_the_drawn_rows_of_a_class_matrix(backend):
    """Rows that are not drawn keep weight and slots, the others follow the formula by themselves."""
    for name in optim.OPTIMIZERS:
        task = {"sample_rate": 0.5}
        trainer = margin_cases.make(backend, None, 60, task, optimizer=settings(name))
        before = copied_state(trainer)
        margin_cases.update(trainer, margin_cases.random_batch(classes=60), lr=0.1, step=0)
        after, head = copied_state(trainer), margin_cases.HEAD
        gradient = np.array(trainer.gradients()[head], np.float64)
        rows = np.flatnonzero((after[head] != before[head]).any(1))
        assert len(rows) == len(gradient) == 30
        reference = Reference(trainer.plan.optimizer)
        reference.applied = 1
        factor, decay = margin_cases.param_group(head)
        new = reference.update(head, np.array(before[head][rows], np.float64), gradient, 0.1 * factor, decay)
        assert_close(after[head][rows], new, 1e-5, head)
        for slot in trainer.plan.optimizer.slots:
            values = after[f"optimizer/{slot}/{head}"]
            assert_close(values[rows], reference.slots[slot, head], 1e-5, slot)
            assert not np.delete(values, rows, 0).any()
