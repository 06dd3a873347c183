"""Files of named tensors: values, types and metadata survive, writes are atomic, damaged files are named."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from zoo.data.errors import UserError
from zoo.weights import files


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


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), files.atomic_write(str(tmp_path / "a")) as temporary:
        Path(temporary).write_bytes(b"half")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


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
