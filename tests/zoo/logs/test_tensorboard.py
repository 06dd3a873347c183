"""Scalars that TensorBoard reads back."""

import pytest

from zoo.logs.tensorboard import Scalars

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def test_numbers_are_written_also_those_of_dictionaries(tmp_path):
    scalars = Scalars(str(tmp_path))
    train = {"event": "train", "time": 1.0, "step": 20, "loss": 0.5, "power": None, "device_memory_bytes": 7}
    scalars({**train, "step_ms": {"p50": 1.5, "clock": "host", "count": 3}})
    scalars({"event": "eval", "time": 2.0, "step": 40, "accuracy": 0.25, "iou": {"road": 0.75}})
    scalars({"event": "save", "time": 3.0, "step": 40, "path": "x"})
    scalars.close()
    written = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    read = {
        tag: [(e.step, e.wall_time, e.tensor_proto.float_val[0]) for e in written.Tensors(tag)] for tag in tags(written)
    }
    assert read == {
        "train/loss": [(20, 1.0, 0.5)],
        "train/device_memory_bytes": [(20, 1.0, 7.0)],
        "train/step_ms/p50": [(20, 1.0, 1.5)],
        "train/step_ms/count": [(20, 1.0, 3.0)],
        "eval/accuracy": [(40, 2.0, 0.25)],
        "eval/iou/road": [(40, 2.0, 0.75)],
    }


def tags(written):
    return written.Tags()["tensors"]
