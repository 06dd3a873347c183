"""The tasks: files, settings of the recipe, and the loaders that are compared on them."""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from zoo.bench.peers import (
    arcface_torch,
    contender,
    deep_learning_examples,
    mmsegmentation,
    sets,
    temporal_shift,
    torchvision_references,
)
from zoo.bench.peers.contender import Contender, MapStyle
from zoo.data.datasets import cityscapes, faces, imagenet, kinetics
from zoo.data.errors import UserError


class Task(NamedTuple):
    """Loaders of one kind of samples.

    Attributes:
        contenders: by files, this project's loader first.
        batch: samples of a batch.
        batches: of a pass, read by one thread and by worker processes.
        skipped: loaders that are missing, with the reason.
    """

    contenders: list[Contender]
    batch: int
    batches: tuple[int, int]
    skipped: list[str]


class Field:
    """The loaders of a task, as they are added."""

    def __init__(self, batch: int):
        self.batch = batch
        self.contenders: list[Contender] = []
        self.skipped: list[str] = []

    def add(self, name: str, files: str, build: Callable[[], Contender]) -> None:
        """Add a loader; one that is not installed is noted instead."""
        try:
            self.contenders.append(build())
        except UserError as error:
            self.skipped.append(f"{name} on {files}: {error}")

    def add_own(self, files: str, load: Callable[..., Any], settings: Any, dali: bool = True) -> None:
        """Add this project's loader, the bare loop if there is one for these files, and DALI."""
        split, _ = load(settings)
        self.contenders.append(contender.ours(files, split, self.batch))
        if getattr(split, "prepared", None) is None:
            self.contenders.append(contender.bare(files, split, self.batch))
        if dali:
            self.add(contender.DALI, files, lambda: contender.ours(files, split, self.batch, "dali"))

    def add_peer(self, name: str, files: str, open_files: Callable[[], MapStyle]) -> None:
        """Add a loader of another project."""
        self.add(name, files, lambda: contender.map_style(files, name, open_files(), self.batch))


def _imagenet(folder: str, clones: str) -> Task:
    root = sets.complete(os.path.join(folder, "images"), sets.images)
    settings = imagenet.Settings(root=root, reduce=False, threads=1)
    files, field = "JPEG images", Field(batch=16)
    field.add_own(files, imagenet.load, settings)
    for peer in (deep_learning_examples, torchvision_references):
        field.add_peer(peer.NAME, files, lambda peer=peer: peer.open_images(clones, settings))  # type: ignore[misc]
    return Task(field.contenders, field.batch, (8, 24), field.skipped)


def _clips(folder: str, clones: str) -> Task:
    clips = sets.complete(os.path.join(folder, "clips"), sets.clips)
    frames = sets.complete(os.path.join(folder, "frames"), lambda out: sets.frames(out, clips))
    roots = {"H.264 clips": clips, "JPEG frames": frames}
    for files, option in (("prepared clips", "--reencode"), ("prepared frames", "--frames")):
        out = os.path.join(folder, files.replace(" ", "-"))
        if not os.path.exists(os.path.join(out, "manifest.safetensors")):
            print(f"making {out} ...", flush=True)
            sets.prepare(out, "k400", clips, option)
        roots[files] = out
    field = Field(batch=4)
    for files, root in roots.items():
        settings = kinetics.Settings(root=root, antialias=True, threads=1)
        field.add_own(files, kinetics.load, settings, dali=files.endswith("frames"))
        if root == frames:
            field.add_peer(
                temporal_shift.NAME,
                files,
                lambda settings=settings: temporal_shift.open_frames(clones, settings),  # type: ignore[misc]
            )
    return Task(field.contenders, field.batch, (3, 8), field.skipped)


def _cityscapes(folder: str, _: str) -> Task:
    root = sets.complete(os.path.join(folder, "scenes"), sets.scenes)
    field = Field(batch=2)
    for files, photometric in (("Cityscapes pairs", True), ("the same without distortion", False)):
        settings = cityscapes.Settings(root=root, base_size=(1024, 2048), photometric=photometric, threads=1)
        field.add_own(files, cityscapes.load, settings, dali=not photometric)  # with distortion, DALI is not used
        field.add_peer(
            mmsegmentation.NAME,
            files,
            lambda settings=settings: mmsegmentation.open_scenes(settings),  # type: ignore[misc]
        )
    return Task(field.contenders, field.batch, (5, 8), field.skipped)


def _faces(folder: str, clones: str) -> Task:
    root = os.path.join(sets.complete(os.path.join(folder, "faces"), sets.faces), "pack")
    files, field = "faces in .rec", Field(batch=64)
    field.add_own(files, faces.load, faces.Settings(root=root, threads=1))
    field.add_peer(arcface_torch.NAME, files, lambda: arcface_torch.open_faces(clones, root))
    return Task(field.contenders, field.batch, (16, 64), field.skipped)


TASKS = {"imagenet": _imagenet, "clips": _clips, "cityscapes": _cityscapes, "faces": _faces}
