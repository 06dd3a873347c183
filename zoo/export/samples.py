"""Real samples as an evaluation shows them to the model that is exported."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo import data, tasks
from zoo.data import order
from zoo.data.errors import BadSample, UserError
from zoo.predict.results import find_inputs
from zoo.run.trained import Trained

COUNT = 5  # samples that a graph is compared on
CALIBRATION = 64  # training samples from which int8 takes the ranges of its values


class Splits(NamedTuple):
    train: Any
    val: Any


def load_splits(source: Trained) -> Splits:
    try:
        return Splits(*data.find(source.dataset).load(source.cfg.data))
    except UserError as error:
        raise UserError(
            f"the graph is compared on samples of the recipe's data, which are not here ({error}); say where they are "
            "with -o data.root=FOLDER, or give other ones with --samples FILE ..."
        ) from None


def protocol(source: Trained, splits: Splits | None) -> str:
    """Return the protocol id of the recipe's evaluations; "" without its data."""
    if splits is None:
        return ""
    part = splits.val.protocol
    return f"{part.name}/{tasks.load_task(source.cfg.task.task).protocol(part.views, source.cfg.task)}"


def of_split(source: Trained, split: Any, count: int = COUNT) -> list[np.ndarray]:
    """Read samples that are spread over a split; uint8 (..., H, W, 3) each. Views of a sample count as samples."""
    name, rows = source.fields[0].name, []
    for index in np.linspace(0, len(split) - 1, min(count, len(split))).astype(int):
        try:
            sample = split.sample(int(index), order.generator(source.cfg.seed, "evaluate", int(index)))[name]
        except BadSample:
            continue
        rows += list(sample) if split.views > 1 else [sample]
    if not rows:
        raise UserError("no sample of the recipe's validation data can be read; give others with --samples FILE ...")
    return rows[:count]


def of_files(source: Trained, arguments: Sequence[str]) -> list[np.ndarray]:
    """Read samples from files and folders that the user names; uint8 (..., H, W, 3) each."""
    predictor = source.predictor
    found = find_inputs(arguments, predictor.extensions, predictor.frame_template(source.cfg.data))
    rows: list[np.ndarray] = []
    for path, missing in sorted(found, key=lambda each: not each.missing)[:COUNT]:
        try:
            if missing:
                raise BadSample(missing)
            batch = predictor.read(source.cfg.data, source.cfg.seed, path, 0).batch
            if not batch:
                raise BadSample("is a video; give images")
            rows += list(batch[source.fields[0].name])
        except BadSample as error:
            raise UserError(f"--samples {path}: {error}") from None
    return rows[:COUNT]


def batches(source: Trained, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Make the batches that are compared: one sample and five; of a segmentation model, of two sizes.

    A large scene is cut to the training crop, so that five fit into the memory.
    """
    sizes: list[tuple[int, int] | None] = [None]
    if source.spec.TASK == "segment":
        height, width = (min(sides) for sides in zip(source.cfg.data.crop, *(row.shape[:2] for row in rows)))
        sizes = [(height, width), (max(1, height * 3 // 4 - 1), max(1, width * 5 // 8 + 1))]
    made = []
    for size in sizes:
        cut = [_crop(row, *size) if size else row for row in rows]
        made += [np.stack(cut[:1]), np.stack([cut[i % len(cut)] for i in range(COUNT)])]
    return made


def for_calibration(source: Trained, split: Any) -> list[np.ndarray]:
    """Read training samples, as an evaluation shows them, that int8 takes the ranges of its values from.

    Returns:
        uint8 (1, ..., H, W, 3) each.
    """
    shown = split.for_evaluation() if hasattr(split, "for_evaluation") else split
    rows = of_split(source, shown, CALIBRATION)
    if source.spec.TASK == "segment":
        height, width = (min(sides) for sides in zip(source.cfg.data.crop, *(row.shape[:2] for row in rows)))
        rows = [_crop(row, height, width) for row in rows]
    return [row[None] for row in rows]


def _crop(image: np.ndarray, height: int, width: int) -> np.ndarray:
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return image[top : top + height, left : left + width]
