"""Variables of Paddle 1: what Paddle wrote is read, and a damaged file is refused."""

import struct

import numpy as np
import pytest

from tests.zoo.models.arcface.golden import drawn
from tests.zoo.weights.face_models import variable
from zoo.data.errors import UserError
from zoo.weights import pdparams

# Written by the save operator of paddlepaddle 3.3.1: a whole file, and another without its 64 * 3 * 3 * 3 elements.
SAVED = bytes.fromhex("000000000000000000000000000000000400000008051001d1c7ab3e")
SAVED_HEADER = bytes.fromhex("000000000000000000000000000000000a00000008051040100310031003")


def test_the_helper_writes_what_paddle_writes():
    slope = drawn("prelu.weight", (1,))
    assert variable(slope) == SAVED
    assert variable(drawn("conv1.weight", (64, 3, 3, 3)))[: len(SAVED_HEADER)] == SAVED_HEADER


@pytest.mark.parametrize(
    "array", [np.float32([[1, 2, 3], [4, 5, 6]]), np.int64([7]), np.float16([0.5, -2]), np.zeros((200, 2), np.float32)]
)
def test_variables_are_read(tmp_path, array):
    (tmp_path / "x").write_bytes(variable(array))
    array_read = pdparams.read_variable(str(tmp_path / "x"))
    np.testing.assert_array_equal(array_read, array)
    assert array_read.dtype == (np.float32 if array.dtype == np.float16 else array.dtype)


def test_a_variable_with_levels_of_detail(tmp_path):
    plain = variable(np.float32([1, 2]))
    levels = struct.pack("<Q", 2) + struct.pack("<Q", 16) + bytes(16) + struct.pack("<Q", 8) + bytes(8)
    (tmp_path / "x").write_bytes(plain[:4] + levels + plain[12:])
    np.testing.assert_array_equal(pdparams.read_variable(str(tmp_path / "x")), [1, 2])


@pytest.mark.parametrize(
    "content, reason",
    [
        (SAVED[:-1], "buffer size must be"),
        (SAVED[:-4], "0 elements for a tensor of shape"),
        (SAVED[:22], "it is truncated"),
        (SAVED[:9], "unpack"),
        (b"", "unpack"),
        (b"\1" + SAVED[1:], "version 1"),
        (SAVED + bytes(4), "2 elements"),
        (SAVED.replace(b"\x08\x05", b"\x08\x07"), "tensors of type 7"),
        (b"\x80\x02cos\nsystem\n" + bytes(40), "version"),
        (SAVED[:4] + b"\1" + bytes(7) + b"\xff" * 8 + SAVED[12:], ""),
        (SAVED[:12] + b"\2" + SAVED[13:], "version 2"),
    ],
    ids=range(11),
)
def test_other_files_are_refused(tmp_path, content, reason):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UserError, match=f"x is not a complete variable of Paddle .*{reason}"):
        pdparams.read_variable(str(tmp_path / "x"))
    with pytest.raises(UserError, match="no such file|No such file"):
        pdparams.read_variable(str(tmp_path / "y"))
