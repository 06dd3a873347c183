"""What clipping leaves alone and what it reaches, one body over all frameworks (test_trainer.py)."""

import numpy as np

from tests.zoo.trainer import margin_cases
from tests.zoo.trainer.margin_cases import HEAD, MANY_CLASSES, MOMENTUM
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import assert_equal, copied_state, make, update
from zoo.trainer import sharding


def case_a_gradient_within_the_limit_is_not_changed(backend):
    plain, limited = make(backend), make(backend, clip_norm=64.0)
    for step in range(2):
        expected, numbers = (update(trainer, random_batch(seed=step)) for trainer in (plain, limited))
        assert numbers == expected and numbers["grad_norm"] < 32
    assert_equal(limited.state_dict(), plain.state_dict())


def case_the_loss_scale_is_divided_out_of_an_update_that_is_not_clipped(backend):
    """Without a limit, and with one that only the scaled gradient exceeds."""
    for clip_norm in (None, 64.0):
        plain, scaled = make(backend, clip_norm=clip_norm), make(backend, clip_norm=clip_norm)
        scaled.load_state_dict({"scaler/scale": np.array(1024, np.float32)})  # a power of two: exact
        for trainer in (plain, scaled):
            update(trainer, random_batch())
        state = plain.state_dict()
        for name, value in scaled.state_dict().items():
            if not name.startswith("scaler/"):
                np.testing.assert_allclose(value, state[name], rtol=1e-6, atol=1e-8, err_msg=name)


def case_the_drawn_rows_are_clipped_with_the_model(backend):
    """By one norm over both."""
    count, clip_norm, batch = int(0.25 * MANY_CLASSES), 0.5, margin_cases.random_batch(classes=MANY_CLASSES)
    task = {"sample_rate": 0.25}
    for is_clipped in (True, False):
        trainer = margin_cases.make(
            backend, classes=MANY_CLASSES, task=task, clip_norm=clip_norm, clip_sharded=is_clipped
        )
        before = copied_state(trainer)
        rows = sharding.sample_active_rows(np.unique(batch["label"]), MANY_CLASSES, count, 3, 0, 0)
        _, gradients = margin_cases.expected_update(before, batch, margin_cases.objective(), rows)
        norm = margin_cases.norm(*gradients.values())
        assert norm > 2 * clip_norm
        margin_cases.update(trainer, batch)
        decayed = margin_cases.param_group(HEAD)[1] * before[HEAD][rows]
        expected = gradients[HEAD] * (clip_norm / norm if is_clipped else 1) + decayed
        np.testing.assert_allclose(trainer.state_dict()[MOMENTUM][rows], expected, rtol=1e-4, atol=1e-6)
