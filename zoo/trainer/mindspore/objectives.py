"""The objectives of zoo/tasks in MindSpore: `count`, and `total` as `construct`, as in zoo/trainer/torch/objectives.py.

One that has a parameter of its own, split over ranks, names it in `shards`, and `begin` is called with all parts of an
update before it. It writes out its gradients itself: `construct` gives the total and its gradients by the model's output
and by the rows used.
"""

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.tasks import classify, face, segment
from zoo.trainer.mindspore.margin import Margin


class CrossEntropy(nn.Cell):
    """zoo.tasks.classify.CrossEntropy: logits (N, K), `label` (N,)."""

    targets = ("label",)
    equal_counts = True

    def __init__(self, settings: classify.CrossEntropy):
        super().__init__()
        self.smoothing = settings.smoothing

    def count(self, batch: dict[str, Tensor]) -> int:
        return len(batch["label"])

    def construct(self, logits: Tensor, label: Tensor) -> Tensor:
        """The sum of the losses, as one number."""
        losses = -ops.log_softmax(logits.astype(mstype.float32), -1)
        own = ops.gather_d(losses, 1, label.reshape(-1, 1)).sum()
        if self.smoothing == 0:
            return own
        return (1 - self.smoothing) * own + self.smoothing / logits.shape[1] * losses.sum()


class PixelCrossEntropy(nn.Cell):
    """zoo.tasks.segment.PixelCrossEntropy: several logits (N, K, H, W), `label` uint8 (N, H, W)."""

    targets = ("label",)

    def __init__(self, settings: segment.PixelCrossEntropy):
        super().__init__()
        self.equal_counts, self.aux_weight = settings.average == "all", settings.aux_weight
        self.kept, self.threshold = settings.kept, settings.threshold

    def count(self, batch: dict[str, Tensor]) -> int | Tensor:
        return batch["label"].size if self.equal_counts else (batch["label"] != segment.IGNORE_INDEX).astype(mstype.float32).sum()

    def construct(self, outputs, label: Tensor) -> Tensor:
        """The sum of the losses, as one number."""
        valid = label != segment.IGNORE_INDEX
        labels = ops.select(valid, label, ops.zeros_like(label)).astype(mstype.int32)
        losses = self.losses(outputs[0], labels, valid)
        if self.kept is not None:
            losses = losses * self.hard(ops.stop_gradient(losses), valid).astype(mstype.float32)
        total = losses.sum()
        for logits in outputs[1:]:
            total = total + self.aux_weight * self.losses(logits, labels, valid).sum()
        return total

    def losses(self, logits: Tensor, labels: Tensor, valid: Tensor) -> Tensor:
        # By products with 0 and 1: picking the label's own logit, and its gradient, takes three times as long on a CPU.
        wide = logits.astype(mstype.float32)
        shifted = wide - ops.stop_gradient(wide.max(1, keepdims=True))
        classes = ops.arange(logits.shape[1]).astype(mstype.int32).reshape(1, -1, 1, 1)
        own = (shifted * (labels.expand_dims(1) == classes).astype(mstype.float32)).sum(1)
        return (ops.log(ops.exp(shifted).sum(1)) - own) * valid.astype(mstype.float32)

    def hard(self, losses: Tensor, valid: Tensor) -> Tensor:
        """Which pixels to train on: bool (N, H, W)."""
        kept = self.kept * losses.shape[0]
        if self.threshold is None:
            ranked = ops.sort(ops.select(valid, losses, -ops.ones_like(losses)).reshape(-1), -1, True)[0]
            return ops.logical_and(valid, losses >= ranked[min(kept, losses.size) - 1])
        own = ops.exp(-losses)  # the probability of a pixel's own class
        ranked = ops.sort(ops.select(valid, own, 2 * ops.ones_like(own)).reshape(-1))[0]
        index = ops.clamp(valid.astype(mstype.int32).sum() - 1, 0, kept)
        edge = ops.maximum(ops.gather(ranked, index, 0), self.threshold)
        return ops.logical_and(valid, own < edge)


def build(objective, arch=None, plan=None, world=None) -> CrossEntropy | PixelCrossEntropy | Margin:
    """The implementation of a task's objective. arch, plan, world: for one that has parameters of its own."""
    if isinstance(objective, face.Margin):
        return Margin(objective, arch, plan, world)
    if isinstance(objective, segment.PixelCrossEntropy):
        return PixelCrossEntropy(objective)
    if isinstance(objective, classify.CrossEntropy):
        return CrossEntropy(objective)
    raise TypeError(f"no MindSpore objective for {objective}")
