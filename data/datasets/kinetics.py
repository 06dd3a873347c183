"""Kinetics-400 and every set of labelled clips shaped like it: videos or frame folders, by list or by folder."""

import hashlib
import os
from dataclasses import dataclass
from typing import Literal

import numpy as np

from data.batch import IMAGENET_MEAN, IMAGENET_STD, LABEL, Field
from data.errors import UserError
from data.formats import video
from data.formats.lists import LabeledPath, class_folders, class_names_from_folders, read_folders, read_list, read_names
from data.stream import LoaderSettings
from data.transforms import clips, frame_sampling


@dataclass(frozen=True)
class Settings(LoaderSettings):
    """The `data:` section of a recipe on Kinetics-400 or a set shaped like it."""

    root: str = "datasets/k400"
    train_list: str | None = None  # default <root>/train.list; without it, folders <root>/train/<class>/
    val_list: str | None = None  # default <root>/val.list; without it, folders <root>/val/<class>/
    names: str | None = None  # class names, one per line; default <root>/classes.txt if there
    suffix: str = ""  # put behind every path of the lists (".mp4")
    frame_template: str = "img_{:05d}.jpg"  # for lists of frame folders
    first_frame: int = 1
    min_frames: int = 3  # a shorter clip is a bad sample
    segments: int = 8  # T, frames per clip
    size: int = 224  # pixels, square
    sampling: Literal["uniform", "dense"] = "uniform"
    scales: tuple[float, ...] = (1.0, 0.875, 0.75, 0.66)  # of the multi-scale crop
    flip: bool = True  # mirror half of the training clips
    flip_pairs: tuple[tuple[int, int], ...] = ()  # labels that change places when a clip is mirrored
    eval_sampling: Literal["val", "test", "twice", "dense", "dense_val"] = "val"
    eval_crops: Literal[1, 3, 10] = 1
    eval_size: int | None = None  # default size; 256 with 3 crops is the paper's full-resolution test
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def __post_init__(self):
        super().__post_init__()
        for key in ("segments", "size", "min_frames"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key}: must be at least 1")
        if min(self.std) <= 0:
            raise ValueError("std: must be above 0")
        if not self.scales or any(not 0 < scale <= 1 for scale in self.scales):
            raise ValueError("scales: every scale of the multi-scale crop lies in (0, 1]")
        if "dense" in self.sampling + self.eval_sampling and self.segments > frame_sampling.DENSE_SPAN:
            raise ValueError(f"segments: dense sampling spreads at most {frame_sampling.DENSE_SPAN} frames")
        if not self.short_side >= 16:
            raise ValueError("size: must be at least 14 pixels")
        if self.eval_size is not None and not 1 <= self.eval_size <= self.short_side:
            raise ValueError(f"eval_size: at most {self.short_side}, to which the shorter side is resized first")
        try:
            if self.frame_template.format(1) == self.frame_template.format(2):
                raise ValueError
        except (ValueError, IndexError, KeyError):
            raise ValueError("frame_template: needs one place for the number, such as img_{:05d}.jpg") from None

    @property
    def short_side(self) -> int:
        """Test clips are resized to this (256 for 224) before they are cropped."""
        return self.size * 256 // 224


class ClipSplit:
    """One split. Stateless between samples, so threads and processes may share or copy it.

    fields: `video` uint8 (T, size, size, 3) or, for `views` > 1 test views, (views, T, eval_size, eval_size, 3);
    `label` int64 ().
    """

    notes = ()

    def __init__(self, settings: Settings, clips: list[LabeledPath], classes: tuple[str, ...], training: bool):
        self.settings, self.clips, self.classes, self.training = settings, clips, classes, training
        clips_per_sample = {"twice": 2, "dense": frame_sampling.DENSE_CLIPS}.get(settings.eval_sampling, 1)
        self.views = 1 if training else clips_per_sample * settings.eval_crops
        self.size = settings.size if training else settings.eval_size or settings.size
        shape: tuple[int, ...] = (settings.segments, self.size, self.size, 3)
        if self.views > 1:
            shape = (self.views,) + shape
        self.fields = (Field("video", shape, "uint8", settings.mean, settings.std), LABEL)

    def __len__(self) -> int:
        return len(self.clips)

    def name(self, index: int) -> str:
        return self.clips[index].path

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Decode, crop and (in training) augment one clip. Raises BadSample."""
        clip = self.clips[index]
        video, label = (self._train if self.training else self._eval)(clip, rng)
        return {"video": np.ascontiguousarray(video), "label": np.asarray(label, np.int64)}

    def describe_files(self) -> list[str]:
        """One line per sample, `path label size`, the size in bytes (frames for a folder, -1 if missing)."""
        lines = []
        for clip in self.clips:
            size = clip.frames
            if size is None:
                path = os.path.join(self.settings.root, clip.path)
                size = os.stat(path).st_size if os.path.exists(path) else -1
            lines.append(f"{clip.path} {clip.label} {size}")
        return lines

    def _train(self, clip: LabeledPath, rng: np.random.Generator):
        s = self.settings
        pick = frame_sampling.dense_train if s.sampling == "dense" else frame_sampling.uniform_train
        frames = self._read(clip, lambda n: pick(n, s.segments, rng))
        box = clips.multi_scale_box(frames.shape[2], frames.shape[1], s.size, s.scales, rng)
        frames = clips.resize(clips.crop(frames, box), s.size, s.size)
        label = clip.label
        if s.flip and rng.random() < 0.5:
            frames = clips.flip(frames)
            for a, b in s.flip_pairs:
                if clip.label in (a, b):
                    label = a + b - clip.label
        return frames, label

    def _eval(self, clip: LabeledPath, rng: np.random.Generator):
        s = self.settings
        pick = {
            "val": frame_sampling.uniform_val,
            "test": frame_sampling.uniform_test,
            "twice": frame_sampling.twice_test,
            "dense": frame_sampling.dense_test,
            "dense_val": lambda n, t: frame_sampling.dense_train(n, t, rng),
        }[s.eval_sampling]
        frames = clips.resize_short(self._read(clip, lambda n: pick(n, s.segments)), s.short_side)
        # Crop-major, then clip, then time: frames of different crops must never meet in a temporal shift.
        views = [view.reshape(-1, s.segments, *view.shape[1:]) for view in clips.views(frames, self.size, s.eval_crops)]
        stacked = np.concatenate(views)
        return (stacked if self.views > 1 else stacked[0]), clip.label

    def _read(self, clip: LabeledPath, pick: video.FrameSampler) -> np.ndarray:
        path = os.path.join(self.settings.root, clip.path)
        if clip.frames is None:
            return video.video_frames(path, pick, self.settings.min_frames)
        return video.image_frames(
            path, self.settings.frame_template, self.settings.first_frame, clip.frames, pick, self.settings.min_frames
        )


def load(settings: Settings) -> tuple[ClipSplit, ClipSplit]:
    """The training and the validation split. Raises UserError naming the folder or list and the remedy."""
    root = settings.root
    if not os.path.isdir(root):
        raise UserError(
            f"no data: there is no folder {root} (looked in {os.path.abspath(root)})\n"
            "  put your clips there or point to them with -o data.root=FOLDER; the folder holds either\n"
            "  train.list and val.list (lines `relative/path.mp4 label` or `relative/folder num_frames label`)\n"
            "  or train/<class>/*.mp4 and val/<class>/*.mp4\n"
            "  no data at hand? the demo makes its own: python train.py -c configs/tsm_demo.yaml --amp"
        )
    names = settings.names or _if_there(os.path.join(root, "classes.txt"))
    classes = read_names(names) if names else ()
    if not classes and not any(_list_of(settings, split) for split in ("train", "val")):
        # Raw Kinetics names in ASCII order are the official label order.
        classes = tuple(sorted(set(class_folders(root, "train")) | set(class_folders(root, "val"))))
    splits = {split: _clips(settings, split, classes) for split in ("train", "val")}
    if not classes:
        classes = class_names_from_folders(splits["train"] + splits["val"])
    for split, listed in splits.items():
        for clip in listed:
            if clip.label >= len(classes):
                raise UserError(
                    f"{_list_of(settings, split)}: {clip.path} has label {clip.label}, but {names} names "
                    f"only {len(classes)} classes (0 to {len(classes) - 1})"
                )
    for a, b in settings.flip_pairs:
        if max(a, b) >= len(classes):
            raise UserError(f"data.flip_pairs: ({a}, {b}) is outside the {len(classes)} classes of {root}")
    return ClipSplit(settings, splits["train"], classes, True), ClipSplit(settings, splits["val"], classes, False)


def checksum(train: ClipSplit, val: ClipSplit) -> str:
    """md5 over path, label and size of every sample of both splits: changes when any file is replaced or missing."""
    digest = hashlib.md5()
    for split in (train, val):
        digest.update("\n".join(split.describe_files() + ["", ""]).encode())
    return digest.hexdigest()


def _list_of(settings: Settings, split: str) -> str | None:
    return getattr(settings, f"{split}_list") or _if_there(os.path.join(settings.root, f"{split}.list"))


def _if_there(path: str) -> str | None:
    return path if os.path.isfile(path) else None


def _clips(settings: Settings, split: str, classes: tuple[str, ...]) -> list[LabeledPath]:
    path = _list_of(settings, split)
    if path is None:
        clips = read_folders(settings.root, split, classes)
        if not clips:
            raise UserError(
                f"{settings.root}: neither {split}.list nor a video in {split}/<class>/ is there; "
                f"name a list with -o data.{split}_list=FILE"
            )
        return clips
    clips = read_list(path, settings.suffix)
    head = [os.path.join(settings.root, clip.path) for clip in clips[:20]]
    # A three-column list of paths that are files is a video list that also tells the lengths.
    if clips[0].frames is not None and any(os.path.isfile(file) for file in head):
        clips = [LabeledPath(clip.path, clip.label) for clip in clips]
    if not any(os.path.exists(file) for file in head):
        raise UserError(
            f"{path}: not one of its first {len(head)} paths exists, for example {head[0]}; "
            "paths are relative to data.root (and data.suffix is put behind them)"
        )
    return clips
