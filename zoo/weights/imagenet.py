"""ImageNet weights published by other projects, converted once to a canonical safetensors file.

plain         torchvision's ResNets (version 1), with their classifier
deep          ResNet-v1c, with three 3x3 convolutions as stem, from which mmsegmentation starts
vd            ResNet-vd, which also averages in its shortcuts, from which PaddleSeg starts
mobilenet_v2  torchvision's MobileNetV2 (version 1), with its classifier
"""

import gzip
import io
import os
import sys
import tarfile
import urllib.request
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import UserError
from zoo.data.parsing import parsing
from zoo.weights import files, layouts, pdparams

FILES: dict[str, dict[int | None, str]] = {  # variant -> depth of a ResNet -> file
    "plain": {
        18: "resnet18-f37072fd.pth",
        34: "resnet34-b627a593.pth",
        50: "resnet50-0676ba61.pth",
        101: "resnet101-63fe2227.pth",
        152: "resnet152-394f9c45.pth",
    },
    "deep": {18: "resnet18_v1c-b5776b93.pth", 50: "resnet50_v1c-2cccc1ad.pth", 101: "resnet101_v1c-e67eebb6.pth"},
    "vd": {50: "resnet50_vd_ssld_v2.tar.gz", 101: "resnet101_vd_ssld.tar.gz"},
    "mobilenet_v2": {None: "mobilenet_v2-b0353104.pth"},
}


class Source(NamedTuple):
    """Where the weights of one variant come from."""

    url: str  # folder of the files
    origin: str  # of names.ORIGINS
    description: str
    suffix: str  # of the canonical file's name
    network: str = "resnet{depth}"  # the start of that name


SOURCES = {
    "plain": Source("https://download.pytorch.org/models/", "torchvision", "torchvision IMAGENET1K_V1", "imagenet"),
    "deep": Source(
        "https://download.openmmlab.com/pretrain/third_party/", "mmseg", "open-mmlab resnet_v1c", "v1c_imagenet"
    ),
    "vd": Source("https://bj.bcebos.com/paddleseg/dygraph/", "paddleseg", "PaddleSeg resnet_vd_ssld", "vd_imagenet"),
    "mobilenet_v2": Source(
        "https://download.pytorch.org/models/",
        "torchvision",
        "torchvision IMAGENET1K_V1",
        "imagenet",
        "mobilenet_v2",
    ),
}
WITH_CLASSIFIER = ("plain", "mobilenet_v2")  # classifiers of the other two have no canonical name and are never used
RESNET_PREFIXES = ("conv", "bn", "layer")  # of the names of a ResNet without its classifier
TIMEOUT_S = 20
CHUNK_SIZE = 1 << 20
MAX_ARCHIVE_SIZE = 1 << 30  # bytes of an archive when decompressed; the published ones have less than a fifth of it


def variant_of(arch: Any) -> str:
    """Return the key in SOURCES for a model: its own, or that of its ResNet by the options `variant` and `stem`."""
    if hasattr(arch, "imagenet_variant"):
        return arch.imagenet_variant
    if getattr(arch, "variant", None) == "paddleseg":
        return "vd"
    return getattr(arch, "stem", "plain")


def find_weights(depth: int | None, folder: str = "weights", variant: str = "plain") -> tuple[str, str]:
    """Find the canonical file of a network; convert it from the published file, which is downloaded if needed.

    Args:
        depth: Number of layers of a ResNet; None for another network.
        folder: Folder of the canonical and of the published files.
        variant: Key in SOURCES.

    Returns:
        The path of the canonical file, and a description of where the weights come from.

    Raises:
        UserError: No such weights are published, the download fails, or a file is damaged.
    """
    if depth not in FILES[variant]:
        raise UserError(
            f"model.pretrained: ImageNet weights of this variant ({variant}) are published for "
            f"ResNet-{', -'.join(map(str, FILES[variant]))} only; give -o model.pretrained=null"
        )
    path = _canonical_path(depth, folder, variant)
    if not os.path.exists(path):
        published = os.path.join(folder, FILES[variant][depth])
        if not os.path.exists(published):
            _fetch(published, SOURCES[variant].url)
        _convert(published, path, variant)
    return path, files.read_metadata(path).get("origin", "a file placed by hand")


def depths_at_hand(folder: str, variant: str) -> list[int | None]:
    """Return the depths of a variant whose weights need no download."""

    def is_here(depth: int | None, name: str) -> bool:
        return any(map(os.path.exists, (os.path.join(folder, name), _canonical_path(depth, folder, variant))))

    return [depth for depth, name in FILES[variant].items() if is_here(depth, name)]


def add_backbone_prefix(tensors: Mapping[str, np.ndarray], model_names: Collection[str]) -> dict[str, np.ndarray]:
    """Return the tensors of a ResNet by the names of a model: with the prefix `backbone.` if the model uses it."""
    prefix = "backbone." if "backbone.conv1.weight" in model_names else ""
    return {name if name.startswith("fc.") else prefix + name: tensor for name, tensor in tensors.items()}


def download(url: str, path: str) -> None:
    """Download a URL to a file and show a progress line. Raises OSError."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response, open(path, "wb") as file:
        total, received = int(response.headers.get("Content-Length", 0)), 0
        for chunk in iter(lambda: response.read(CHUNK_SIZE), b""):
            file.write(chunk)
            received += len(chunk)
            of_total = f" of {total >> 20}" if total else ""
            print(f"\r{os.path.basename(url)}: {received >> 20}{of_total} MiB", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if total and received != total:
        raise OSError(f"the connection ended after {received} of {total} bytes")


def _canonical_path(depth: int | None, folder: str, variant: str) -> str:
    network = SOURCES[variant].network.format(depth=depth)
    return os.path.join(folder, f"{network}_{SOURCES[variant].suffix}.safetensors")


def _fetch(path: str, base_url: str) -> None:
    name = os.path.basename(path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with files.atomic_write(path) as temporary:
        try:
            download(base_url + name, temporary)
        except OSError as error:  # URLError and time-outs are OSErrors
            raise UserError(
                f"{name} cannot be downloaded ({error}). Place {base_url + name} as {path}, or start from random "
                "weights with -o model.pretrained=null"
            ) from None
        _check_hash(temporary, name, f"the download of {base_url + name} is discarded; try again")


def _convert(published: str, path: str, variant: str) -> None:
    name, source = os.path.basename(published), SOURCES[variant]
    remedy = f"remove it and download it again from {source.url + name}"
    digest = _check_hash(published, name, remedy)
    tensors = _read_archive(published, remedy) if variant == "vd" else files.read(published)[0]
    tensors = layouts.to_canonical(tensors, source.origin)
    if variant not in WITH_CLASSIFIER:
        tensors = {name: tensor for name, tensor in tensors.items() if name.startswith(RESNET_PREFIXES)}
    metadata = {"origin": source.description, "file": name, "sha256": digest, "url": source.url + name}
    try:
        files.write(path, tensors, metadata)
    except UserError:
        if not os.path.exists(path):  # another process may have converted it meanwhile
            raise


def _read_archive(path: str, remedy: str) -> dict[str, np.ndarray]:
    """Return the tensors of the single .pdparams in a .tar.gz."""
    with parsing(f"{path} is not a complete .tar.gz", remedy):
        with gzip.open(path) as compressed:
            content = compressed.read(MAX_ARCHIVE_SIZE + 1)  # to the end, which checks the checksum
        if len(content) > MAX_ARCHIVE_SIZE:
            raise UserError(f"{path} has more than {MAX_ARCHIVE_SIZE} bytes when decompressed; {remedy}")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            members = [member for member in archive if member.isfile() and member.name.endswith(files.PADDLE)]
            if len(members) != 1:
                raise UserError(f"{path} holds {len(members)} files *{files.PADDLE}, not one; {remedy}")
            file = archive.extractfile(members[0])
            assert file is not None, "it is a file"
            return pdparams.parse(io.BytesIO(file.read()), f"{members[0].name} in {path}")


def _check_hash(path: str, name: str, remedy: str) -> str:
    """Return the SHA-256 of a file. Raises UserError if it does not begin with the digits in the published name."""
    digest, (_, has_digits, digits) = files.sha256(path), name.split(".")[0].rpartition("-")
    if has_digits and not digest.startswith(digits):
        raise UserError(f"{path} is damaged: its SHA-256 begins with {digest[:8]}, not with {digits}; {remedy}")
    return digest
