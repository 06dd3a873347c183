"""Files that are named like weights: what they are is said by every reader, and what to do."""

import gzip
import io
import os
import re
import tarfile
import zipfile

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from tests.helpers.cli import call_zoo
from zoo.data.errors import UserError
from zoo.weights import files, onnx_file, recorded

EXTENSIONS = (".safetensors", ".pth", ".pdparams", ".ckpt", ".onnx")


def saved(write):
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def zipped(buffer):
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("weights/a.bin", b"1")


def tarred(buffer):
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.pth"))


STATE = {"a": torch.ones(3)}
TORCH = saved(lambda buffer: torch.save(STATE, buffer))
FOREIGN = {  # name -> content, what is said of it
    "page": (b"\n<!DOCTYPE html><html>Virus scan warning</html>", "a page (HTML or XML)"),
    "error of S3": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "a page (HTML or XML)"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull"),
    "empty": (b"", "it is empty; download it again"),
    "zeros": (bytes(9000), "nothing but zeros, as a download that was cut leaves them; download it again"),
    "JSON": (b'{"error": "rate limit exceeded"}', 'JSON that begins with \'{"error": "rate limit exceeded"}\''),
    "text": ("Zugriff verweigert für Gäste".encode() * 30, "text that begins with 'Zugriff verweigert für"),
    "zip": (saved(zipped), "a ZIP archive of 1 files, such as weights/a.bin; unpack it"),
    "tar": (saved(tarred), "a tar archive; unpack it"),
    "gzip": (gzip.compress(b"weights" * 999), "a gzip archive; unpack it"),
    "cut file of PyTorch": (TORCH[:-200], "the beginning of a ZIP archive or of a file of PyTorch; download it again"),
    "image": (b"\x89PNG\r\n\x1a\n" + bytes(99), "an image (PNG)"),
}
OWN = {  # weights by another name
    ".pth": (TORCH, "a file of PyTorch (torch.save); give it a name that ends in .pth"),
    ".safetensors": (save({"a": np.ones(3)}), "a safetensors file; give it a name that ends in .safetensors"),
}


def message(tmp_path, extension, content, read):
    path = tmp_path / f"a{extension}"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read(str(path))
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("name", FOREIGN)
def test_what_a_file_is(name, extension, tmp_path):
    content, what = FOREIGN[name]
    assert what in message(tmp_path, extension, content, onnx_file.read if extension == ".onnx" else files.read)


@pytest.mark.parametrize(  # PyTorch's are read by the other names, too: Lightning's end in .ckpt
    "own, extension", [(".pth", ".safetensors"), (".pth", ".onnx"), *((".safetensors", e) for e in EXTENSIONS[1:])]
)
def test_weights_with_the_name_of_another_format(own, extension, tmp_path):
    content, what = OWN[own]
    assert what in message(tmp_path, extension, content, onnx_file.read if extension == ".onnx" else files.read)


def test_a_program_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "b.pt", "w") as archive:  # as torch.jit.save writes it
        archive.writestr("b/data.pkl", b""), archive.writestr("b/code/__torch__.py", b"")
    assert "TorchScript" in message(tmp_path, ".pt", (tmp_path / "b.pt").read_bytes(), files.read)


@pytest.mark.parametrize("extension", [".safetensors", ".pdparams", ".ckpt", ".pth"])
def test_a_cut_file_is_to_be_downloaded_again(extension, tmp_path):
    content = {
        ".safetensors": OWN[".safetensors"][0][:-4],
        ".pdparams": b"\x80\x02}q\x00(X\x01",
        ".ckpt": b"\x0a\xff\x01\x0a\x01a",
        ".pth": saved(lambda buffer: torch.save(STATE, buffer, _use_new_zipfile_serialization=False))[:-4],
    }[extension]
    assert "download" in message(tmp_path, extension, content, files.read)


def test_a_record_is_looked_for_in_weights_only(tmp_path):
    assert "a page" in message(tmp_path, ".safetensors", FOREIGN["page"][0], recorded.read)


def test_the_command_says_so_once(tmp_path, capsys):
    (tmp_path / "a.pth").write_bytes(FOREIGN["page"][0])
    assert call_zoo("convert", tmp_path / "a.pth", "--out", tmp_path / "b.safetensors") == 2
    error = f"error: {tmp_path}/a.pth holds no weights: it is a page (HTML or XML), such as a login or an error of the "
    assert capsys.readouterr().err == f"{error}site; download it again, from its direct address\n"
    assert os.listdir(tmp_path) == ["a.pth"]


@pytest.mark.parametrize("extension", [".pth", ".ckpt"])
def test_an_archive_of_several_disks_is_refused(extension, tmp_path):
    """Its ZIP64 locator names two disks, for which zipfile has an exception even where it looks for an archive."""
    path = tmp_path / f"weights{extension}"
    locator = b"PK\x06\x07" + bytes(12) + (2).to_bytes(4, "little")
    path.write_bytes(b"PK\x03\x04" + bytes(60) + locator + b"PK\x05\x06" + b"\xff" * 16 + bytes(2))
    with pytest.raises(UserError, match=re.escape(str(path))):
        files.read(str(path))
