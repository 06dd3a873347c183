"""Updates in MindSpore: a file for each specification in zoo/optim, of the same name, with a class `Optimizer`."""

import importlib

from zoo.trainer.mindspore.optimizers.elementwise import Elementwise
from zoo.trainer.plan import Plan


def build(plan: Plan, skips_on_host: bool, world_size: int = 1) -> Elementwise:
    """Return the update of a parameter as a cell.

    Args:
        plan: specification of the optimizer.
        skips_on_host: whether updates that are skipped are not called; otherwise they change nothing.
        world_size: ranks that hold other rows of the parameter, this one included.
    """
    module = importlib.import_module(f"zoo.trainer.mindspore.optimizers.{plan.optimizer.name}")
    return module.Optimizer(plan, skips_on_host, world_size)
