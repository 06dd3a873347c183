"""Files of tensors: what PyTorch, Paddle and MindSpore wrote is read without them, and no code is run from it."""

import collections
import os
import pickle
import re
import sys
import types
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.campaign.fuzzing.mutations import varint
from tests.helpers.files import Call
from tests.helpers.paths import GOLDEN
from tests.zoo.weights.face_models import variable
from zoo.data.errors import UserError
from zoo.weights import files, layouts, pdparams, pth


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_16_bit_floats_are_read_as_float32(tmp_path, half, suffix):
    values = torch.tensor([[1.5, -0.1], [3e-5, 100.0]], dtype=half)
    path = str(tmp_path / f"half{suffix}")
    (save_file if suffix == ".safetensors" else torch.save)({"a": values}, path)
    array = files.read(path)[0]["a"]
    assert array.dtype == np.float32 and np.array_equal(array, values.float().numpy())


def test_write_keeps_values_scalars_and_metadata(tmp_path):
    path = str(tmp_path / "a.safetensors")
    tensors = {"transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T, "scalar": np.zeros((), np.int64)}
    files.write(path, tensors, {"origin": "here"})
    back, metadata = files.read(path)
    assert metadata == {"origin": "here"} and back["scalar"].shape == ()
    assert np.array_equal(back["transposed"], tensors["transposed"])
    assert os.listdir(tmp_path) == ["a.safetensors"]
    with pytest.raises(UserError, match="exists already"):
        files.write(path, tensors)


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.safetensors", b"\x10\0\0\0\0\0\0\0{}"),
        ("b.safetensors", b""),
        ("c.pth", b"not a pickle"),
        ("d.zip", b""),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(str(path))):
        files.read(str(path))


STATE_DICT = {"fc.weight": torch.ones(2, 3)}


@pytest.mark.parametrize(
    "content, message",
    [
        (torch.zeros(2), "save a state_dict"),
        ({"a": torch.ones(2).to_sparse()}, "is refused"),
        ({"a": 1.0}, "save a state_dict"),
        ({}, "save a state_dict"),
        ({3: torch.zeros(2)}, "save a state_dict"),
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


SHAPES = {
    "conv1.weight": (3, 2, 3, 3),
    "bn1.weight": (3,),
    "bn1.bias": (3,),
    "bn1._mean": (3,),
    "bn1._variance": (3,),
    "fc.weight": (3, 4),
    "fc.bias": (4,),
}


def refused(tmp_path, content):
    (tmp_path / "a.pdparams").write_bytes(content)
    with pytest.raises(UserError, match="a.pdparams") as caught:
        files.read(str(tmp_path / "a.pdparams"))
    return str(caught.value)


def read(tmp_path, content, protocol=4):
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps(content, protocol=protocol))
    return files.read(str(tmp_path / "a.pdparams"))[0]


@pytest.mark.parametrize("name", ["protocol2", "nested"])
def test_files_of_paddle(name):
    """The values are those of state_dicts.drawn."""
    tensors, metadata = files.read(str(GOLDEN / f"paddle_{name}.pdparams"))
    assert {key: array.shape for key, array in tensors.items()} == SHAPES and metadata == {}
    rng = np.random.default_rng(zlib.crc32(b"bn1._mean"))
    assert np.array_equal(tensors["bn1._mean"], (0.1 * rng.standard_normal(3)).astype(np.float32))
    rng = np.random.default_rng(zlib.crc32(b"fc.weight"))
    assert np.array_equal(tensors["fc.weight"], rng.standard_normal((3, 4), dtype=np.float32) * np.float32(0.5))


def test_16_bit_floats_of_paddle():
    tensors, _ = files.read(str(GOLDEN / "paddle_kinds.pdparams"))
    assert tensors["brain"].tolist() == [1.5, -2] and tensors["half"].tolist() == [1.5, -2]
    assert tensors["scalar"].shape == () and tensors["scalar"] == 0.5
    assert {array.dtype for array in tensors.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda tensors: tensors,
        lambda tensors: {"epoch": 3, "state_dict": tensors},
        lambda tensors: {"model": tensors},
        collections.OrderedDict,
        lambda tensors: {"state_dict": collections.OrderedDict(tensors)},
        lambda tensors: {name: (f"linear_0.{name}", array) for name, array in tensors.items()},
        lambda tensors: {**tensors, "StructuredToParameterName@@": {"a": "linear_0.w_0"}},
    ],
)
def test_the_forms_of_a_state_dict(tmp_path, wrap):
    tensors = {"a": np.ones(2, np.float32), "b": np.zeros((), np.float32)}
    loaded = read(tmp_path, wrap(tensors))
    assert loaded.keys() == tensors.keys() and all(np.array_equal(loaded[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("content", [[], {}, 3, {"a": 3}, {3: np.ones(2)}, {"a": ("a", "b")}, {"a": {"b": np.ones(1)}}])
def test_other_content_of_paddle_is_refused(tmp_path, content):
    assert "paddle.save" in refused(tmp_path, pickle.dumps(content, protocol=4))


@pytest.mark.parametrize("name", ["a.pdparams", "a.pth"])
def test_nothing_is_executed(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    content = {"a": np.ones(2, np.float32), "b": Call(os.system, "echo > executed")}
    if name == "a.pth":
        torch.save(content, name)
    else:
        Path(name).write_bytes(pickle.dumps(content, protocol=4))
    with pytest.raises(UserError, match="is refused|would mean running code"):
        files.read(name)
    assert os.listdir(tmp_path) == [name]
    torch.load(name, weights_only=False) if name == "a.pth" else pickle.loads(Path(name).read_bytes())
    assert "executed" in os.listdir(tmp_path)  # the attack works


# Written by the save operator of paddlepaddle 3.3.1: a whole file, and another without its 64 * 3 * 3 * 3 elements.
SAVED = bytes.fromhex("000000000000000000000000000000000400000008051001d1c7ab3e")


@pytest.mark.parametrize(
    "array", [np.float32([[1, 2, 3], [4, 5, 6]]), np.int64([7]), np.float16([0.5, -2]), np.zeros((200, 2), np.float32)]
)
def test_variables_are_read(tmp_path, array):
    (tmp_path / "x").write_bytes(variable(array))
    array_read = pdparams.read_variable(str(tmp_path / "x"))
    np.testing.assert_array_equal(array_read, array)
    assert array_read.dtype == (np.float32 if array.dtype == np.float16 else array.dtype)


@pytest.mark.parametrize(
    "content, reason",
    [
        (SAVED[:-4], "0 elements for a tensor of shape"),
        (SAVED[:22], "it is truncated"),
        (b"\1" + SAVED[1:], "version 1"),
        (SAVED.replace(b"\x08\x05", b"\x08\x07"), "tensors of type 7"),
        (b"\x80\x02cos\nsystem\n" + bytes(40), "version"),
        (SAVED[:4] + b"\1" + bytes(7) + b"\xff" * 8 + SAVED[12:], ""),
    ],
    ids=range(6),
)
def test_other_variables_are_refused(tmp_path, content, reason):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UserError, match=f"x is not a complete variable of Paddle .*{reason}"):
        pdparams.read_variable(str(tmp_path / "x"))
    with pytest.raises(UserError, match="no such file|No such file"):
        pdparams.read_variable(str(tmp_path / "y"))


def field(number, value):
    """Return a field of a message: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def value(name, dims, dtype, content, packed=False):
    """Return one entry of a checkpoint."""
    sizes = field(1, b"".join(map(varint, dims))) if packed else b"".join(field(1, size) for size in dims)
    tensor = sizes + field(2, dtype.encode()) + field(3, content)
    return field(1, field(1, name.encode()) + field(2, tensor))


def read_ckpt(tmp_path, content):
    (tmp_path / "a.ckpt").write_bytes(content)
    return files.read(str(tmp_path / "a.ckpt"))[0]


def refused_ckpt(tmp_path, content):
    with pytest.raises(UserError, match="a.ckpt") as caught:
        read_ckpt(tmp_path, content)
    return str(caught.value)


def test_a_training_run_of_mindspore():
    """Saved from TrainOneStepCell: weights of state_dicts.drawn, and the optimizer state beside them."""
    tensors, metadata = files.read(str(GOLDEN / "mindspore_run.ckpt"))
    assert metadata == {} and {"moments.conv1.weight", "learning_rate", "global_step", "epoch_num"} <= set(tensors)
    rng = np.random.default_rng(zlib.crc32(b"bn1.moving_mean"))
    assert np.array_equal(tensors["bn1.moving_mean"], (0.1 * rng.standard_normal(3)).astype(np.float32))
    assert {name: array.shape for name, array in layouts.to_canonical(tensors, "mindspore").items()} == {
        "conv1.weight": (3, 2, 3, 3),
        "bn1.weight": (3,),
        "bn1.bias": (3,),
        "bn1.running_mean": (3,),
        "bn1.running_var": (3,),
        "fc.weight": (4, 3),
        "fc.bias": (4,),
    }


def test_types():
    """With a checksum at the end."""
    tensors, _ = files.read(str(GOLDEN / "mindspore_kinds.ckpt"))
    assert tensors["half"].tolist() == [[1.5, -2, 0.25]] and tensors["half"].dtype == np.float32
    assert tensors["brain"].tolist() == [1.5, -2] and tensors["brain"].dtype == np.float32
    assert tensors["scalar"].shape == () and tensors["scalar"] == 0.5
    assert tensors["whole"].tolist() == [7, -8] and tensors["whole"].dtype == np.int64
    assert tensors["flag"].tolist() == [True, False]


def test_a_tensor_in_pieces(tmp_path):
    array = np.arange(70_000, dtype=np.float32).reshape(7, 10_000)
    pieces = [array[:3].tobytes(), array[3:].tobytes()]
    between = value("b", (1,), "Float32", bytes(4), packed=True)
    loaded = read_ckpt(
        tmp_path,
        value("a", array.shape, "Float32", pieces[0]) + between + value("a", array.shape, "Float32", pieces[1]),
    )
    assert np.array_equal(loaded["a"], array) and loaded["b"].tolist() == [0]


def test_a_checksum_detects_a_damaged_byte(tmp_path):
    whole = (GOLDEN / "mindspore_kinds.ckpt").read_bytes()
    at = whole.index(b"\x00\x00\x00\x3f")  # of the scalar 0.5
    assert "checksum" in refused_ckpt(tmp_path, whole[:at] + b"\x01" + whole[at + 1 :])


@pytest.mark.parametrize(
    "content, reason",
    [
        (value("a", (), "str", b""), "no tensors"),
        (b"\xff a checkpoint", "not a complete checkpoint"),
        (field(1, field(2, b"")), "without a name"),
        (field(2, b""), "field 2 where"),
        (value("a", (2,), "Float32", bytes(4)), "1 elements for a tensor of shape (2,)"),
        (value("a", (1,), "Complex64", bytes(8)), "Complex64"),
        (value("a", (2,), "Float32", bytes(4)) + value("a", (2,), "Int32", bytes(4)), "differ in shape or type"),
        (field(1, field(1, b"\xff") + field(2, b"")), "not a complete checkpoint"),
        (value("a", (1 << 63, 1 << 63, 4), "Float32", b""), "not a complete checkpoint"),
        (value("a", (0,) * 33, "Float32", b""), "33 dimensions"),
        (b"\xff" * 9 + b"\x7f", "more than 64 bits"),
    ],
    ids=range(11),
)
def test_other_files_are_refused(tmp_path, content, reason):
    assert reason in refused_ckpt(tmp_path, content)
