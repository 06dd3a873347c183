"""The logs of a run: its journal, and what shows it."""

from zoo.config.convert import plain
from zoo.logs import airank, listeners
from zoo.logs.console import Console
from zoo.logs.journal import Journal
from zoo.logs.viewers import TensorBoard, Viewer, WeightsAndBiases
from zoo.run.cli import Request


def open_logs(folder: str, request: Request, recipe: str, console: Console) -> tuple[Journal, list[Viewer]]:
    """Open the journal of a run with all its listeners. Called by rank 0.

    Args:
        folder: of the run.
        request: the run.
        recipe: the resolved recipe, as text.
        console: listens too.

    Returns:
        The journal, and those of its listeners that show images, histograms and text.
    """
    cfg = request.config
    viewers: list[Viewer] = [TensorBoard(folder, recipe)]
    if request.wandb:
        entries = {key: plain(entry.value) for key, entry in request.resolved.items()}
        viewers.append(WeightsAndBiases(folder, request.wandb, entries))
    airank_log = airank.Writer(folder, cfg.target, cfg.warmup_epochs)
    journal = Journal(folder, [console, *viewers, airank_log, *listeners.open_listeners(folder, cfg)])
    return journal, viewers
