"""Kinetics-400 and every data set of labeled clips in the same layout: videos or frame folders, by list or folder."""

import os
from dataclasses import dataclass
from typing import Literal

import numpy as np

from data.batch import IMAGENET_MEAN, IMAGENET_STD, LABEL, Field
from data.datasets.common import files
from data.errors import UserError
from data.formats import video
from data.formats.lists import LabeledPath, class_folders, class_names_from_folders, read_folders, read_list, read_names
from data.stream import LoaderSettings
from data.transforms import clips, frame_sampling

PROBED_PATHS = 20  # paths of a list that are checked before a run
LAYOUT = """\
  either train.list and val.list (lines `relative/path.mp4 label` or `relative/folder num_frames label`)
  or train/<class>/*.mp4 and val/<class>/*.mp4"""
checksum = files.checksum


@dataclass(frozen=True)
class Settings(LoaderSettings):
    """The `data:` section of a recipe on Kinetics-400 or a data set in the same layout."""

    root: str = "datasets/k400"
    train_list: str | None = None  # default <root>/train.list; without it, folders <root>/train/<class>/
    val_list: str | None = None  # default <root>/val.list; without it, folders <root>/val/<class>/
    names: str | None = None  # class names, one per line; default <root>/classes.txt if it exists
    suffix: str = ""  # appended to every path of the lists (".mp4")
    frame_template: str = "img_{:05d}.jpg"  # for lists of frame folders
    first_frame: int = 1
    min_frames: int = 3  # a shorter clip is unreadable
    segments: int = 8  # T, frames per clip
    size: int = 224  # pixels, square
    sampling: Literal["uniform", "dense"] = "uniform"
    scales: tuple[float, ...] = (1.0, 0.875, 0.75, 0.66)  # of the multi-scale crop
    antialias: bool = False  # resize by Pillow's antialiased filter (mit-han-lab, PaddleVideo), not OpenCV's
    flip: bool = True  # mirror half of the training clips
    flip_pairs: tuple[tuple[int, int], ...] = ()  # labels that are swapped when a clip is mirrored
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
            raise ValueError("scales: every scale of the multi-scale crop must be in (0, 1]")
        if "dense" in self.sampling + self.eval_sampling and self.segments > frame_sampling.DENSE_SPAN:
            raise ValueError(f"segments: must be at most {frame_sampling.DENSE_SPAN} with dense sampling")
        if not self.short_side >= 16:
            raise ValueError("size: must be at least 14 pixels")
        if self.eval_size is not None and not 1 <= self.eval_size <= self.short_side:
            raise ValueError(f"eval_size: must be at most {self.short_side}, the shorter side before the crop")
        try:
            if self.frame_template.format(1) == self.frame_template.format(2):
                raise ValueError
        except (ValueError, IndexError, KeyError):
            raise ValueError("frame_template: needs one placeholder for the number, such as img_{:05d}.jpg") from None

    @property
    def short_side(self) -> int:
        """Shorter side of a clip in an evaluation, before the crop: 256 for 224."""
        return self.size * 256 // 224


class ClipSplit:
    """One split. It keeps no state between samples, so threads and processes may share or copy it.

    Fields: `video` uint8 (T, size, size, 3) or, with several views, (views, T, eval_size, eval_size, 3); `label`
    int64 ().
    """

    notes: tuple[str, ...] = ()

    def __init__(self, settings: Settings, entries: list[LabeledPath], classes: tuple[str, ...], training: bool):
        self.settings, self.clips, self.classes, self.training = settings, entries, classes, training
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
        frames, label = (self._training_clip if self.training else self._evaluation_clips)(clip, rng)
        return {"video": np.ascontiguousarray(frames), "label": np.asarray(label, np.int64)}

    def describe_files(self) -> list[str]:
        """Return one line per sample, `path label size`: bytes of a file (-1 if missing), frames of a folder."""
        root = self.settings.root
        sizes = [
            files.file_size(os.path.join(root, clip.path)) if clip.frames is None else clip.frames
            for clip in self.clips
        ]
        return [f"{clip.path} {clip.label} {size}" for clip, size in zip(self.clips, sizes)]

    def _training_clip(self, clip: LabeledPath, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        s = self.settings
        pick = frame_sampling.dense_train if s.sampling == "dense" else frame_sampling.uniform_train
        frames = self._read(clip, lambda n: pick(n, s.segments, rng))
        box = clips.multi_scale_box(frames.shape[2], frames.shape[1], s.size, s.scales, rng)
        frames = clips.resize(clips.crop(frames, box), s.size, s.size, s.antialias)
        label = clip.label
        if s.flip and rng.random() < 0.5:
            frames = clips.flip(frames)
            for a, b in s.flip_pairs:
                if clip.label in (a, b):
                    label = a + b - clip.label
        return frames, label

    def _evaluation_clips(self, clip: LabeledPath, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        s = self.settings
        pick = {
            "val": frame_sampling.uniform_val,
            "test": frame_sampling.uniform_test,
            "twice": frame_sampling.twice_test,
            "dense": frame_sampling.dense_test,
            "dense_val": lambda n, t: frame_sampling.dense_train(n, t, rng),
        }[s.eval_sampling]
        frames = self._read(clip, lambda n: pick(n, s.segments))
        frames = clips.resize_short(frames, s.short_side, s.antialias)
        # Crops first, then clips, then time: the temporal shift must never mix frames of different crops.
        views = [view.reshape(-1, s.segments, *view.shape[1:]) for view in clips.views(frames, self.size, s.eval_crops)]
        stacked = np.concatenate(views)
        return (stacked if self.views > 1 else stacked[0]), clip.label

    def _read(self, clip: LabeledPath, pick: video.FrameSampler) -> np.ndarray:
        s, path = self.settings, os.path.join(self.settings.root, clip.path)
        if clip.frames is None:
            return video.video_frames(path, pick, s.min_frames)
        return video.image_frames(path, s.frame_template, s.first_frame, clip.frames, pick, s.min_frames)


def load(settings: Settings) -> tuple[ClipSplit, ClipSplit]:
    """Open the training and the validation split.

    Raises:
        UserError: Files are missing or contradict each other; the message names the folder, list or line.
    """
    root = settings.root
    files.require_root(root, "your clips", LAYOUT, "tsm_demo")
    names_path = settings.names or files.first_existing(root, ["classes.txt"])
    classes = read_names(names_path) if names_path else ()
    if not classes and not any(_find_list(settings, split) for split in ("train", "val")):
        # The official labels of Kinetics are its class names in ASCII order.
        classes = tuple(sorted(set(class_folders(root, "train")) | set(class_folders(root, "val"))))
    splits = {split: _find_clips(settings, split, classes) for split in ("train", "val")}
    if not classes:
        classes = class_names_from_folders(splits["train"] + splits["val"])
    for split, entries in splits.items():
        for clip in entries:
            if clip.label >= len(classes):
                raise UserError(
                    f"{_find_list(settings, split)}: {clip.path} has label {clip.label}, but {names_path} names "
                    f"only {len(classes)} classes (0 to {len(classes) - 1}); labels count from 0"
                )
    for a, b in settings.flip_pairs:
        if max(a, b) >= len(classes):
            raise UserError(
                f"data.flip_pairs: ({a}, {b}) exceeds the {len(classes)} classes of {root}; labels count from 0"
            )
    return ClipSplit(settings, splits["train"], classes, True), ClipSplit(settings, splits["val"], classes, False)


def _find_list(settings: Settings, split: str) -> str | None:
    return getattr(settings, f"{split}_list") or files.first_existing(settings.root, [f"{split}.list"])


def _find_clips(settings: Settings, split: str, classes: tuple[str, ...]) -> list[LabeledPath]:
    path = _find_list(settings, split)
    if path is None:
        entries = read_folders(settings.root, split, classes)
        if not entries:
            raise UserError(
                f"{settings.root}: there is neither {split}.list nor a video in {split}/<class>/; "
                f"add one of them, or name a list with -o data.{split}_list=FILE"
            )
        return entries
    entries = read_list(path, settings.suffix)
    head = [os.path.join(settings.root, entry.path) for entry in entries[:PROBED_PATHS]]
    # With three columns and paths that are files, this is a list of videos and their lengths.
    if entries[0].frames is not None and any(os.path.isfile(file) for file in head):
        entries = [LabeledPath(entry.path, entry.label) for entry in entries]
    if not any(os.path.exists(file) for file in head):
        raise UserError(
            f"{path}: none of its first {len(head)} paths exists, for example {head[0]}; "
            "paths must be relative to data.root, and data.suffix is appended to them"
        )
    return entries
