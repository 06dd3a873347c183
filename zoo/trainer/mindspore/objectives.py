"""The objectives of zoo/trainer/objectives.py as cells; that of face models is in partial_fc.py.

`total` is `construct`, which takes the model's output and the batch's fields `targets`. An objective with shards
computes its gradients itself: its `construct` also returns those with respect to the output and to the active rows.
"""

from typing import Any

from mindspore import Tensor, jit_class, nn
from mindspore import dtype as mstype

from zoo.trainer.mindspore import ops
from zoo.trainer.mindspore.partial_fc import Margin
from zoo.trainer.mindspore.world import World
from zoo.trainer.objectives import OBJECTIVES
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import DeviceBatch


class Objective(nn.Cell):
    """Objective without parameters of its own."""

    def __init__(self, settings: Any, plan: Plan):
        super().__init__()
        self.settings = settings
        kind = jit_class(OBJECTIVES[settings.task])
        dtype = mstype.float64 if plan.mode.is_fp64 else mstype.float32
        objective = self.objective = kind(ops, settings, plan, dtype, dtype)
        self.equal_counts, self.targets = objective.equal_counts, objective.targets
        self.shards, self.statistics, self.begin = objective.shards, objective.statistics, objective.begin
        for name in ("loss", "aux_loss"):
            if hasattr(objective, name):
                setattr(objective, name, ops.compiled(getattr(objective, name)))

    def count(self, batch: DeviceBatch) -> int | Tensor:
        return self.objective.count(batch)

    def construct(self, output, *targets):
        """Compute the sum of the losses."""
        return self.objective.total(output, *targets)


def build_objective(settings: Any, arch: Any, plan: Plan, world: World | None = None) -> Objective | Margin:
    """Return the objective of section `task:`; world: needed by one with parameters of its own."""
    if settings.task == "face":
        assert world
        return Margin(settings, arch, plan, world)
    return Objective(settings, plan)
