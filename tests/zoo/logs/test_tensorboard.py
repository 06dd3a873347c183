"""What TensorBoard reads back."""

import io

import numpy as np
import pytest
from PIL import Image

from zoo.logs.tensorboard import TensorBoard
from zoo.logs.viewers import Histogram

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


@pytest.fixture
def opened(tmp_path):
    return TensorBoard(str(tmp_path), "seed: 1\ntrain:\n  batch: 2\n"), tmp_path


def read(opened):
    """Close the file; return {tag: [(step, time, tensor, plugin)]}."""
    from tensorboard.util import tensor_util

    viewer, folder = opened
    viewer.close()
    written = accumulator.EventAccumulator(str(folder / "tensorboard"), {"tensors": 0}).Reload()
    return {
        tag: [
            (
                each.step,
                each.wall_time,
                tensor_util.make_ndarray(each.tensor_proto),
                written.SummaryMetadata(tag).plugin_data.plugin_name,
            )
            for each in written.Tensors(tag)
        ]
        for tag in written.Tags()["tensors"]
    }


def test_numbers_are_written_also_those_of_dictionaries(opened):
    viewer = opened[0]
    train = {"event": "train", "time": 1.0, "step": 20, "loss": 0.5, "power": None, "device_memory_bytes": 7}
    viewer({**train, "step_ms": {"p50": 1.5, "clock": "host", "count": 3}})
    viewer({"event": "eval", "time": 2.0, "step": 40, "accuracy": 0.25, "iou": {"road": 0.75}})
    viewer({"event": "save", "time": 3.0, "step": 40, "path": "x"})
    assert read(opened) == {
        "train/loss": [(20, 1.0, 0.5, "scalars")],
        "train/device_memory_bytes": [(20, 1.0, 7.0, "scalars")],
        "train/step_ms/p50": [(20, 1.0, 1.5, "scalars")],
        "train/step_ms/count": [(20, 1.0, 3.0, "scalars")],
        "eval/accuracy": [(40, 2.0, 0.25, "scalars")],
        "eval/iou/road": [(40, 2.0, 0.75, "scalars")],
    }


def test_the_recipe_is_text_at_the_start_and_after_a_resume(opened):
    for event in ({"event": "begin", "time": 1.0}, {"event": "resume", "time": 2.0, "step": 7}):
        opened[0](event)
    text = b"    seed: 1\n    train:\n      batch: 2\n"  # Markdown shows indented lines as they are
    assert read(opened) == {"recipe": [(0, 1.0, text, "text"), (7, 2.0, text, "text")]}


def test_pictures_and_histograms(opened):
    pixels = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3)
    histogram = Histogram(np.array([3, 1]), np.array([-1.0, 0.0, 2.0]))
    opened[0].show(9, {"images/samples": pixels}, {"weights/fc": histogram})
    shown = read(opened)
    ((step, _, (width, height, encoded), plugin),) = shown["images/samples"]
    assert (step, width, height, plugin) == (9, b"5", b"2", "images")
    assert np.array_equal(Image.open(io.BytesIO(encoded)), pixels)
    ((step, _, buckets, plugin),) = shown["weights/fc"]
    assert (step, buckets.tolist(), plugin) == (9, [[-1, 0, 3], [0, 2, 1]], "histograms")  # left, right, count
