"""The batches that a run trains on, for a training loop of one's own."""

import math
import os
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from zoo.data.batch import Batch, Field
from zoo.data.errors import UserError
from zoo.data.stream import Stream, UnreadableSample, open_training
from zoo.distributed.group import Group
from zoo.frameworks import CHANNELS_LAST, FRAMEWORKS
from zoo.models import load_spec, resolve_arch
from zoo.notebook import argument_names, override_pairs
from zoo.run import schedule
from zoo.run.dataset import load_data
from zoo.run.pipeline import Prefetcher
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options
from zoo.run.stopping import BadSampleTracker
from zoo.trainer import load_backend, pixels
from zoo.trainer.world import Launch

AHEAD = 2  # batches that are ready before they are asked for


class Batches(Iterator[dict[str, Any]]):
    """Batches of a run in order, read ahead.

    `close`, the end of a `with` block or of the process ends what reads them.

    Attributes:
        first, last: numbers of the first batch and after the last one, counted from the start of the run.
        number: that of the next batch: the argument `start` of a loop that goes on here.
        classes: names by label, or a range where they have numbers only.
        fields: of the arrays: name, and shape and type of a sample; mean and std of pixels.
    """

    def __init__(self, stream: Stream, first: int, last: int, framework: str | None):
        batches: Any = stream.batches
        self.first = self.number = first
        self.last, self.batch_size = last, batches.batch_size
        self.samples, self.classes, self.fields = len(batches.dataset), batches.dataset.classes, batches.dataset.fields
        self._samples_at_once = batches.batch_size * batches.world_size
        self._unreadable = BadSampleTracker(batches.dataset, _warn)
        self._to_tensors = load_backend(framework).to_tensors if framework else lambda batch: batch
        self._ahead = Prefetcher(stream, partial(_prepare, self.fields, framework), AHEAD)
        self.close = weakref.finalize(self, self._ahead.close)

    @property
    def epoch(self) -> int:
        """Epoch of the next batch, counted from 0: that of its first sample over all ranks."""
        return self.number * self._samples_at_once // self.samples

    def __len__(self) -> int:
        return self.last - self.first

    def __next__(self) -> dict[str, Any]:
        batch, unreadable = next(self._ahead)
        with argument_names():
            self._unreadable.add(unreadable)
        self.number += 1
        return self._to_tensors(batch)

    def __enter__(self) -> "Batches":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@argument_names()
def batches(
    recipe: str | os.PathLike[str],
    overrides: Mapping[str, Any] | None = None,
    *,
    framework: str | None = None,
    epoch: int | None = None,
    start: int = 0,
    stop: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    dropout_masks: bool = False,
) -> Batches:
    """Read the training batches of a recipe: those of its run, with the same order, augmentation and mixing.

    A batch is a dict of arrays by name: first the model's input, then `label` or `soft_label`, and `valid`, which is 1
    everywhere. It is a function of recipe, number, rank and world size; `data.workers` reading processes do not change
    it.

    Args:
        overrides: values by dotted key, such as {"train.batch": 32, "data.workers": 8, "seed": 3}.
        framework: None for numpy arrays, pixels as uint8, channels last. torch, paddle, mindspore or jax for tensors
            on its default device, pixels normalized and channels first, in JAX last, as the models take them; whole
            numbers of 64 bits have 32 in MindSpore and JAX.
        epoch: the batches that begin in this epoch, counted from 0; None for all epochs of the recipe.
        start, stop: numbers of the first batch and after the last one, counted from the start of the run or of `epoch`.
        rank, world_size: of this process among those of the loop, each of which reads its own batches.
        dropout_masks: add the masks that the run would use, which the model takes after its input.
    """
    if framework not in (None, *FRAMEWORKS):
        raise UserError(f"framework: expected one of {', '.join(FRAMEWORKS)}, or None for numpy; got {framework!r}")
    for name, value in {"epoch": epoch or 0, "start": start, "stop": stop or 0, "rank": rank}.items():
        if not isinstance(value, int) or value < 0:
            raise UserError(f"{name}: expected a whole number from 0 on, got {value!r}")
    if stop is not None and stop < start:
        raise UserError(f"stop: {stop} comes before start={start}; give the number after the last batch")
    if not isinstance(world_size, int) or rank >= world_size:
        raise UserError(f"rank: {rank} is none of the ranks of world_size={world_size!r}, which begin with 0")
    request = resolve_recipe(Options(os.fspath(recipe), override_pairs(overrides), framework=framework))
    cfg, group = request.config, Group(Launch())
    train_set = load_data(request.resolved["data.name"].value, cfg.data, group).train_set
    plan, samples = schedule.batch_plan(cfg.train, world_size), len(train_set)
    begin, end = 0, schedule.clock(cfg.train, samples, world_size).steps * plan.accumulate
    if epoch is not None:
        begin, end = (math.ceil(Fraction(e * samples, world_size * plan.batch)) for e in (epoch, epoch + 1))
    first, last = begin + start, end if stop is None else begin + stop
    masks: Sequence[Any] = ()
    if dropout_masks:
        spec = load_spec(request.resolved["model.name"].value)
        masks = spec.dropout_masks(resolve_arch(spec, cfg.model, train_set.fields, len(train_set.classes)))
    stream = open_training(train_set, cfg.seed, plan.batch, first, last, rank, world_size, masks)
    return Batches(stream, first, last, framework)


def _prepare(fields: Sequence[Field], framework: str | None, loaded: Batch, _images: Any) -> Batch:
    batch: Batch = dict(loaded)
    for field in fields:
        if framework and field.mean is not None:
            batch[field.name] = pixels.normalize(batch[field.name], field, framework in CHANNELS_LAST)
    return batch


def _warn(sample: UnreadableSample) -> None:
    warnings.warn(f"{sample.name}: {sample.reason}; {sample.replaced_by} takes its place", stacklevel=3)
