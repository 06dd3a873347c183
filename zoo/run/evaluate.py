"""A metric over a whole split: every sample counted once, whatever the batch and the number of ranks."""

from collections.abc import Callable, Iterator

from data.batch import Batch
from data.errors import UserError
from data.stream import Bad, Dataset, Loaded
from zoo.distributed.control_group import Group
from zoo.trainer.protocol import Trainer


def evaluate(
    trainer: Trainer, stream: Iterator[Loaded], dataset: Dataset, metric, group: Group, report: Callable[[Bad], None]
) -> dict[str, float]:
    """Run the net over this rank's stream; the result of the metric over all ranks, and `bad`, the unreadable samples.

    Raises UserError at the first unreadable sample, unless data.eval_bad is `wrong`.
    """
    bad: list[Bad] = []
    for batch, failures in stream:
        group.set_status("evaluating")
        for failure in failures:
            if dataset.settings.eval_bad == "error":
                raise UserError(
                    f"evaluation: {failure.name}: {failure.reason}; mend or remove it, or count it as "
                    "wrong with -o data.eval_bad=wrong"
                )
        bad += failures
        device_batch = trainer.to_device(_inputs(batch, dataset))
        metric.update(trainer.predict(device_batch, batch["label"].shape[1:] or None), batch)
    everywhere = [Bad(**each) for found in group.all_gather([vars(failure) for failure in bad]) for each in found]
    for failure in everywhere:
        report(failure)
    return {**metric.result(group.sum(metric.state)), "bad": len(everywhere)}


def _inputs(batch: Batch, dataset: Dataset) -> Batch:
    """The pictures alone; views of a sample become rows: (B, V, ...) -> (B * V, ...)."""
    arrays = {field.name: batch[field.name] for field in dataset.fields if field.mean}
    return {name: array.reshape(-1, *array.shape[2:]) if dataset.views > 1 else array for name, array in arrays.items()}
