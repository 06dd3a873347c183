"""Files of torch.save: named tensors are read, training logs are left out, and no code is run."""

import pickle
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from zoo.data.errors import UserError
from zoo.weights import pth

STATE_DICT = {"fc.weight": torch.ones(2, 3)}


@pytest.mark.parametrize(
    "content, message",
    [
        (torch.zeros(2), "save a state_dict"),
        ({"a": 1.0}, "save a state_dict"),
        ({}, "save a state_dict"),
        ({3: torch.zeros(2)}, "save a state_dict"),
        ({"a": torch.ones(2).to_sparse()}, "a is sparse"),
        ({"a": torch.ones(2, device="meta")}, "a has no elements, only a shape"),
        ({"a": torch.ones(1).expand(1 << 25)}, "a and the tensors before it hold more data than the file"),
    ],
)
def test_other_content_is_refused(tmp_path, content, message):
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(UserError, match=f"a.pth.*{message}"):
        pth.read(str(tmp_path / "a.pth"))


class HistoryBuffer:
    """As mmengine's: numbers, and methods by name."""

    def __init__(self):
        self.history, self.methods, self.last = np.array([1.0, 2.0]), {"min": HistoryBuffer.touch}, np.float64(2)

    @staticmethod
    def touch(path):
        Path(path).touch()


class Trap:
    """Pickled as a call that creates a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return HistoryBuffer.touch, (self.path,)


@pytest.fixture
def mmengine(monkeypatch):
    """The module that pickling needs; a call of the fixture uninstalls it."""
    parts = ("mmengine", "mmengine.logging", "mmengine.logging.history_buffer")
    for name in parts:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for pickled_by_name in (HistoryBuffer, HistoryBuffer.touch):
        monkeypatch.setattr(pickled_by_name, "__module__", parts[-1])
    sys.modules[parts[-1]].HistoryBuffer = HistoryBuffer
    return lambda: [monkeypatch.delitem(sys.modules, name) for name in parts]


def test_a_training_log_is_left_out(tmp_path, mmengine):
    hub = {"log_scalars": {"train/loss": HistoryBuffer()}, "runtime_info": {"iter": 5, "best": np.float32(0.5)}}
    torch.save({"state_dict": STATE_DICT, "message_hub": hub}, tmp_path / "in.pth")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "in.pth", weights_only=True)  # so there is something to leave out
    mmengine()
    tensors, metadata = pth.read(str(tmp_path / "in.pth"))
    assert tensors.keys() == STATE_DICT.keys() and metadata == {}


def test_nothing_in_a_training_log_is_called(tmp_path, mmengine):
    trace = tmp_path / "trace"
    torch.save({"state_dict": STATE_DICT, "message_hub": Trap(str(trace))}, tmp_path / "in.pth")
    with pytest.raises(UserError, match="holds more than tensors"):
        pth.read(str(tmp_path / "in.pth"))
    assert not trace.exists()
    torch.load(tmp_path / "in.pth", weights_only=False)  # the trap works
    assert trace.exists()


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "before PyTorch 1.6"])
def test_a_whole_training_checkpoint(tmp_path, legacy):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 30_000)
    content = {
        "state_dict": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": schedule.state_dict(),
        "meta": {"CLASSES": ("a", "b"), "iter": 160_000, "seed": 2**63, "config": "x" * 100_000},
    }
    torch.save(content, tmp_path / "a.pth", _use_new_zipfile_serialization=not legacy)
    tensors, metadata = pth.read(str(tmp_path / "a.pth"))
    assert tensors.keys() == model.state_dict().keys() and metadata == {"classes": '["a", "b"]'}
    for name, tensor in model.state_dict().items():
        assert np.array_equal(tensors[name], tensor.numpy())


def test_compressed_entries_are_refused(tmp_path):
    torch.save(STATE_DICT, tmp_path / "a.pth")
    with zipfile.ZipFile(tmp_path / "a.pth") as source, zipfile.ZipFile(tmp_path / "b.pth", "w", 8) as target:
        for entry in source.namelist():
            target.writestr(entry, source.read(entry))
    with pytest.raises(UserError, match="its entries are compressed"):
        pth.read(str(tmp_path / "b.pth"))
