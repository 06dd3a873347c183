"""Files of torch.save: named tensors are read, training logs are left out, and no code is run."""

import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from data.errors import UserError
from zoo.weights import pth

STATE_DICT = {"fc.weight": torch.ones(2, 3)}


@pytest.mark.parametrize("content", [torch.zeros(2), {"a": 1.0}, {}, {3: torch.zeros(2)}])
def test_a_pickle_without_named_tensors_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(UserError, match="save a state_dict"):
        pth.read(str(tmp_path / "a.pth"))


def test_a_sparse_tensor_is_refused(tmp_path):
    torch.save({"a": torch.ones(2).to_sparse()}, tmp_path / "a.pth")
    with pytest.raises(UserError, match=r"a.pth: a is sparse"):
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
