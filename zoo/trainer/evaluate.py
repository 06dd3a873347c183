"""A metric over a whole split: every sample counted once, whatever the batch and the number of ranks."""
from typing import Callable, Dict, Iterator

from data.batch import Batch
from data.errors import UserError
from data.stream import Bad, Dataset, Loaded
from zoo.trainer.protocol import Trainer, World


def evaluate(trainer: Trainer, stream: Iterator[Loaded], dataset: Dataset, metric, world: World,
             report: Callable[[Bad], None]) -> Dict[str, float]:
    """Run the net over the stream; the result of the metric summed over ranks, and `bad`, the unreadable samples.

    Raises UserError at the first unreadable sample, unless data.eval_bad is `wrong`.
    """
    bad = 0
    for batch, failures in stream:
        for failure in failures:
            if dataset.settings.eval_bad == "error":
                raise UserError(f"evaluation: {failure.name}: {failure.reason}; mend or remove it, or count it as "
                                "wrong with -o data.eval_bad=wrong")
            bad += 1
            report(failure)
        metric.update(trainer.predict(trainer.put(_fold_views(batch, dataset))), batch)
    return {**metric.result(world.sum(metric.state)), "bad": bad}


def _fold_views(batch: Batch, dataset: Dataset) -> Batch:
    """Views of a sample become rows: (B, V, ...) -> (B * V, ...), the net's input alone."""
    name = dataset.fields[0].name
    array = batch[name]
    return {name: array.reshape(-1, *array.shape[2:]) if dataset.views > 1 else array}
