"""The outputs of zoo/tasks in MindSpore; see Output in zoo/trainer/protocol.py."""

from collections.abc import Callable, Sequence
from typing import Any

from mindspore import Tensor, ops
from mindspore import dtype as mstype

from zoo.tasks import classify, face, segment
from zoo.trainer.protocol import Output

Forward = Callable[[Tensor], Tensor]
Size = tuple[int, int]


class Scores:
    """zoo.tasks.classify.Scores: logits (N, K)."""

    def __init__(self, settings: classify.Scores, *_: Any):
        pass

    def __call__(self, forward: Forward, images: Sequence[Tensor], size: Size | None) -> Tensor:
        return forward(images[0])


class ClassMap:
    """zoo.tasks.segment.ClassMap for images uint8 (N, h, w, 3): class maps uint8 (N, *size)."""

    def __init__(self, settings: segment.ClassMap, arch: Any):
        self.settings, self.align_corners = settings, arch.align_corners

    def __call__(self, forward: Forward, images: Sequence[Tensor], size: Size | None) -> Tensor:
        passes = [(image, mirrored) for image in images for mirrored in (False, True)[: 1 + self.settings.flip]]
        total: Any = 0
        for image, mirrored in passes:
            scores = self._logits(forward, ops.flip(image, (2,)) if mirrored else image, size)
            scores = ops.flip(scores, (3,)) if mirrored else scores
            total = scores if len(passes) == 1 else total + ops.softmax(scores, 1)
        return total.argmax(1).astype(mstype.uint8)

    def _logits(self, forward: Forward, image: Tensor, size: Size | None) -> Tensor:
        """Return the logits (N, K, *size) of one pass; where windows overlap, their mean."""
        height, width = image.shape[1:3]
        windows = segment.windows((height, width), self.settings)
        if len(windows) == 1:
            logits = forward(image)
        else:
            total: Any = 0
            count: Any = 0
            for top, bottom, left, right in windows:
                padding = (left, width - right, top, height - bottom)
                window_logits = forward(image[:, top:bottom, left:right])
                total = total + ops.pad(window_logits, padding)
                count = count + ops.pad(ops.ones_like(window_logits[:, :1]), padding)
            logits = total / count
        if size is None or logits.shape[2:] == tuple(size):
            return logits
        return ops.interpolate(logits, tuple(size), mode="bilinear", align_corners=self.align_corners)


class Embeddings:
    """zoo.tasks.face.Embeddings: float32 (N, 1 or 2, d), of the image and of its mirror image."""

    def __init__(self, settings: face.Embeddings, *_: Any):
        self.flip = settings.flip

    def __call__(self, forward: Forward, images: Sequence[Tensor], size: Size | None) -> Tensor:
        views = [images[0], ops.flip(images[0], (2,))] if self.flip else [images[0]]
        return ops.stack([forward(view) for view in views], 1)


IMPLEMENTATIONS: dict[type, type] = {
    classify.Scores: Scores,
    segment.ClassMap: ClassMap,
    face.Embeddings: Embeddings,
}


def build(settings: Any, arch: Any) -> Output:
    """Return the implementation of a task's output for a model of this architecture."""
    return IMPLEMENTATIONS[type(settings)](settings, arch)
