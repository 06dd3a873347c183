"""One split of a data set: the interface between data sets and what reads them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import numpy as np

from zoo.data import addresses, fields, mixing
from zoo.data.batch import LABEL, Field
from zoo.data.errors import UserError
from zoo.data.fields import Count, Doc, FilePath, NotNegative, Positive, Probability, Range
from zoo.data.transforms.geometry import Geometry


@dataclass(frozen=True)
class LoaderSettings:
    """Settings that all data sets share."""

    workers: Annotated[
        Annotated[int, Range(low=0)] | Literal["auto"],
        Doc("Processes that read ahead; 0: threads of the training process; auto: (cores - 1) / threads."),
    ] = 4
    threads: Annotated[Count, Doc("Reading threads per process.")] = 2
    max_bad: Annotated[Probability, Doc("Fraction of unreadable samples in an epoch above which a run stops.")] = 0.001
    eval_bad: Annotated[
        Literal["error", "wrong"],
        Doc("What an unreadable sample in an evaluation does; error: stop, wrong: count as wrong."),
    ] = "error"
    loader: Annotated[
        Literal["auto", "reference", "dali"],
        Doc(
            "Decoder of images; dali gives the same samples with nearly the same pixels; auto: dali where it is "
            "installed and decodes on the GPU."
        ),
    ] = "reference"
    dali_device: Annotated[
        Literal["auto", "cpu", "gpu"], Doc("Where DALI decodes; auto: on the GPU of the run if it has one.")
    ] = "auto"
    allow_missing_classes: Annotated[
        bool, Doc("Let a run start although a class has no sample in one of the splits.")
    ] = False
    mixup: Annotated[
        NotNegative, Doc("Alpha of mixup, which blends each training sample with another one; 0: off.")
    ] = 0.0
    cutmix: Annotated[NotNegative, Doc("Alpha of CutMix, which pastes a part of another sample; 0: off.")] = 0.0
    mix_prob: Annotated[Probability, Doc("Probability that a training sample is mixed at all.")] = 1.0
    mix_switch: Annotated[
        Probability, Doc("Probability that a mixed sample is mixed by CutMix, where mixup is on too.")
    ] = 0.5
    cache: Annotated[
        FilePath | None, Doc("Folder on a fast local disk for copies of the files that are read; null: none.")
    ] = None
    cache_gb: Annotated[Positive, Doc("Gigabytes (10^9 bytes) that the cache may hold.")] = 100.0
    checksum: Annotated[
        Literal["sampled", "full"],
        Doc("How much the data checksum reads; sampled: some blocks of every large file, full: all bytes."),
    ] = "sampled"

    def __post_init__(self) -> None:
        fields.check(self)
        for name, value in vars(self).items():
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str):
                    addresses.check(text, f"data.{name}")
        mixing.check(self)


class Pending(NamedTuple):
    """The encoded images of an array, which have been read and drawn, for a loader to decode.

    Attributes:
        files: ordinary JPEG files, or PNG files of 8-bit RGB, stored upright.
        stacked: whether the array has an axis for the files in front; otherwise there is one file.
    """

    files: tuple[bytes, ...]
    geometry: Geometry
    stacked: bool = False


Sample = dict[str, np.ndarray]
PlannedSample = dict[str, np.ndarray | Pending]


class Dataset(Protocol):
    """One split of a data set. It is picklable, and keeps no state between samples.

    Attributes:
        classes: Class names by label, or a range where classes have numbers only.
        views: Images or clips per sample; more than one in a multi-view evaluation and for pairs.
        notes: Messages for the user, printed when a run starts.
    """

    settings: LoaderSettings
    fields: tuple[Field, ...]
    classes: Sequence
    views: int
    notes: tuple[str, ...]

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """Return the name of a sample for messages, such as its path."""

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
        """Read one sample: a pure function of index, generator and files. Raises BadSample."""

    def plan(self, index: int, rng: np.random.Generator) -> PlannedSample:
        """Read and draw one sample as `sample` does; images may be left for the loader to decode. Raises BadSample."""

    # A split of files also has `inventory(deep)`, which returns an Inventory (data/audit.py).


class Relabeled:
    """A validation split whose labels are those that a model was trained with.

    Args:
        split: of images or clips, of which one may have several classes, or of scenes with a label for every pixel.
        classes: names of the model's outputs, all of the split's among them.
    """

    def __init__(self, split: Any, classes: Sequence[str]):
        self.split, self.classes = split, classes
        self.table = np.arange(max(len(split.classes), 256), dtype=np.int64)  # ignored pixels stay
        self.table[: len(split.classes)] = [classes.index(name) for name in split.classes]
        self.fields = tuple(
            replace(field, shape=(len(classes),)) if field.name == LABEL.name and len(field.shape) == 1 else field
            for field in split.fields
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by pickle, before there is a split
            raise AttributeError(name)
        return getattr(self.split, name)

    def __len__(self) -> int:
        return len(self.split)

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
        return self._relabel(self.split.sample(index, rng))

    def plan(self, index: int, rng: np.random.Generator) -> PlannedSample:
        return self._relabel(self.split.plan(index, rng))

    def target(self, index: int) -> np.ndarray:
        """Return the label of a sample, of a split that has it without reading the sample."""
        label: np.ndarray = self._relabel({"label": self.split.target(index)})["label"]
        return label

    def _relabel(self, sample: Any) -> Any:
        label = sample["label"]
        if label.ndim == 1:
            moved = np.zeros(len(self.classes), label.dtype)
            moved[self.table[: len(label)]] = label
            return {**sample, "label": moved}
        return {**sample, "label": self.table[label].astype(label.dtype)}


class TrainingSubset:
    """Evenly spaced samples of a training split, shown as an evaluation shows samples.

    Args:
        split: the training split. Its `for_evaluation()`, if it has one, returns the same samples as an evaluation
            shows them, or None.
        count: samples; those of the split if it has fewer.
    """

    def __init__(self, split: Dataset, count: int):
        shown: Dataset | None = getattr(split, "for_evaluation", lambda: None)()
        if shown is None:
            raise UserError(
                "train.eval_train_samples: the training samples of this data set cannot be evaluated (faces are no "
                "pairs to verify); leave it out"
            )
        self._split = shown
        self._indices = np.arange(min(count, len(split))) * len(split) // min(count, len(split))
        self.settings, self.fields = shown.settings, shown.fields
        self.classes, self.views = shown.classes, shown.views
        self.notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self._indices)

    def name(self, index: int) -> str:
        return self._split.name(int(self._indices[index]))

    def sample(self, index: int, rng: np.random.Generator) -> Sample:
        return self._split.sample(int(self._indices[index]), rng)

    def plan(self, index: int, rng: np.random.Generator) -> PlannedSample:
        return self._split.plan(int(self._indices[index]), rng)
