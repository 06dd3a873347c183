"""Weights trained on ImageNet by other projects, kept as a canonical safetensors file.

plain   torchvision's ResNets (version 1), with their classifier
deep    ResNet-v1c, with three 3x3 convolutions in front: those that mmsegmentation starts from
vd      ResNet-vd, whose shortcuts take means too: those that PaddleSeg starts from
"""

import gzip
import io
import os
import sys
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from data.errors import UserError
from zoo.weights import files, layouts

FILES = {
    "plain": {
        18: "resnet18-f37072fd.pth",
        34: "resnet34-b627a593.pth",
        50: "resnet50-0676ba61.pth",
        101: "resnet101-63fe2227.pth",
        152: "resnet152-394f9c45.pth",
    },
    "deep": {18: "resnet18_v1c-b5776b93.pth", 50: "resnet50_v1c-2cccc1ad.pth", 101: "resnet101_v1c-e67eebb6.pth"},
    "vd": {50: "resnet50_vd_ssld_v2.tar.gz", 101: "resnet101_vd_ssld.tar.gz"},
}


class Source(NamedTuple):
    """Of one kind of files."""

    url: str
    names: str  # an origin of names.py
    origin: str  # in words
    ending: str  # of the canonical file's name


SOURCES = {
    "plain": Source("https://download.pytorch.org/models/", "torchvision", "torchvision IMAGENET1K_V1", "imagenet"),
    "deep": Source(
        "https://download.openmmlab.com/pretrain/third_party/", "mmseg", "open-mmlab resnet_v1c", "v1c_imagenet"
    ),
    "vd": Source("https://bj.bcebos.com/paddleseg/dygraph/", "paddleseg", "PaddleSeg resnet_vd_ssld", "vd_imagenet"),
}
RESNET = ("conv", "bn", "layer")  # how the names of a ResNet without its classifier begin
TIMEOUT_S = 20
BLOCK = 1 << 20


def kind(arch: Any) -> str:
    """The kind of files for the ResNet in a net, by the options `variant` and `stem` if its Arch has them."""
    if getattr(arch, "variant", None) == "paddleseg":
        return "vd"
    return getattr(arch, "stem", "plain")


def find(depth: int, folder: str = "weights", kind: str = "plain") -> tuple[str, str]:
    """The path of the canonical file of ResNet-<depth>, and in words where the weights come from.

    Looks for it in the folder, else for the published file there, else fetches that one; converts it once.
    Raises UserError if it can be had nowhere or its hash is wrong.
    """
    if depth not in FILES[kind]:
        raise UserError(
            f"model.pretrained: there are ImageNet weights of this kind ({kind}) for "
            f"ResNet-{', -'.join(map(str, FILES[kind]))} alone; give -o model.pretrained=null"
        )
    path = os.path.join(folder, f"resnet{depth}_{SOURCES[kind].ending}.safetensors")
    if not os.path.exists(path):
        source = os.path.join(folder, FILES[kind][depth])
        if not os.path.exists(source):
            _fetch(source, SOURCES[kind].url)
        _convert(source, path, kind)
    return path, files.metadata(path).get("origin", "a file device_batch by hand")


def named(tensors: Mapping[str, np.ndarray], net: Collection[str]) -> dict[str, np.ndarray]:
    """The tensors by the names of a net: below `backbone.` if the net has its ResNet there."""
    prefix = "backbone." if "backbone.conv1.weight" in net else ""
    return {name if name.startswith("fc.") else prefix + name: tensor for name, tensor in tensors.items()}


def download(url: str, path: str) -> None:
    """Fetch a URL into a file, with a progress line. Raises OSError."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer, open(path, "wb") as file:
        total, done = int(answer.headers.get("Content-Length", 0)), 0
        for block in iter(lambda: answer.read(BLOCK), b""):
            file.write(block)
            done += len(block)
            of = f" of {total >> 20}" if total else ""
            print(f"\r{os.path.basename(url)}: {done >> 20}{of} MiB", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if total and done != total:
        raise OSError(f"the connection ended after {done} of {total} bytes")


def _fetch(path: str, address: str) -> None:
    name = os.path.basename(path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with files.aside(path) as temporary:
        try:
            download(address + name, temporary)
        except OSError as error:  # URLError and time-outs are OSErrors
            raise UserError(
                f"{name} cannot be fetched ({error}). Place {address + name} as {path}, or start from random weights "
                "with -o model.pretrained=null"
            ) from None
        _check(temporary, name, f"the download of {address + name} is not kept; try again")


def _convert(source: str, path: str, kind: str) -> None:
    name, (address, origin, words, _) = os.path.basename(source), SOURCES[kind]
    remedy = f"remove it and fetch it again from {address + name}"
    digest = _check(source, name, remedy)
    tensors = layouts.to_canonical(_packed(source, remedy) if kind == "vd" else files.read(source)[0], origin)
    if kind != "plain":  # their classifiers are of no use, and not known by name
        tensors = {name: tensor for name, tensor in tensors.items() if name.startswith(RESNET)}
    try:
        files.write(path, tensors, {"origin": words, "file": name, "sha256": digest, "url": address + name})
    except UserError:
        if not os.path.exists(path):  # another process may have converted it meanwhile
            raise


def _packed(path: str, remedy: str) -> dict[str, np.ndarray]:
    """The tensors of the one .pdparams in a .tar.gz."""
    try:
        with gzip.open(path) as whole:
            content = io.BytesIO(whole.read())  # to its end, where the checksum stands
        with tarfile.open(fileobj=content, mode="r:") as archive, tempfile.TemporaryDirectory() as folder:
            members = [member for member in archive if member.isfile() and member.name.endswith(files.PADDLE)]
            if len(members) != 1:
                raise UserError(f"{path} holds {len(members)} files *{files.PADDLE}, not one; {remedy}")
            unpacked = os.path.join(folder, "model" + files.PADDLE)
            with open(unpacked, "wb") as file:
                file.write(archive.extractfile(members[0]).read())
            try:
                return files.read(unpacked)[0]
            except UserError as error:
                raise UserError(str(error).replace(unpacked, f"{members[0].name} in {path}")) from None
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UserError(f"{path} is no whole .tar.gz ({error}); {remedy}") from None


def _check(path: str, name: str, remedy: str) -> str:
    """The SHA-256 of a file. Raises UserError unless it begins with the eight digits in its published name, if any."""
    digest, wanted = files.sha256(path), name.split(".")[0].rpartition("-")
    if wanted[1] and not digest.startswith(wanted[2]):
        raise UserError(f"{path} is damaged: its SHA-256 begins with {digest[:8]}, not with {wanted[2]}; {remedy}")
    return digest
