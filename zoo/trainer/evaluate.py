"""A metric over a whole split: every sample counted once, whatever the batch and the number of ranks."""
from typing import Callable, Dict, Iterator, List

from data.batch import Batch
from data.errors import UserError
from data.stream import Bad, Dataset, Loaded
from zoo.trainer.group import Group
from zoo.trainer.protocol import Trainer


def evaluate(trainer: Trainer, stream: Iterator[Loaded], dataset: Dataset, metric, group: Group,
             report: Callable[[Bad], None]) -> Dict[str, float]:
    """Run the net over this rank's stream; the result of the metric over all ranks, and `bad`, the unreadable samples.

    Raises UserError at the first unreadable sample, unless data.eval_bad is `wrong`.
    """
    bad: List[Bad] = []
    for batch, failures in stream:
        group.at("evaluating")
        for failure in failures:
            if dataset.settings.eval_bad == "error":
                raise UserError(f"evaluation: {failure.name}: {failure.reason}; mend or remove it, or count it as "
                                "wrong with -o data.eval_bad=wrong")
        bad += failures
        metric.update(trainer.predict(trainer.put(_fold_views(batch, dataset))), batch)
    everywhere = [Bad(**each) for found in group.gather([vars(failure) for failure in bad]) for each in found]
    for failure in everywhere:
        report(failure)
    return {**metric.result(group.sum(metric.state)), "bad": len(everywhere)}


def _fold_views(batch: Batch, dataset: Dataset) -> Batch:
    """Views of a sample become rows: (B, V, ...) -> (B * V, ...), the net's input alone."""
    name = dataset.fields[0].name
    array = batch[name]
    return {name: array.reshape(-1, *array.shape[2:]) if dataset.views > 1 else array}
