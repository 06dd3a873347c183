"""All planted faults: files by subject, each with a list `FAULTS`."""

from tests.mutants.fault import Fault
from tests.mutants.faults import (
    averages,
    data,
    data_checks,
    losses,
    mindspore_losses,
    mindspore_models,
    mindspore_updates,
    optimizers,
    paddle_losses,
    paddle_models,
    paddle_updates,
    specifications,
    torch_losses,
    torch_models,
    torch_updates,
)
from tests.mutants.jobs import FRAMEWORKS

UPDATES = (torch_updates, paddle_updates, mindspore_updates, optimizers, averages)
LOSSES = (torch_losses, paddle_losses, mindspore_losses, losses)
MODELS = (torch_models, paddle_models, mindspore_models)
SHARED = (data, specifications, data_checks)


def rank(fault: Fault) -> int:
    """Return the place of a fault's framework in the list of all."""
    return FRAMEWORKS.index(fault.framework)


FAULTS = sorted((fault for part in (*UPDATES, *LOSSES, *MODELS, *SHARED) for fault in part.FAULTS), key=rank)
