"""The outputs of zoo/tasks in PyTorch: what a task makes, on the device, of what the model says of a batch.

model: pixels as they travel -> the model's output in fp32. images: the batch's pixels, at each scale of an evaluation.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from zoo.tasks import classify, face, segment

Forward = Callable[[torch.Tensor], torch.Tensor]


class Scores:
    """zoo.tasks.classify.Scores."""

    def __call__(self, model: Forward, images: Sequence[torch.Tensor], size: tuple[int, int] | None) -> torch.Tensor:
        return model(images[0])


class ClassMap:
    """zoo.tasks.segment.ClassMap: images uint8 (N, h, w, 3); the map has the height and width `size`."""

    def __init__(self, settings: segment.ClassMap, arch):
        self.settings, self.align_corners = settings, arch.align_corners

    def __call__(self, model: Forward, images: Sequence[torch.Tensor], size: tuple[int, int] | None) -> torch.Tensor:
        passes = [(image, mirrored) for image in images for mirrored in (False, True)[: 1 + self.settings.flip]]
        total = 0
        for image, mirrored in passes:
            scores = self._scores(model, image.flip(2) if mirrored else image, size)
            scores = scores.flip(3) if mirrored else scores
            total = scores if len(passes) == 1 else total + scores.softmax(1)
        return total.argmax(1).to(torch.uint8)

    def _scores(self, model: Forward, image: torch.Tensor, size: tuple[int, int] | None) -> torch.Tensor:
        """Logits (N, K, *size) of one pass, the mean of those of its windows."""
        parts = segment.windows(image.shape[1:3], self.settings)
        if len(parts) == 1:
            logits = model(image)
        else:
            logits = count = 0
            for top, bottom, left, right in parts:
                margins = (left, image.shape[2] - right, top, image.shape[1] - bottom)
                part = model(image[:, top:bottom, left:right])
                logits = logits + F.pad(part, margins)
                count = count + F.pad(torch.ones_like(part[:, :1]), margins)
            logits = logits / count
        if size is None or logits.shape[2:] == tuple(size):
            return logits
        return F.interpolate(logits, tuple(size), mode="bilinear", align_corners=self.align_corners)


class Embeddings:
    """zoo.tasks.face.Embeddings: float32 (N, 1 or 2, d), of the picture and of its mirror image."""

    def __init__(self, settings: face.Embeddings):
        self.flip = settings.flip

    def __call__(self, model: Forward, images: Sequence[torch.Tensor], size: tuple[int, int] | None) -> torch.Tensor:
        found = [model(image) for image in (images[0], images[0].flip(2))[: 1 + self.flip]]
        return torch.stack(found, 1)


def build(output, arch) -> Scores | ClassMap | Embeddings:
    """The implementation of a task's output for a model of this architecture."""
    if isinstance(output, face.Embeddings):
        return Embeddings(output)
    if isinstance(output, classify.Scores):
        return Scores()
    if isinstance(output, segment.ClassMap):
        return ClassMap(output, arch)
    raise TypeError(f"no PyTorch output for {output}")
