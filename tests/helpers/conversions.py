"""Conversions by `zoo convert`."""

import os

import numpy as np
import torch

from tests.helpers.cli import call_zoo
from zoo.weights import files

RESULT = "out.safetensors"


def source(folder, content):
    """Return the path of a file: given, or written with arrays or with what torch.save takes."""
    if isinstance(content, os.PathLike):
        return content
    if all(isinstance(value, np.ndarray) for value in content.values()):
        files.write(str(folder / "in.safetensors"), content)
        return folder / "in.safetensors"
    torch.save(content, folder / "in.pth")
    return folder / "in.pth"


def run(source, target, *flags):
    return call_zoo("convert", source, "--out", target, *flags)


def converted(folder, content, *flags):
    """Return tensors and metadata of a conversion that must succeed."""
    assert run(source(folder, content), folder / RESULT, *flags) == 0
    return files.read(str(folder / RESULT))


def refused(capsys, folder, content, *flags):
    """Return the message of a conversion that must fail and leave no file."""
    path = source(folder, content)
    before = sorted(os.listdir(folder))
    assert run(path, folder / RESULT, *flags) == 2
    assert sorted(os.listdir(folder)) == before
    output = capsys.readouterr()
    assert output.err.startswith("error: ")
    return output.out + output.err


def assert_equal(tensors, expected):
    assert tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(tensors[name], tensor, err_msg=name)
