"""Published weights by name: the table in registry.yaml, and the shared folder that they are downloaded to.

It is `weights` in $ZOO_HOME (zoo/data/host.py), or the folder that `weights_dir` of a recipe names:

<folder>/resnet50-0676ba61.pth                     as published; downloaded, or placed there by hand
                             .sha256               whole SHA-256 of what was got, which later uses compare
<folder>/resnet50.tv_in1k_v1/model.safetensors     converted
                             checkpoint.json       recipe that evaluates it, SHA-256; backbones have .sha256 alone
"""

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from zoo.config import budgeted_yaml, loader
from zoo.config.loader import Entry
from zoo.data import durable
from zoo.data.errors import UserError, similar_name
from zoo.data.formats import class_names
from zoo.data.formats.masks import TRAIN_CLASSES
from zoo.data.host import home
from zoo.weights import convert, files, layouts, pdparams, recorded
from zoo.weights.download import check_file, download

TABLE = Path(__file__).with_suffix(".yaml")
MODEL = "model.safetensors"
RESNET_PREFIXES = ("conv", "bn", "layer")  # of the names of a ResNet without its classifier
ARCHIVE = ".tar.gz"


class Published(NamedTuple):
    """A file of weights that another project has published; registry.yaml describes the fields.

    Attributes:
        file: relative to each of `hosts`.
        depth: of a ResNet; None for another network.
    """

    name: str
    title: str
    hosts: Sequence[str]
    file: str
    origin: str
    protocol: str
    licenses: Mapping[str, str]
    depth: int | None = None
    recipe: str | None = None
    variant: str | None = None
    mib: float | None = None
    metric: float | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    data: Mapping[str, Any] = MappingProxyType({})

    @property
    def urls(self) -> list[str]:
        return [host + self.file for host in self.hosts]

    @property
    def sha256(self) -> str:
        """The published first digits of the SHA-256; "" if there are none."""
        found = re.search(r"-([0-9a-f]{8})\.", self.file)
        return found[1] if found else ""

    @property
    def model(self) -> str:
        return self.name.partition(".")[0]


@cache
def table() -> dict[str, Published]:
    found = {}
    for publisher in budgeted_yaml.safe_load(TABLE.read_text(encoding="utf-8")).values():
        for name, entry in publisher.pop("files").items():
            found[name] = Published(name=name, **{**publisher, **entry})
    return found


def find(name: str, is_backbone: bool = False) -> Published:
    """Return the published weights of a name. Raises UserError if there are none, or of a backbone unless it may be."""
    if name in table():
        if not (table()[name].recipe or is_backbone):
            raise UserError(f"{name} is a backbone: models that have it start from it with model.pretrained=imagenet")
        return table()[name]
    own = [other for other, entry in table().items() if entry.model == name]
    hint = f"; there are {', '.join(own)}" if own else similar_name(name, table()) or "; zoo weights list shows all"
    raise UserError(f"there are no published weights {name}{hint}")


def paths(entry: Published, folder: str | None = None) -> tuple[str, str]:
    """Return the paths of the published file, where it may be placed, and of the converted one."""
    folder = folder or home("weights")
    return os.path.join(folder, os.path.basename(entry.file)), os.path.join(folder, entry.name, MODEL)


def is_at_hand(entry: Published, folder: str | None = None) -> bool:
    return any(map(os.path.exists, paths(entry, folder)))


def prepare(entry: Published, folder: str | None = None) -> str:
    """Return the folder of converted weights, which are downloaded and converted if needed."""
    published, converted = paths(entry, folder)
    path, root = os.path.dirname(converted), os.path.dirname(published)
    try:
        if not os.path.exists(converted):
            os.makedirs(root, exist_ok=True)
            with open(os.path.join(root, ".lock"), "w") as lock:
                durable.lock(lock, wait=True)  # of several processes, one does it
                _make(entry, published, path)
    except OSError as error:
        reason = f"{error.strerror}; make room, or set ZOO_HOME to another folder"
        raise UserError(f"{path} cannot be written: {reason}") from None
    return path


def _make(entry: Published, published: str, path: str) -> None:
    if not os.path.exists(path):
        download(entry.urls, published, entry.sha256, entry.mib)
        digest = _check(entry, published)
        with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as temporary:
            os.mkdir(f"{temporary}/made")
            _convert(entry, published, digest, f"{temporary}/made")
            os.rename(f"{temporary}/made", path)
        files.record_digest(published, digest)


def _check(entry: Published, published: str) -> str:
    """Return the SHA-256 of a published file. Raises UserError if it is not the published one, or that of before."""
    try:
        digest = check_file(published, entry.sha256, entry.mib)
        if (before := files.recorded_digest(published)) not in (None, digest):
            raise files.DamagedFile(f"its SHA-256 is {digest[:12]}... and was {str(before)[:12]}... at first")
    except files.DamagedFile as error:
        record = f"{published}{files.DIGEST_SUFFIX}"
        both = f" and {record}" if os.path.exists(record) else ""
        remedy = f"remove it{both}, and download it again from {entry.urls[0]}"
        raise UserError(f"{published} is damaged: {error}; {remedy}") from None
    return digest


def _convert(entry: Published, published: str, digest: str, folder: str) -> None:
    """Write the converted weights, and the record of those with a recipe, to a folder."""
    out = os.path.join(folder, MODEL)
    origin = {"weights": entry.name, "url": entry.urls[0], "licenses": json.dumps(dict(entry.licenses))}
    if entry.recipe is None:
        remedy = f"remove it, and download it again from {entry.urls[0]}"
        archive = published.endswith(ARCHIVE)
        tensors = pdparams.read_archive(published, remedy) if archive else files.read(published)[0]
        tensors = layouts.to_canonical(tensors, entry.origin)
        if entry.variant != "mobilenet_v2":
            tensors = {name: tensor for name, tensor in tensors.items() if name.startswith(RESNET_PREFIXES)}
        files.write(out, tensors, {"origin": entry.title, "file": entry.file, "sha256": digest, **origin})
        files.record_digest(out, files.sha256(out))
        return
    base = loader.read(str(loader.SHIPPED_RECIPES / f"{entry.recipe}.yaml"))
    pairs = [f"{key}={json.dumps(value)}" for key, value in {"depth": entry.depth, **entry.options}.items()]
    wanted = convert.Wanted(base["model.name"].value, entry.origin, override=pairs)
    convert.convert(published, out, wanted, lambda _: None, origin)
    found = recorded.read(out)
    own = {f"model.{key}": value for key, value in found.arch.items() if key != "non_local" or value}
    own |= {f"data.{key}": value for key, value in {**found.data, **entry.data}.items()}
    own |= {"model.pretrained": None, "target": None, "upstream": None}
    recipe = loader.merge(base, {key: Entry(value, entry.name) for key, value in own.items()})
    recipe = {key: recipe[key] for key in sorted(recipe, key=lambda key: ("." in key, key))}
    dataset = recipe["data.name"].value
    classes = list(TRAIN_CLASSES) if dataset == "cityscapes" else []
    names = class_names.official(dataset, found.arch.get("num_classes", 0))
    record = {"step": 0, "classes": classes, "names": names, "recipe": loader.render(recipe)}
    record |= {"files": {MODEL: os.path.getsize(out)}}
    with open(os.path.join(folder, files.RECORD), "w", encoding="utf-8") as file:
        json.dump({**record, files.DIGEST_KEY: {MODEL: files.sha256(out)}}, file, indent=1)
