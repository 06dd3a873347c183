"""A metric over a whole split: every sample counted once, whatever the batch size and the number of ranks."""

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from data.batch import Batch
from data.errors import UserError
from data.loaders.dali_device import DeviceImages
from data.stream import BatchStream, Dataset, UnreadableSample
from zoo.distributed.control_group import Group
from zoo.run.background import BackgroundMap
from zoo.run.decoding import Decode, Decoded, ReadyStream
from zoo.run.signals import EvaluationStopped, StopSignal
from zoo.tasks import TaskMetric
from zoo.trainer.protocol import DeviceBatch, Inference

BATCHES_AHEAD = 1  # on the device or on the way there, while the model predicts one


def evaluate(
    trainer: Inference,
    stream: BatchStream,
    dataset: Dataset,
    metric: TaskMetric,
    group: Group,
    report: Callable[[UnreadableSample], None],
    decode: Decode = ReadyStream,
    averaged: TaskMetric | None = None,
    stop: StopSignal | None = None,
) -> dict[str, Any]:
    """Run the model over this rank's share of a split; called by all ranks.

    Args:
        trainer: predicts.
        stream: evaluation batches of this rank.
        dataset: the split.
        metric: the task's metric; its state is summed over ranks.
        group: all ranks.
        report: called for every unreadable sample of all ranks.
        decode: decodes the images of the stream that are still encoded.
        averaged: another metric, for the predictions by the moving average of the weights; None without one.
        stop: after a signal of it no further batch is predicted; None: signals are not received.

    Returns:
        The metrics over all ranks, those of the moving average by the same names in `ema`, and `bad`, the number of
        unreadable samples.

    Raises:
        UserError: a sample is unreadable and data.eval_bad is not `wrong`.
        EvaluationStopped: a rank has received a signal.
    """
    stop = stop or StopSignal()
    local: list[UnreadableSample] = []

    def copy(each: Decoded) -> tuple[DeviceBatch, Decoded]:
        return trainer.to_device(_inputs(each.batch, dataset), _rows(each.images, dataset)), each

    decoded = decode(stream)
    with closing(BackgroundMap(copy, decoded, decoded.close, BATCHES_AHEAD)) as copies:
        for device_batch, (batch, _, unreadable) in copies:
            group.set_status("evaluating")
            _check(unreadable, dataset)
            local += unreadable
            label_shape = batch["label"].shape[1:]
            size = (label_shape[0], label_shape[1]) if label_shape else None  # of a label per pixel
            metric.update(trainer.predict(device_batch, size), batch)
            if averaged:
                averaged.update(trainer.predict(device_batch, size, averaged=True), batch)
            if stop.received:
                break
    gathered = group.all_gather({"signal": stop.received, "unreadable": [vars(sample) for sample in local]})
    for of_rank in gathered:
        if of_rank["signal"]:
            raise EvaluationStopped(of_rank["signal"])
    everywhere = [UnreadableSample(**values) for of_rank in gathered for values in of_rank["unreadable"]]
    for sample in everywhere:
        report(sample)
    metrics = {**metric.result(group.sum(metric.state)), "bad": len(everywhere)}
    return {**metrics, "ema": averaged.result(group.sum(averaged.state))} if averaged else metrics


def _check(unreadable: list[UnreadableSample], dataset: Dataset) -> None:
    if unreadable and dataset.settings.eval_bad == "error":
        sample = unreadable[0]
        raise UserError(
            f"evaluation: {sample.name}: {sample.reason}; repair or remove it, or count it as wrong with "
            "-o data.eval_bad=wrong"
        )


def _inputs(batch: Batch, dataset: Dataset) -> Batch:
    """Return the images on the host; views of a sample become rows: (B, V, ...) -> (B * V, ...)."""
    images = {field.name: batch[field.name] for field in dataset.fields if field.mean and field.name in batch}
    return {name: array.reshape(-1, *array.shape[2:]) if dataset.views > 1 else array for name, array in images.items()}


def _rows(images: Mapping[str, DeviceImages], dataset: Dataset) -> dict[str, DeviceImages]:
    """Return images on the device, with the views of a sample as rows."""
    return {
        name: value._replace(order=value.order.reshape(-1, *value.order.shape[2:])) if dataset.views > 1 else value
        for name, value in images.items()
    }
