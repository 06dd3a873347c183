"""Images that DALI has decoded become tensors of a framework, one body over all frameworks."""

import numpy as np
import pytest

from tests.zoo.trainer.trainer_setup import make_tsm, random_clips
from zoo.data.loaders.packed import DeviceImages


class DaliTensor:
    """An array as DALI's tensors on a CPU give it away: by DLPack or as a copy."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def as_cpu(self):
        return self.array


def as_images(clips, given, rest):
    """Return clips as DALI's tensors of the images `given`, one per list, and on the host the images `rest`."""
    rows = clips.reshape(-1, *clips.shape[2:])
    position = np.argsort([*(row for part in given for row in part), *rest])
    parts = tuple(DaliTensor(rows[part].copy()) for part in given)
    return DeviceImages(parts, rows[rest], position.reshape(clips.shape[:2]))


def case_decoded_images_are_the_images(backend):
    """In one part or several, in any order; the update with them is the one without."""
    video = random_clips()["video"]
    count = video.shape[0] * video.shape[1]
    rows = list(range(count))
    trainer, _ = make_tsm(backend, backend.FP32_MODES[0])
    for given, rest in (
        ([rows], []),
        ([rows[::-1]], []),
        ([rows[1::2], rows[::2]], []),
        ([rows[4:]], rows[:4]),
        ([rows[5:], rows[1:3]], [0, 4, 3]),
    ):
        images = as_images(video, given, rest)
        assert images.is_whole == (given == [rows])
        assert np.array_equal(images.on_host(), video)
        for batch, decoded in (({"video": video}, {}), ({}, {"video": images})):
            predictions = trainer.predict(trainer.to_device(batch, decoded))
            if not decoded:
                expected = predictions
        np.testing.assert_array_equal(predictions, expected)


def case_a_row_may_be_there_twice(backend):
    """As the rows of padding are."""
    video = random_clips()["video"]
    images = as_images(video, [list(range(video.shape[0] * video.shape[1]))], [])
    images = images._replace(order=images.order[[0, 1, 1]])
    trainer, _ = make_tsm(backend, backend.FP32_MODES[0])
    found = trainer.predict(trainer.to_device({}, {"video": images}))
    np.testing.assert_array_equal(found, trainer.predict(trainer.to_device({"video": video[[0, 1, 1]]})))


def case_other_fields_are_copied_beside_them(backend):
    batch = random_clips()
    video = batch.pop("video")
    images = as_images(video, [list(range(video.shape[0] * video.shape[1]))], [])
    trainer, _ = make_tsm(backend, backend.FP32_MODES[0])
    losses = []
    for host, decoded in (({"video": video, **batch}, {}), (batch, {"video": images})):
        device_batch = trainer.to_device(host, decoded)
        assert device_batch.keys() == {"video", *batch}
        losses.append(trainer.read(trainer.step([device_batch], 0.0, 0))["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
