"""The outputs of zoo/tasks in PaddlePaddle: what a task makes, on the device, of what the model says of a batch.

model: pixels as they travel -> the model's output in fp32. images: the batch's pixels, at each scale of an evaluation.
"""

from collections.abc import Callable, Sequence

import paddle
import paddle.nn.functional as F

from zoo.tasks import classify, face, segment

Forward = Callable[[paddle.Tensor], paddle.Tensor]


class Scores:
    """zoo.tasks.classify.Scores."""

    def __call__(self, model: Forward, images: Sequence[paddle.Tensor], size: tuple[int, int] | None) -> paddle.Tensor:
        return model(images[0])


class ClassMap:
    """zoo.tasks.segment.ClassMap: images uint8 (N, h, w, 3); the map has the height and width `size`."""

    def __init__(self, settings: segment.ClassMap, arch):
        self.settings, self.align_corners = settings, arch.align_corners

    def __call__(self, model: Forward, images: Sequence[paddle.Tensor], size: tuple[int, int] | None) -> paddle.Tensor:
        passes = [(image, mirrored) for image in images for mirrored in (False, True)[: 1 + self.settings.flip]]
        total = 0  # Paddle mirrors no bytes on a CPU, hence the integers
        for image, mirrored in passes:
            scores = self._scores(model, paddle.flip(image.astype("int32"), 2) if mirrored else image, size)
            scores = paddle.flip(scores, 3) if mirrored else scores
            total = scores if len(passes) == 1 else total + F.softmax(scores, 1)
        return total.argmax(1).astype("uint8")

    def _scores(self, model: Forward, image: paddle.Tensor, size: tuple[int, int] | None) -> paddle.Tensor:
        """Logits (N, K, *size) of one pass, the mean of those of its windows."""
        parts = segment.windows(image.shape[1:3], self.settings)
        if len(parts) == 1:
            logits = model(image)
        else:
            logits = count = 0
            for top, bottom, left, right in parts:
                margins = [left, image.shape[2] - right, top, image.shape[1] - bottom]
                part = model(image[:, top:bottom, left:right])
                logits = logits + F.pad(part, margins)
                count = count + F.pad(paddle.ones_like(part[:, :1]), margins)
            logits = logits / count
        if size is None or logits.shape[2:] == list(size):
            return logits
        return F.interpolate(logits, list(size), mode="bilinear", align_corners=self.align_corners)


class Embeddings:
    """zoo.tasks.face.Embeddings: float32 (N, 1 or 2, d), of the picture and of its mirror image."""

    def __init__(self, settings: face.Embeddings):
        self.flip = settings.flip

    def __call__(self, model: Forward, images: Sequence[paddle.Tensor], size: tuple[int, int] | None) -> paddle.Tensor:
        found = [model(images[0])]
        if self.flip:  # Paddle mirrors no bytes on a CPU, hence the integers
            found.append(model(paddle.flip(images[0].astype("int32"), 2)))
        return paddle.stack(found, 1)


def build(output, arch) -> Scores | ClassMap | Embeddings:
    """The implementation of a task's output for a model of this architecture."""
    if isinstance(output, face.Embeddings):
        return Embeddings(output)
    if isinstance(output, classify.Scores):
        return Scores()
    if isinstance(output, segment.ClassMap):
        return ClassMap(output, arch)
    raise TypeError(f"no Paddle output for {output}")
