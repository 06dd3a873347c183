"""MindSpore's checkpoints: what MindSpore wrote is read without it, and a damaged file is refused."""

import zlib

import numpy as np
import pytest

from tests.helpers.paths import GOLDEN
from zoo.data.errors import UserError
from zoo.weights import files, layouts


def varint(value):
    head = b""
    while value > 127:
        head, value = head + bytes([value & 127 | 128]), value >> 7
    return head + bytes([value])


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


def read(tmp_path, content):
    (tmp_path / "a.ckpt").write_bytes(content)
    return files.read(str(tmp_path / "a.ckpt"))[0]


def refused(tmp_path, content):
    with pytest.raises(UserError, match="a.ckpt") as caught:
        read(tmp_path, content)
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
    loaded = read(
        tmp_path,
        value("a", array.shape, "Float32", pieces[0]) + between + value("a", array.shape, "Float32", pieces[1]),
    )
    assert np.array_equal(loaded["a"], array) and loaded["b"].tolist() == [0]


def test_an_early_scalar_and_a_string(tmp_path):
    loaded = read(tmp_path, value("epoch_num", (0,), "Int32", b"\7\0\0\0") + value("text", (0,), "str", b"hello"))
    assert loaded.keys() == {"epoch_num"} and loaded["epoch_num"].shape == () and loaded["epoch_num"] == 7


def test_a_truncated_file_is_refused_or_holds_complete_tensors(tmp_path):
    """A cut between two entries cannot be detected; the comparison with the model lists the missing keys."""
    whole = (GOLDEN / "mindspore_run.ckpt").read_bytes()
    tensors = read(tmp_path, whole)
    kept = []
    for end in range(0, len(whole), 3):
        try:
            loaded = read(tmp_path, whole[:end])
        except UserError as error:
            assert "a.ckpt" in str(error)
            continue
        kept.append(len(loaded))
        assert all(np.array_equal(loaded[name], tensors[name]) for name in loaded)
    assert len(kept) <= len(tensors) + 1 and max(kept) <= len(tensors)


def test_a_checksum_detects_a_damaged_byte(tmp_path):
    whole = (GOLDEN / "mindspore_kinds.ckpt").read_bytes()
    at = whole.index(b"\x00\x00\x00\x3f")  # of the scalar 0.5
    assert "checksum" in refused(tmp_path, whole[:at] + b"\x01" + whole[at + 1 :])


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "no tensors"),
        (b"not a checkpoint", "not a complete checkpoint"),
        (b"\xff" * 30, "truncated"),
        (field(1, field(2, b"")), "without a name"),
        (field(1, field(1, b"a") + field(3, b"")), "a is not a tensor"),
        (field(2, b""), "field 2 where"),
        (value("a", (2,), "Float32", bytes(4)), "1 elements for a tensor of shape (2,)"),
        (value("a", (1,), "Float32", bytes(3)), "not a complete checkpoint"),
        (value("a", (1,), "Complex64", bytes(8)), "Complex64"),
        (value("a", (2,), "Float32", bytes(4)) + value("a", (2,), "Int32", bytes(4)), "differ in shape or type"),
        (field(1, field(1, b"\xff") + field(2, b"")), "not a complete checkpoint"),
        (value("a", (1 << 63, 1 << 63, 4), "Float32", b""), "not a complete checkpoint"),
        (value("a", (0,) * 33, "Float32", b""), "33 dimensions"),
        (b"\xff" * 9 + b"\x7f", "more than 64 bits"),
    ],
    ids=range(14),
)
def test_other_files_are_refused(tmp_path, content, reason):
    assert reason in refused(tmp_path, content)
