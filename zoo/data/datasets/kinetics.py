"""Kinetics-400 and every data set of labeled clips in the same layout: videos or frame folders, by list or folder."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from zoo.data import extras, mixing, sources
from zoo.data.audit import Inventory
from zoo.data.augment import Drawn, Target, steps
from zoo.data.augment.albumentations import MIRRORS
from zoo.data.augment.steps import Steps, on_frames, standard
from zoo.data.batch import IMAGENET_MEAN, IMAGENET_STD, LABEL, Field
from zoo.data.contents import Content, sampled_frames
from zoo.data.dataset import LoaderSettings, Pending, PlannedSample
from zoo.data.datasets import common
from zoo.data.datasets.common import SPLITS, Protocol, set_name
from zoo.data.errors import Option, UserError, similar_path
from zoo.data.fields import Count, Doc, FilePath, Range, SettingError, Shares, Word
from zoo.data.formats import frame_folders, label_tables, table_rows, video
from zoo.data.formats.class_names import ClassNames, read_names
from zoo.data.formats.lists import (
    ANIMATIONS,
    FRAME_TEMPLATE,
    VIDEO_EXTENSIONS,
    LabeledPath,
    check_inside,
    check_same_labels,
    class_folders,
    class_names_from_folders,
    read_folders,
    read_list,
)
from zoo.data.formats.splits import splits_below
from zoo.data.transforms import clips
from zoo.data.transforms.geometry import Geometry, Size, short_side_size
from zoo.data.transforms.pixels import finish, scale

if TYPE_CHECKING:
    from zoo.data.packs.prepared import PreparedSplit

OFFICIAL_SETS = {400: "k400", 600: "k600", 700: "k700", 174: "ssv2"}  # by number of classes
CLIPS = {"twice": 2, "dense": clips.DENSE_CLIPS}  # per sample, by eval_sampling; else one
LAYOUT = """\
  either train.list and val.list (lines `relative/path.mp4 label` or `relative/folder num_frames label`)
  or train/<class>/*.mp4 and val/<class>/*.mp4,
  or, with data.val_fraction=0.2, no validation split: <class>/*.mp4, train/<class>/*.mp4 or train.list"""
describe = common.describe


@dataclass(frozen=True)
class Settings(LoaderSettings):
    """The `data:` section of a recipe on Kinetics-400 or a data set in the same layout."""

    root: Annotated[FilePath, Doc("Folder of the data set, archives, or an address.")] = "datasets/k400"
    train_list: Annotated[
        FilePath | None,
        Doc("List of training clips, in the current folder or root; null: <root>/train.list, or folders of classes."),
    ] = None
    val_list: Annotated[
        FilePath | None,
        Doc("List of validation clips, in the current folder or root; null: <root>/val.list, or folders of classes."),
    ] = None
    val_fraction: common.ValFraction = None
    allow_outside_root: Annotated[bool, Doc("Let lists name files by absolute paths or with `..`.")] = False
    set: Annotated[
        Word | None,
        Doc(
            "Name of the set in the protocol id; null: that of the number of classes (k400 for 400, ssv2 for "
            "174) or of root."
        ),
    ] = None
    names: Annotated[FilePath | None, Doc("Class names, one per line; null: <root>/classes.txt if it exists.")] = None
    suffix: Annotated[Word, Doc("Suffix of every path of the lists, such as .mp4.")] = ""
    frame_template: Annotated[Word, Doc("Names of the frames in lists of frame folders.")] = "img_{:05d}.jpg"
    first_frame: Annotated[int, Doc("Number of the first frame in a frame folder.")] = 1
    min_frames: Annotated[Count, Doc("Frames below which a clip is unreadable.")] = 3
    decoder: Annotated[
        Literal["pyav", "decord"],
        Doc("Decoder of videos; decord reads those that it reads rightly, and pyav the others."),
    ] = "pyav"
    segments: Annotated[Count, Doc("Frames per clip, T.")] = 8
    size: Annotated[int, Range(low=14), Doc("Side of the square clips, in pixels.")] = 224
    sampling: Annotated[
        Literal["uniform", "dense"],
        Doc("Frames in training; uniform: one of each of T segments, dense: at a fixed distance."),
    ] = "uniform"
    scales: Annotated[Shares, Doc("Scales of the multi-scale crop in training.")] = (1.0, 0.875, 0.75, 0.66)
    antialias: Annotated[
        bool, Doc("Resize by Pillow's antialiased filter (mit-han-lab, PaddleVideo), not OpenCV's.")
    ] = False
    resample: common.Resample = "fast"
    balance: common.Balance = 0.0
    flip: Annotated[bool, Doc("Mirror half of the training clips.")] = True
    augment: Annotated[Steps | None, Doc("Augmentations in place of crop and flip (docs/data.md); null: these.")] = None
    flip_pairs: Annotated[
        tuple[tuple[int, int], ...], Doc("Pairs of labels that are swapped when a clip is mirrored.")
    ] = ()
    eval_sampling: Annotated[
        Literal["val", "test", "twice", "dense", "dense_val"],
        Doc("Frames in an evaluation: one clip (val, test, dense_val) or several (twice, dense)."),
    ] = "val"
    eval_crops: Annotated[Literal[1, 3, 10], Doc("Crops of each clip in an evaluation.")] = 1
    eval_size: Annotated[int | None, Doc("Side of the crop in an evaluation, in pixels; null: size.")] = None
    mean: common.Mean = IMAGENET_MEAN
    std: common.Std = IMAGENET_STD

    def __post_init__(self):
        super().__post_init__()
        steps.check(self.augment, "clip", self.flip, (self.size, self.size))
        mirrors = [step.name for step in (self.augment.steps if self.augment else ()) if step.name in MIRRORS]
        if self.flip_pairs and mirrors:
            raise SettingError("augment", f"{mirrors[0]}: data.flip_pairs swaps labels for horizontal_flip; take that")
        if not self.scales:
            raise SettingError("scales", "the multi-scale crop needs at least one scale")
        if "dense" in self.sampling + self.eval_sampling and self.segments > clips.DENSE_SPAN:
            raise SettingError("segments", f"must be at most {clips.DENSE_SPAN} with dense sampling")
        if self.eval_size is not None and not 1 <= self.eval_size <= self.short_side:
            raise SettingError("eval_size", f"must be at most {self.short_side}, the shorter side before the crop")
        if not FRAME_TEMPLATE.fullmatch(self.frame_template):
            raise SettingError("frame_template", "needs one placeholder for the number, such as img_{:05d}.jpg")

    @property
    def short_side(self) -> int:
        """Shorter side of a clip in an evaluation, before the crop: 256 for 224."""
        return self.size * 256 // 224


class ClipSplit(common.FileSplit):
    """One split.

    Fields: `video` uint8 (T, size, size, 3) or, with several views, (views, T, eval_size, eval_size, 3); `label`
    int64 (); in training with data.mixup or data.cutmix, which the stream carries out, `soft_label` float32 (classes,).
    """

    def __init__(
        self,
        settings: Settings,
        entries: list[LabeledPath],
        classes: tuple[str, ...],
        training: bool,
        prepared: "PreparedSplit | None" = None,
    ):
        self.clips = entries
        steps = standard(multi_scale_crop={"scales": settings.scales}, horizontal_flip=settings.flip)
        super().__init__(settings, classes, steps, training, prepared)
        self.balance_classes(self._labels())

    def __len__(self) -> int:
        return len(self.clips)

    @property
    def protocol(self) -> Protocol:
        """The evaluation: frames x clips x crops @ side of a crop, and the sampling where it is not `val`."""
        s = self.settings
        count, size = CLIPS.get(s.eval_sampling, 1), s.eval_size or s.size
        sampling = "" if s.eval_sampling == "val" else f"-{s.eval_sampling}"
        views = f"{s.segments}x{count}x{s.eval_crops}@{size}{sampling}"
        return Protocol(set_name(s, len(self.classes), OFFICIAL_SETS) + self.held_out, views)

    def name(self, index: int) -> str:
        return self.clips[index].name

    def path(self, index: int) -> str:
        return os.path.join(self.settings.root, self.clips[index].path)

    def item_label(self, index: int) -> str:
        clip = self.clips[index]
        return self.classes[clip.label] + ("" if clip.frames is None else f" {clip.frames} frames")

    def files(self, index: int) -> tuple[Content, ...]:
        s, frames = self.settings, self.clips[index].frames
        if frames is None:
            return super().files(index)
        names = (s.frame_template.format(s.first_frame + number) for number in sampled_frames(frames))
        return tuple(Content(os.path.join(self.path(index), name)) for name in names)

    def sample(self, index: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Decode, crop and (in training) augment one clip. Raises BadSample."""
        return self._complete(self.clips[index], self._read(index, self._pick(rng)), rng)

    def from_pixels(self, frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the video of the sample that decoded frames, uint8 RGB (n, H, W, 3), give in an evaluation.

        Raises:
            BadSample: there are fewer frames than data.min_frames.
        """
        indices = video.sample_indices(self._pick(rng), len(frames), self.settings.min_frames)
        geometries, _ = self._draw((frames.shape[2], frames.shape[1]), rng)
        return self._views([frames[index] for index in indices], geometries)

    def plan(self, index: int, rng: np.random.Generator) -> PlannedSample:
        """Read and draw one clip as `sample` does, and leave its pixels to the loader. Raises BadSample.

        Videos are decoded: their colors depend on the decoder.
        """
        clip = self.clips[index]
        if clip.frames is None or self.views > 1 or (self.training and not self.pipeline.is_geometric):
            return {**self.sample(index, rng)}
        encoded = self._read_images(index, self._pick(rng))
        sizes = {frame_folders.plain_size(frame) for frame in encoded}
        size = sizes.pop()
        if size is None or sizes:
            return {**self._complete(clip, frame_folders.decode_images(encoded), rng)}
        (geometry,), _ = self._draw(size, rng)
        files = tuple(frame.content for frame in encoded)
        return {"video": Pending(files, geometry, stacked=True), "label": self._label(clip, geometry.flip)}

    def remark(self, index: int, rng: np.random.Generator) -> str:
        """Read one clip in another way than `sample` does, and return what is strange about it; "" for nothing.

        Raises:
            BadSample: it cannot be read, or both ways give different frames.
        """
        s, clip = self.settings, self.clips[index]
        if self.prepared:  # its files have been read so
            return ""
        if clip.frames is not None:
            return frame_folders.difference(self.path(index), s.frame_template, s.first_frame, clip.frames)
        with sources.local_path(self.path(index)) as path:
            damaged = video.compare_frames(path, self._pick(rng), s.min_frames, s.decoder, clip.span)
        return f"damaged, but it can be read: {damaged} frame(s)" if damaged else ""

    def inventory(self, deep: bool) -> Inventory:
        """Return what the split holds, for checks; deep: no difference here."""
        labels = self._labels()
        if any(clip.frames is not None for clip in self.clips):
            return Inventory(len(self), self.name, self.classes, labels=labels)
        if any(clip.span is not None for clip in self.clips):  # several are of one file
            return Inventory(len(self), self.name, self.classes, self.file_size, labels=labels)
        return Inventory(len(self), self.name, self.classes, self.file_size, self.digest, labels)

    def _labels(self) -> np.ndarray:
        return np.array([clip.label for clip in self.clips], np.int64)

    def show(self, training: bool) -> None:
        s, classes = self.settings, len(self.classes)
        self.views = 1 if training else CLIPS.get(s.eval_sampling, 1) * s.eval_crops
        size = s.size if training else s.eval_size or s.size
        views = (self.views,) if self.views > 1 else ()
        video = Field("video", (*views, s.segments, size, size, 3), "uint8", s.mean, s.std)
        self.fields = (video, LABEL, *(mixing.fields(s, classes) if training else ()))
        super().show(training)

    def _complete(
        self, clip: LabeledPath, frames: Sequence[np.ndarray], rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Draw the rest of a sample and make it of the decoded frames."""
        height, width, _ = frames[0].shape
        geometries, drawn = self._draw((width, height), rng)
        mirrored = geometries[0].flip != bool(sum(step.mirrored for step in drawn) % 2)
        video = on_frames(self._views(frames, geometries), drawn)
        return {"video": video, "label": self._label(clip, mirrored)}

    def _pick(self, rng: np.random.Generator) -> video.FrameSampler:
        """Return the function that chooses the frames of a clip by their number."""
        s = self.settings
        if self.training:
            pick = clips.dense_train if s.sampling == "dense" else clips.uniform_train
            return lambda n: pick(n, s.segments, rng)
        if s.eval_sampling == "dense_val":
            return lambda n: clips.dense_train(n, s.segments, rng)
        pick_all = {
            "val": clips.uniform_val,
            "test": clips.uniform_test,
            "twice": clips.twice_test,
            "dense": clips.dense_test,
        }[s.eval_sampling]
        return lambda n: pick_all(n, s.segments)

    def _draw(self, size: Size, rng: np.random.Generator) -> tuple[list[Geometry], list[Drawn]]:
        """Draw the geometry of every view of a clip whose frames have this size, and what else happens to its pixels.

        In an evaluation, geometries are fixed.
        """
        s = self.settings
        if not self.training:
            return evaluation_geometries(s, size, s.eval_crops), []
        geometry, drawn = self.pipeline.draw_crop(size, Target(s.size, s.size, s.mean, s.std), rng)
        return [geometry], drawn

    def _label(self, clip: LabeledPath, mirrored: bool) -> np.ndarray:
        """Return the label of a clip, the other one of its pair if a mirrored clip shows that."""
        label = clip.label
        for a, b in self.settings.flip_pairs if mirrored and self.training else ():
            if clip.label in (a, b):
                label = a + b - clip.label
        return np.asarray(label, np.int64)

    def _views(self, frames: Sequence[np.ndarray], geometries: Sequence[Geometry]) -> np.ndarray:
        """Return the views of a clip, whose geometries differ in window and flip alone.

        Crops come first, then clips, then time: the temporal shift must never mix frames of different crops.
        """
        shape = self.fields[0].shape
        views = np.empty((len(geometries), len(frames), *shape[-3:]), np.uint8)
        for number, frame in enumerate(frames):
            scaled = scale(frame, geometries[0])
            for view, geometry in zip(views, geometries):
                view[number] = finish(scaled, geometry)
        return views.reshape(shape)

    def _read(self, index: int, pick: video.FrameSampler) -> list[np.ndarray]:
        clip = self.clips[index]
        if clip.frames is not None:
            return frame_folders.decode_images(self._read_images(index, pick))
        opened = self.prepared.open(index) if self.prepared else sources.local_path(self.local(self.path(index)))
        with opened as path:
            return video.read_frames(path, pick, self.settings.min_frames, self.settings.decoder, clip.span)

    def _read_images(self, index: int, pick: video.FrameSampler) -> list[frame_folders.EncodedFrame]:
        s, clip = self.settings, self.clips[index]
        if self.prepared:
            numbers = video.sample_indices(pick, clip.frames or 0, s.min_frames)
            contents = self.prepared.frame_contents(index, numbers)
            return [frame_folders.EncodedFrame(f"frame {n}", content) for n, content in zip(numbers, contents)]
        template, count = (s.frame_template, s.first_frame), clip.frames or 0
        return frame_folders.read_images(self.path(index), *template, count, pick, s.min_frames, self.local)


def evaluation_geometries(settings: Settings, size: Size, crops: int) -> list[Geometry]:
    resized = short_side_size(size, settings.short_side)
    views = clips.view_boxes(*resized, settings.eval_size or settings.size, crops)
    return [Geometry(None, resized, settings.antialias, window, mirrored) for window, mirrored in views]


def load(settings: Settings, splits: Sequence[str] = SPLITS) -> tuple[ClipSplit, ClipSplit]:
    """Open the training and the validation split.

    Args:
        splits: ("val",) for an evaluation without a training split: its samples take the place of the others.
    """
    root = settings.root
    if settings.decoder == "decord":
        extras.require("decord")
    common.require_root(root, "your clips", LAYOUT, "tsm_demo")
    decided = {key: getattr(settings, key) for key in ("train_list", "val_list", "names", "suffix")}
    prepared = common.prepared_splits(settings, "video", decided)
    if prepared:
        _check_flip_pairs(settings, prepared[0].info.classes)
        return ClipSplit.open_prepared(settings, prepared)
    names_path = common.given_or_first(root, "data.names", settings.names, ["classes.txt"])
    classes = read_names(names_path) if names_path else ()
    notes: list[str] = []
    lists = common.find_lists(settings, splits, common.LIST_FILES[::-1], notes, table_rows.CLIPS)
    is_divided = common.lacks_validation(settings, lists["val"])
    if is_divided:
        lists = {"train": common.find_list(settings, "train", common.LIST_FILES[::-1])}
    if not classes and not any(lists.values()):
        # The official labels of Kinetics are its class names in ASCII order.
        folders = (common.class_root(settings, split) for split in lists)
        classes = tuple(sorted({name for folder in folders for name in class_folders(root, folder)}))
    tables = {split: path for split, path in lists.items() if path and table_rows.is_table(path)}
    tabled, classes = _read_tables(settings, tables, classes, notes) if tables else ({}, classes)
    found = {
        split: tabled.get(split) or _find_clips(settings, split, path, classes, notes) for split, path in lists.items()
    }
    if "train" in found and not lists["train"]:
        from zoo.data.formats import layouts  # which lists do without

        notes += layouts.notes(settings.root, [clip.path for clip in found["train"]])
    check_same_labels(found[split] for split, path in lists.items() if path)
    if not classes:
        classes = class_names_from_folders([*chain(*found.values())])
    for split, entries in found.items():
        for clip in entries:
            common.check_label(f"{lists[split]} and {names_path}", clip, len(classes))
    _check_flip_pairs(settings, classes)
    if is_divided:
        labeled = found["train"]
        files = map(ClipSplit(settings, labeled, classes, True).files, range(len(labeled)))
        found = common.divide(settings, labeled, files, [clip.label for clip in labeled], notes)
    train, val = (ClipSplit(settings, found.get(split, found["val"]), classes, split == "train") for split in SPLITS)
    train.notes += tuple(notes)
    val.held_out = common.held_out(settings) if is_divided else ""
    return train, val


def _check_flip_pairs(settings: Settings, classes: Sequence[str]) -> None:
    for a, b in settings.flip_pairs:
        if max(a, b) >= len(classes):
            raise UserError(
                f"data.flip_pairs: ({a}, {b}) exceeds the {len(classes)} classes of {settings.root}; labels count "
                "from 0"
            )


def _read_tables(
    settings: Settings, tables: Mapping[str, str], classes: tuple[str, ...], notes: list[str]
) -> tuple[dict[str, list[LabeledPath]], tuple[str, ...]]:
    """Return the clips of tables of labels, by split, and the names of the classes; () for numbers."""
    read = {split: label_tables.read_clips(path, settings.root, notes, split) for split, path in tables.items()}
    names = ClassNames(classes, classes) if classes else None
    names, numbered = label_tables.number({(split, tables[split]): rows for split, (rows, _) in read.items()}, names)
    found: dict[str, list[LabeledPath]] = {}
    for split, (_, spans) in read.items():
        found[split] = [replace(clip, span=span) for clip, span in zip(numbered[split], spans)]
        check_inside(tables[split], (clip.path for clip in found[split]), settings.allow_outside_root)
    return found, names.names if names else ()


def _find_clips(
    settings: Settings, split: str, path: str | None, classes: tuple[str, ...], notes: list[str]
) -> list[LabeledPath]:
    """List the clips of a split from its list, or from its folders where there is none."""
    if path is None:
        name = common.class_root(settings, split)
        entries, ignored = list[LabeledPath](), list[str]()
        for extensions in (VIDEO_EXTENSIONS, ANIMATIONS):
            if not entries:
                ignored.clear()
                entries = read_folders(settings.root, name, classes, extensions, ignored)
        notes += ignored
        if not entries:
            folder = os.path.join(settings.root, name)
            similar = () if sources.is_folder(folder) else splits_below(settings.root) or (similar_path(folder),)
            found = "; ".join([f"there is neither {split}.list nor a video in {split}/<class>/", *notes])
            raise UserError(
                f"{settings.root}: {found}; add one of them, name a list with ",
                Option(f"data.{split}_list", "FILE"),
                *common.hold_out_remedy(settings),
                *similar,
            )
        return entries
    entries = read_list(path, settings.suffix, notes=notes)
    check_inside(path, (entry.path for entry in entries), settings.allow_outside_root)
    remedy = "paths must be relative to data.root, and data.suffix is appended to them"
    common.require_paths(path, settings.root, entries, remedy)
    # With three columns and paths that are files, this is a list of videos and their lengths.
    head = (os.path.join(settings.root, entry.path) for entry in entries[: common.PROBED_PATHS])
    if entries[0].frames is not None and any(map(sources.is_file, head)):
        entries = [LabeledPath(entry.path, entry.label) for entry in entries]
    return entries
