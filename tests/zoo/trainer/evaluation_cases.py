"""The cases of train.eval_precision, one body over all frameworks (test_trainer.py)."""

from itertools import product

import numpy as np
import pytest

from tests.zoo.trainer import tiny_reference as tiny
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import assert_equal, copied_state, make, make_tsm, random_clips, update
from zoo.data.errors import UserError
from zoo.models.tsm import spec as tsm_spec
from zoo.optim.ema import Ema
from zoo.trainer.plan import Mode
from zoo.trainer.state import with_averages


def predict(trainer, field, array):
    return trainer.predict(trainer.to_device({field: array}))


def case_predictions_in_16_bits(backend):
    """They are float32, and as far from those of fp32 as 16 bits round; without the option they are those of fp32."""
    plain, images = make(backend), random_batch(64)["image"]
    expected = predict(plain, "image", images)
    for mode in backend.SIXTEEN_BIT_MODES:
        mixed, exact = (make(backend, mode, eval_mixed=eval_mixed) for eval_mixed in (True, False))
        predictions = predict(mixed, "image", images)
        assert predictions.dtype == np.float32 and predictions.shape == expected.shape
        assert 1e-6 < np.abs(predictions - expected).max() < 1e-2, mode
        np.testing.assert_allclose(predict(exact, "image", images), expected, rtol=1e-6, atol=1e-6)


def case_a_whole_model_predicts_in_16_bits(backend):
    """In evaluation mode too, which must not be that of training."""
    video = random_clips()["video"]
    expected = predict(make_tsm(backend)[0], "video", video)
    for mode in backend.SIXTEEN_BIT_MODES[:1]:
        trainer, _ = make_tsm(backend, mode, eval_mixed=True)
        predictions = predict(trainer, "video", video)
        assert 0 < np.abs(predictions - expected).max() < 0.02 * np.abs(expected).max() + 0.01
        np.testing.assert_array_equal(predict(trainer, "video", video[:2]), predictions[:2])


def case_frames_of_a_stream_have_the_mean_of_their_clip(backend):
    """Also in 16 bits, where the device has them; in fp32 where only the training has 16 bits."""
    video = random_clips()["video"]
    height, width = video.shape[2:4]
    mixed = [(mode, eval_mixed) for mode in backend.SIXTEEN_BIT_MODES[:1] for eval_mixed in (True, False)]
    for mode, eval_mixed in ((backend.FP32_MODES[0], False), *mixed):
        if mode.compile and not eval_mixed:
            continue  # compiling takes seconds
        trainer, arch = make_tsm(backend, mode, shift_direction="causal", eval_mixed=eval_mixed)
        shapes = tsm_spec.state_shapes(arch, height, width)
        zeros = {f"state_{i}": np.zeros((len(video), *shape), np.float32) for i, shape in enumerate(shapes)}
        state, rows = tuple(trainer.to_device(zeros).values()), []
        for number in range(video.shape[1]):
            batch = trainer.to_device({"video": video[:, number : number + 1]})
            logits, state = trainer.predict_frame(batch, state)
            rows.append(logits)
        expected = predict(trainer, "video", video)
        assert rows[0].dtype == np.float32 and np.abs(rows[0] - rows[1]).max() > 1e-3 * np.abs(expected).max()
        tolerance = 2e-2 if eval_mixed else 1e-5
        assert np.abs(np.mean(rows, 0) - expected).max() <= tolerance * np.abs(expected).max(), mode


def case_predictions_by_the_average_have_the_precision_of_the_others(backend):
    """The same bits from the same weights, in 16 bits and in fp32."""
    images, state = random_batch(64)["image"], tiny.initial_state()
    for mode, eval_mixed in product(backend.SIXTEEN_BIT_MODES[:1], (True, False)):
        trainer = make(backend, mode, eval_mixed=eval_mixed, ema=Ema(0.5))
        trainer.load_state_dict(with_averages(state, trainer.plan))
        batch = trainer.to_device({"image": images})
        np.testing.assert_array_equal(trainer.predict(batch, averaged=True), trainer.predict(batch))


def case_predictions_in_16_bits_leave_the_training_alone(backend):
    for mode in backend.SIXTEEN_BIT_MODES[:1]:
        states = []
        for predicts in (False, True):
            trainer = make(backend, mode, loss_scale=8.0, eval_mixed=True)
            for seed in (0, 1):
                update(trainer, random_batch(seed=seed))
                if predicts:
                    before = copied_state(trainer)
                    predict(trainer, "image", random_batch(seed=7)["image"])
                    assert_equal(trainer.state_dict(), before)
            states.append(copied_state(trainer))
        assert_equal(*states)


def case_a_device_without_16_bits_refuses_them(backend):
    """train.eval_precision=amp needs 16 bits of training, and these are refused by their own key."""
    if not backend.SIXTEEN_BIT_MODES:
        with pytest.raises(UserError, match="train.precision"):
            backend.WORLD.resolve_mode(Mode("amp"))
