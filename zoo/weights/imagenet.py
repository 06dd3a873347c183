"""Weights trained on ImageNet by torchvision (version 1 of its ResNets), kept as a canonical safetensors file."""
import os
import sys
import urllib.request
from typing import Tuple

from data.errors import UserError
from zoo.weights import files, layouts

FILES = {18: "resnet18-f37072fd.pth", 34: "resnet34-b627a593.pth", 50: "resnet50-0676ba61.pth",
         101: "resnet101-63fe2227.pth", 152: "resnet152-394f9c45.pth"}
URL = "https://download.pytorch.org/models/"
ORIGIN = "torchvision IMAGENET1K_V1"
TIMEOUT_S = 20
BLOCK = 1 << 20


def find(depth: int, folder: str = "weights") -> Tuple[str, str]:
    """The path of the canonical file of ResNet-<depth>, and in words where the weights come from.

    Looks for it in the folder, else for torchvision's file there, else fetches that one; converts it once.
    Raises UserError if it can be had nowhere or its hash is wrong.
    """
    if depth not in FILES:
        raise UserError(f"model.pretrained: there are ImageNet weights for ResNet-{', -'.join(map(str, FILES))} alone; "
                        "give -o model.pretrained=null")
    path = os.path.join(folder, f"resnet{depth}_imagenet.safetensors")
    if not os.path.exists(path):
        source = os.path.join(folder, FILES[depth])
        if not os.path.exists(source):
            _fetch(source)
        _convert(source, path)
    return path, files.metadata(path).get("origin", "a file placed by hand")


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


def _fetch(path: str) -> None:
    name = os.path.basename(path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with files.aside(path) as temporary:
        try:
            download(URL + name, temporary)
        except OSError as error:  # URLError and time-outs are OSErrors
            raise UserError(
                f"{name} cannot be fetched ({error}). Place {URL + name} as {path}, or start from random weights with "
                "-o model.pretrained=null") from None
        _check(temporary, name, f"the download of {URL + name} is not kept; try again")


def _convert(source: str, path: str) -> None:
    name = os.path.basename(source)
    digest = _check(source, name, f"remove it and fetch it again from {URL + name}")
    tensors, _ = files.read(source)
    origin = {"origin": ORIGIN, "file": name, "sha256": digest, "url": URL + name}
    try:
        files.write(path, layouts.to_canonical(tensors, "torchvision"), origin)
    except UserError:
        if not os.path.exists(path):  # another process may have converted it meanwhile
            raise


def _check(path: str, name: str, remedy: str) -> str:
    """The SHA-256 of a file. Raises UserError unless it begins with the eight digits in torchvision's file name."""
    digest, wanted = files.sha256(path), name.rsplit("-", 1)[1].split(".")[0]
    if not digest.startswith(wanted):
        raise UserError(f"{path} is damaged: its SHA-256 begins with {digest[:8]}, not with {wanted}; {remedy}")
    return digest
