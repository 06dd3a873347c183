"""The outputs of zoo/tasks in numpy; see Output in zoo/trainer/protocol.py.

An exported graph may end in the probabilities, class maps or unit vectors that a program wants. The logarithm of
probabilities is as good as logits, from which it differs by one number per sample.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.tasks import classify, face, segment
from zoo.trainer.onnx.session import GraphFile
from zoo.trainer.protocol import Output
from zoo.trainer.resampling import resize_bilinear

Forward = Callable[[np.ndarray], np.ndarray]
Size = tuple[int, int]
TINY = np.finfo(np.float32).tiny


class Scores:
    """zoo.tasks.classify.Scores: logits float32 (N, K)."""

    def __init__(self, settings: classify.Scores, arch: Any, file: GraphFile):
        self.path, self.outputs = file.path, arch.num_classes
        self.has_probabilities = file.metadata.output.kind == "probabilities"

    def __call__(self, forward: Forward, images: Sequence[np.ndarray], size: Size | None) -> np.ndarray:
        scores = forward(images[0]).astype(np.float32)
        _check_shape(self.path, scores, (len(images[0]), self.outputs))
        return np.log(np.maximum(scores, TINY)) if self.has_probabilities else scores


class ClassMap:
    """zoo.tasks.segment.ClassMap for images uint8 (N, h, w, 3): class maps uint8 (N, *size)."""

    def __init__(self, settings: segment.ClassMap, arch: Any, file: GraphFile):
        self.settings, self.align_corners, self.outputs = settings, arch.align_corners, arch.num_classes
        self.path, self.has_classes = file.path, file.metadata.output.kind == "class_map"

    def __call__(self, forward: Forward, images: Sequence[np.ndarray], size: Size | None) -> np.ndarray:
        if self.has_classes:
            return self._classes(forward, images, size)
        passes = [(image, mirrored) for image in images for mirrored in (False, True)[: 1 + self.settings.flip]]
        total: Any = 0
        for image, mirrored in passes:
            scores = self._logits(forward, image[:, :, ::-1] if mirrored else image, size)
            scores = scores[..., ::-1] if mirrored else scores
            total = scores if len(passes) == 1 else total + _softmax(scores)
        return total.argmax(1).astype(np.uint8)

    def _logits(self, forward: Forward, image: np.ndarray, size: Size | None) -> np.ndarray:
        """Return the logits (N, K, *size) of one pass; where windows overlap, their mean."""
        samples, height, width = image.shape[:3]
        windows = segment.windows((height, width), self.settings)
        if len(windows) == 1:
            logits = self._forward(forward, image)
        else:
            logits = np.zeros((samples, self.outputs, height, width), np.float32)
            count = np.zeros((height, width), np.float32)
            for top, bottom, left, right in windows:
                logits[:, :, top:bottom, left:right] += self._forward(forward, image[:, top:bottom, left:right])
                count[top:bottom, left:right] += 1
            logits /= count
        return resize_bilinear(logits, size or (height, width), self.align_corners)

    def _forward(self, forward: Forward, image: np.ndarray) -> np.ndarray:
        logits = forward(image).astype(np.float32, copy=False)
        _check_shape(self.path, logits, (len(image), self.outputs, *image.shape[1:3]))
        return logits

    def _classes(self, forward: Forward, images: Sequence[np.ndarray], size: Size | None) -> np.ndarray:
        """Return the class maps of a graph that ends in them, which cannot be averaged or resized."""
        image = images[0]
        whole = len(segment.windows((image.shape[1], image.shape[2]), self.settings)) == 1
        if len(images) > 1 or self.settings.flip or not whole or (size or image.shape[1:3]) != image.shape[1:3]:
            raise UserError(
                f"{self.path} gives class maps, which can be neither averaged over scales, mirror images and windows "
                "nor resized: set data.base_size to the size of the images, data.eval_scales to [1.0] and task.flip to "
                "false, or export the checkpoint without --with-preprocessing"
            )
        labels = forward(image)
        _check_shape(self.path, labels, image.shape[:3])
        if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= self.outputs:
            raise UserError(f"{self.path}: its class map has values that are no classes; export the checkpoint again")
        return labels.astype(np.uint8)


class Embeddings:
    """zoo.tasks.face.Embeddings: float32 (N, 1 or 2, d), of the image and of its mirror image."""

    def __init__(self, settings: face.Embeddings, arch: Any, file: GraphFile):
        self.flip, self.path, self.size = settings.flip, file.path, arch.embedding
        if self.flip and file.metadata.output.kind == "unit_embedding":
            raise UserError(
                f"{file.path} gives embeddings of length 1, and those of an image and its mirror image are added "
                "before: give -o task.flip=false, or export the checkpoint without --with-preprocessing"
            )

    def __call__(self, forward: Forward, images: Sequence[np.ndarray], size: Size | None) -> np.ndarray:
        embeddings = [forward(image) for image in (images[0], images[0][:, :, ::-1])[: 1 + self.flip]]
        for each in embeddings:
            _check_shape(self.path, each, (len(images[0]), self.size))
        return np.stack(embeddings, 1).astype(np.float32)


IMPLEMENTATIONS: dict[type, type] = {
    classify.Scores: Scores,
    segment.ClassMap: ClassMap,
    face.Embeddings: Embeddings,
}


def build(settings: Any, arch: Any, file: GraphFile) -> Output:
    """Return the implementation of a task's output for an exported model of this architecture."""
    return IMPLEMENTATIONS[type(settings)](settings, arch, file)


def _softmax(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities of classes, the axis 1."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _check_shape(path: str, output: np.ndarray, expected: tuple[int, ...]) -> None:
    if output.shape != expected:
        raise UserError(
            f"{path}: its output has the shape {output.shape} instead of {expected}; export the checkpoint again"
        )
