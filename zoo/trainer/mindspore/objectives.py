"""The objectives of zoo/tasks in MindSpore: `count` and `total`, as in zoo/trainer/torch/objectives.py."""
from typing import Dict

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.tasks import classify


class CrossEntropy(nn.Cell):
    """zoo.tasks.classify.CrossEntropy: logits (N, K), `label` (N,)."""
    targets = ("label",)

    def __init__(self, settings: classify.CrossEntropy):
        super().__init__()
        self.smoothing = settings.smoothing

    def count(self, batch: Dict[str, Tensor]) -> int:
        return len(batch["label"])

    def construct(self, logits: Tensor, label: Tensor) -> Tensor:
        """The sum of the losses, as one number."""
        losses = -ops.log_softmax(logits.astype(mstype.float32), -1)
        own = ops.gather_d(losses, 1, label.reshape(-1, 1)).sum()
        if self.smoothing == 0:
            return own
        return (1 - self.smoothing) * own + self.smoothing / logits.shape[1] * losses.sum()


def build(objective) -> CrossEntropy:
    """The implementation of a task's objective."""
    if isinstance(objective, classify.CrossEntropy):
        return CrossEntropy(objective)
    raise TypeError(f"no MindSpore objective for {objective}")
