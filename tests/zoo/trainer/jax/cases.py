"""Cases of JAX alone (test_trainer.py)."""

import re

import numpy as np

from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import make, update


def case_updates_are_compiled_once(backend):
    """Whatever the learning rate, the number of the update and the loss scale are."""
    trainer = make(backend, backend.SIXTEEN_BIT_MODES[1])
    for step, lr in enumerate((0.1, 0.05, 0.0)):
        update(trainer, random_batch(seed=step), lr=lr, step=step)
    trainer.load_state_dict({"scaler/scale": np.float32(8)})
    update(trainer, random_batch(), lr=0.01, step=9)
    assert trainer._step._cache_size() == 1


def case_only_fp64_has_numbers_of_64_bits(backend):
    for mode, expected in ((backend.FP32_MODES[0], False), (backend.FP64_MODES[0], True)):
        trainer = make(backend, mode)
        batches = [trainer.to_device(random_batch())]
        names = {field.name for field in trainer.plan.fields}
        batches = [{name: batch[name] for name in names} for batch in batches]
        rates = {scale: np.asarray(0.1 * scale, trainer.dtype) for scale in trainer.lr_scales}
        text = trainer._step.lower(trainer.state, rates, np.float32(1), batches, None).as_text()
        assert bool(re.search(r"\bf64>|xf64|tensor<f64", text)) == expected
