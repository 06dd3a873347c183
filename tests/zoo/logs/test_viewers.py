"""What TensorBoard reads back, and further logs by name."""

import csv
import io
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.zoo.config.recipe_files import SMALL, build
from zoo.config.schema import Config
from zoo.data.errors import UserError
from zoo.logs import listeners
from zoo.logs.journal import Journal
from zoo.logs.tensorboard import TensorBoard
from zoo.logs.viewers import Histogram

accumulator = pytest.importorskip("tensorboard.backend.event_processing.plugin_event_accumulator")


@pytest.fixture
def opened(tmp_path):
    (tmp_path / "run").mkdir()
    hparams = {"optim.lr": 0.1, "train.tf32": False, "data.crop": [8, 8], "model.name": "resnet"}
    return TensorBoard(str(tmp_path / "run"), "seed: 1\ntrain:\n  batch: 2\n", hparams), tmp_path / "run"


def read(opened):
    """Close the file; return {tag: [(step, time, tensor, plugin)]}."""
    from tensorboard.util import tensor_util

    viewer, folder = opened
    viewer.close()
    written = accumulator.EventAccumulator(str(folder), {"tensors": 0}).Reload()
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
        "train_system/device_memory_bytes": [(20, 1.0, 7.0, "scalars")],
        "train_step_ms/p50": [(20, 1.0, 1.5, "scalars")],
        "train_step_ms/count": [(20, 1.0, 3.0, "scalars")],
        "val/accuracy": [(40, 2.0, 0.25, "scalars")],
        "val_iou/road": [(40, 2.0, 0.75, "scalars")],
    }


def test_tensorboard_names_runs_after_their_folders_and_shows_training_first(opened):
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.plugins.hparams import metadata

    viewer, folder = opened
    viewer({"event": "begin", "time": 1.0})
    viewer({"event": "eval", "time": 2.0, "step": 40, "accuracy": 0.25, "iou": {"road": 0.75}})
    viewer({"event": "train", "time": 2.0, "step": 40, "loss": 0.25, "epoch": 1.0, "power": {"watts": 9.0}})
    viewer.close()
    written = EventMultiplexer().AddRunsFromDirectory(str(folder.parent)).Reload()
    assert list(written.Runs()) == ["run"]
    tags = written.Runs()["run"]["tensors"]
    groups = sorted({tag.split("/")[0] for tag in tags} - {"recipe", "_hparams_"})
    assert groups == ["train", "train_power", "train_system", "val", "val_iou"]
    content = written.SummaryMetadata("run", metadata.SESSION_START_INFO_TAG).plugin_data.content
    shown = metadata.parse_session_start_info_plugin_data(content).hparams
    assert (shown["optim.lr"].number_value, shown["model.name"].string_value) == (0.1, "resnet")
    assert (shown["train.tf32"].bool_value, shown["data.crop"].string_value) == (False, "[8, 8]")


def test_pictures_and_histograms_in_tensorboard(opened):
    pixels = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3)
    histogram = Histogram(np.array([3, 1]), np.array([-1.0, 0.0, 2.0]))
    opened[0].show(9, {"images/samples": pixels}, {"weights/fc": histogram})
    shown = read(opened)
    ((step, _, (width, height, encoded), plugin),) = shown["images/samples"]
    assert (step, width, height, plugin) == (9, b"5", b"2", "images")
    assert np.array_equal(Image.open(io.BytesIO(encoded)), pixels)
    ((step, _, buckets, plugin),) = shown["weights/fc"]
    assert (step, buckets.tolist(), plugin) == (9, [[-1, 0, 3], [0, 2, 1]], "histograms")  # left, right, count


def table(folder):
    with open(folder / "metrics.csv", encoding="utf-8", newline="") as file:
        return [[row.get(name, "") for name in ("event", "step", "loss", "top1")] for row in csv.DictReader(file)]


def test_a_recipe_names_listeners(tmp_path):
    config, _ = build(tmp_path, SMALL, "listeners=[metrics_csv]")
    assert isinstance(config, Config) and config.listeners == ("metrics_csv",)
    listeners.check_names(config.listeners)
    assert build(tmp_path)[0].listeners == ()


def test_a_table_of_numbers_without_what_a_resume_reverts(tmp_path):
    opened = listeners.open_listeners(str(tmp_path), SimpleNamespace(listeners=("metrics_csv",)))
    with Journal(str(tmp_path), opened) as journal:
        journal.add("begin", seed=1)
        journal.add("train", step=1, loss=0.5, step_ms={"p50": 3.0})
        journal.add("train", step=2, loss=0.25)
        assert not (tmp_path / "metrics.csv").exists()
        journal.add("eval", step=2, accuracy=0.5, top1=0.5, loss=0.75)
        assert table(tmp_path) == [["train", "1", "0.5", ""], ["train", "2", "0.25", ""], ["eval", "2", "0.75", "0.5"]]
        journal.add("resume", step=1)
        journal.add("end", step=1)
    assert table(tmp_path) == [["train", "1", "0.5", ""]]
    (tmp_path / "metrics.csv").unlink()  # as if a kill had come before it
    listeners.open_listeners(str(tmp_path), SimpleNamespace(listeners=("metrics_csv",)))
    assert table(tmp_path) == [["train", "1", "0.5", ""]]


def test_names_that_are_wrong():
    for names, message in ((("metrics_cvs",), "did you mean metrics_csv?"), (("metrics_csv",) * 2, "is given twice")):
        with pytest.raises(UserError, match=message):
            listeners.check_names(names)
