"""Loaders that `python -m evidence peers` compares: this project's, bare loops, DALI, and those of other projects.

Other projects' code is imported from the user's own copies. Unlike this project, torchvision, mit-han-lab and
insightface normalize in the loader, and mmsegmentation reads the ids of masks as they are.
"""

import itertools
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evidence.peers import copies, sets
from zoo.bench import upstream
from zoo.bench.bare import loading as bare_loops
from zoo.data import loaders, order
from zoo.data.batch import IMAGENET_MEAN, IMAGENET_STD, collate
from zoo.data.datasets import cityscapes, faces, imagenet, kinetics
from zoo.data.errors import UserError
from zoo.data.stream import open_training, training_samples

WORKERS = 2  # processes that read, each with one thread
OURS, BARE, DALI = "this loader", "bare loop", "DALI"
ENDLESS = 1 << 40  # batches


class Loader(NamedTuple):
    """A loader on some files."""

    files: str  # kind of files, such as `JPEG frames`
    name: str  # name of the loader
    read: Callable[[int], Any]  # reads the batch of a number in this thread
    stream: Callable[[], Any]  # opens endless batches that WORKERS processes read


class MapStyle(NamedTuple):
    """A map-style dataset and a collate function, as torch's DataLoader takes them."""

    dataset: Any
    collate: Callable[[list], Any] | None = None


class Task:
    """Loaders of one kind of samples."""

    def __init__(self, batch: int, batches: tuple[int, int]):
        self.batch = batch  # samples
        self.batches = batches  # per pass, read by one thread and by worker processes
        self.loaders: list[Loader] = []  # by files, this project's first
        self.skipped: list[str] = []  # those that are missing, with the reason

    def add(self, name: str, files: str, build: Callable[[], Loader]) -> None:
        """Add a loader; one that is not installed is noted instead."""
        try:
            self.loaders.append(build())
        except UserError as error:
            self.skipped.append(f"{name} on {files}: {error}")

    def add_own(self, files: str, load: Callable[..., Any], settings: Any, dali: bool = True) -> None:
        """Add this project's loader, the bare loop if there is one for these files, and DALI."""
        split, _ = load(settings)
        self.loaders.append(ours(files, split, self.batch))
        if getattr(split, "prepared", None) is None:
            self.add_peer(BARE, files, lambda: MapStyle(_BareDataset(split)))
        if dali:
            self.add(DALI, files, lambda: ours(files, split, self.batch, "dali"))

    def add_peer(self, name: str, files: str, open_files: Callable[[], MapStyle]) -> None:
        """Add a loader of another project."""
        self.add(name, files, lambda: map_style(files, name, open_files(), self.batch))


def ours(files: str, split: Any, batch: int, loader: str = "reference") -> Loader:
    """Return this project's stream, with data.loader `reference` or `dali`.

    Raises:
        UserError: the loader is not installed.
    """
    loaders.require(loader)

    def read(number: int) -> None:
        samples, _ = training_samples(split, 0, range(number * batch, (number + 1) * batch), loader)
        collate(samples, batch)  # type: ignore[arg-type]  # nothing is pending any more

    def stream() -> Any:
        return open_training(split, 0, batch, 0, ENDLESS, num_workers=WORKERS, loader=loader)

    return Loader(files, OURS if loader == "reference" else DALI, read, stream)


def map_style(files: str, name: str, opened: MapStyle, batch: int) -> Loader:
    """Return a loader that torch's DataLoader runs, with the indices that this project's loader reads."""
    from torch.utils.data import DataLoader, default_collate

    size = len(opened.dataset)

    def indices(start: int) -> Iterator[int]:
        return (order.locate(0, size, position)[1] for position in itertools.count(start))

    def read(number: int) -> None:
        chosen = itertools.islice(indices(number * batch), batch)
        (opened.collate or default_collate)([opened.dataset[index] for index in chosen])

    def stream() -> Generator[Any, None, None]:
        forked: dict[str, Any] = {
            "num_workers": WORKERS,
            "multiprocessing_context": "fork",
        }  # with modules of the copies
        yield from DataLoader(opened.dataset, batch, sampler=indices(0), collate_fn=opened.collate, **forked)

    return Loader(files, name, read, stream)


class _BareDataset:
    """A bare loop as a map-style dataset. Each process has a reader, and so open files, of its own."""

    def __init__(self, split: Any):
        self.split, self.process = split, 0
        self.read: Callable[[int], Any] | None = None

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> Any:
        if self.process != os.getpid():
            self.process, self.read = os.getpid(), bare_loops.reader(self.split)
        assert self.read is not None
        return self.read(index)


def open_insightface(clones: str, root: str) -> MapStyle:
    """Open train.rec by insightface's recognition/arcface_torch: MXNet's RecordIO and image decoder."""
    if "bool" not in vars(np):
        vars(np)["bool"] = bool  # MXNet 1.9.1 looks for this alias of numpy before 1.24
    folder = os.path.join(clones, "insightface/recognition/arcface_torch")
    try:
        dataset = upstream.load(folder, "dataset").MXFaceDataset(root_dir=root, local_rank=0)
    except AttributeError as error:  # MXNet and numpy 2
        raise UserError(f"mxnet: {error}; it needs numpy 1") from error
    return MapStyle(dataset)


def open_nvidia(clones: str, settings: Any) -> MapStyle:
    """Open images with data set and collate function of DeepLearningExamples' get_pytorch_train_loader."""
    upstream.installed("torchvision")  # which looks for triton, the name of a folder of that project
    folder = os.path.join(clones, "DeepLearningExamples/PyTorch/Classification/ConvNets")
    dataloaders = upstream.load(folder, "image_classification.dataloaders")
    wrapper, _ = dataloaders.get_pytorch_train_loader(settings.root, settings.size, 1, 1000, False, workers=1)
    return MapStyle(wrapper.dataloader.dataset, wrapper.dataloader.collate_fn)


def open_torchvision(clones: str, settings: Any) -> MapStyle:
    """Open images with ImageFolder and the transforms of train.py of torchvision's references/classification."""
    presets = upstream.load(os.path.join(clones, "vision/references/classification"), "presets")
    folders = upstream.installed("torchvision.datasets").ImageFolder
    dataset = folders(os.path.join(settings.root, "train"), presets.ClassificationPresetTrain(crop_size=settings.size))
    return MapStyle(dataset)


def open_mit(clones: str, settings: Any) -> MapStyle:
    """Open frames by mit-han-lab/temporal-shift-module, with the transforms of its main.py for Kinetics."""
    folder = os.path.join(clones, "temporal-shift-module")
    transforms = upstream.load(folder, "ops.transforms")
    steps = [
        transforms.GroupMultiScaleCrop(settings.size, [1, 0.875, 0.75, 0.66]),
        transforms.GroupRandomHorizontalFlip(is_flow=False),
        transforms.Stack(roll=False),
        transforms.ToTorchFormatTensor(div=True),
        transforms.GroupNormalize(list(IMAGENET_MEAN), list(IMAGENET_STD)),
    ]
    dataset = upstream.load(folder, "ops.dataset").TSNDataSet(
        settings.root,
        os.path.join(settings.root, "train.list"),
        num_segments=settings.segments,
        image_tmpl=settings.frame_template,
        transform=upstream.installed("torchvision.transforms").Compose(steps),
    )
    return MapStyle(dataset)


def open_mmsegmentation(settings: Any) -> MapStyle:
    """Open scenes with the training pipeline of mmsegmentation's Cityscapes configurations."""
    copies.replace_operators(object)  # mmseg.utils imports one that loading does not use
    datasets = upstream.installed("mmseg.datasets")
    upstream.installed("mmengine.registry").init_default_scope("mmseg")
    scale = {"scale": settings.base_size[::-1], "ratio_range": settings.scale, "keep_ratio": True}
    pipeline = [
        {"type": "LoadImageFromFile"},
        {"type": "LoadAnnotations"},
        {"type": "RandomResize", **scale},
        {"type": "RandomCrop", "crop_size": settings.crop, "cat_max_ratio": settings.max_share},
        {"type": "RandomFlip", "prob": 0.5},
        {"type": "PhotoMetricDistortion"},
        {"type": "PackSegInputs"},
    ]
    dataset = datasets.CityscapesDataset(
        data_root=settings.root,
        data_prefix={"img_path": "leftImg8bit/train", "seg_map_path": "gtFine/train"},
        seg_map_suffix="_gtFine_labelIds.png",
        pipeline=pipeline,
    )
    return MapStyle(dataset, upstream.installed("mmengine.dataset").pseudo_collate)


def _imagenet(folder: str, clones: str) -> Task:
    root = sets.complete(os.path.join(folder, "images"), sets.images)
    settings = imagenet.Settings(root=root, reduce=False, threads=1)
    files, task = "JPEG images", Task(16, (8, 24))
    task.add_own(files, imagenet.load, settings)
    task.add_peer("NVIDIA", files, lambda: open_nvidia(clones, settings))
    task.add_peer("torchvision", files, lambda: open_torchvision(clones, settings))
    return task


def _clips(folder: str, clones: str) -> Task:
    roots = {"H.264 clips": sets.complete(os.path.join(folder, "clips"), sets.clips)}
    fill = partial(sets.frames, clips_folder=roots["H.264 clips"])
    roots["JPEG frames"] = sets.complete(os.path.join(folder, "frames"), fill)
    for files, option in (("prepared clips", "--reencode"), ("prepared frames", "--frames")):
        roots[files] = _prepared(folder, files, "k400", roots["H.264 clips"], option)
    task = Task(4, (3, 8))
    for files, root in roots.items():
        settings = kinetics.Settings(root=root, antialias=True, threads=1)
        task.add_own(files, kinetics.load, settings, dali=files.endswith("frames"))
        if files == "JPEG frames":
            task.add_peer("mit-han-lab", files, partial(open_mit, clones, settings))
    return task


def _prepared(folder: str, files: str, kind: str, source: str, option: str) -> str:
    """Return the folder of a prepared set, which is made at first use."""
    root = os.path.join(folder, files.replace(" ", "-"))
    if not os.path.exists(os.path.join(root, "manifest.safetensors")):
        print(f"making {root} ...", flush=True)
        sets.prepare(root, kind, source, option)
    return root


def _cityscapes(folder: str, _: str) -> Task:
    root = sets.complete(os.path.join(folder, "scenes"), sets.scenes)
    task = Task(2, (5, 8))
    settings = cityscapes.Settings(root=root, base_size=(1024, 2048), threads=1)
    task.add_own("Cityscapes pairs", cityscapes.load, settings, dali=False)  # with distortion, DALI is not used
    task.add_peer("mmsegmentation", "Cityscapes pairs", lambda: open_mmsegmentation(settings))
    raw = _prepared(folder, "raw scenes", "cityscapes", root, "--raw")
    task.add_own("raw scenes", cityscapes.load, replace(settings, root=raw), dali=False)
    return task


def _faces(folder: str, clones: str) -> Task:
    root = os.path.join(sets.complete(os.path.join(folder, "faces"), sets.faces), "pack")
    files, task = "faces in .rec", Task(64, (16, 64))
    task.add_own(files, faces.load, faces.Settings(root=root, threads=1))
    task.add_peer("insightface", files, lambda: open_insightface(clones, root))
    return task


TASKS = {"imagenet": _imagenet, "clips": _clips, "cityscapes": _cityscapes, "faces": _faces}
