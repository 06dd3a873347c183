"""The predictions of exported graphs, by the outputs of zoo/tasks in numpy.

An exported graph may end in the probabilities, class maps or unit vectors that a program wants. The logarithm of
probabilities is as good as logits, from which it differs by one number per sample.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.tasks import Forward, Size, classify, face, segment
from zoo.trainer import numpy_ops
from zoo.trainer.onnx.session import GraphFile

TINY = np.finfo(np.float32).tiny
Predict = Callable[[Forward, Sequence[np.ndarray], Size | None], np.ndarray]


def build(output: Any, arch: Any, file: GraphFile) -> Predict:
    """Return the predictions of a task by an exported model of this architecture, from its `forward`.

    Raises:
        UserError: the graph cannot give them.
    """
    kind = file.metadata.output.kind
    if isinstance(output, face.Embeddings) and output.flip and kind == "unit_embedding":
        raise UserError(
            f"{file.path} gives embeddings of length 1, and those of an image and its mirror image are added "
            "before: give -o task.flip=false, or export the checkpoint without --with-preprocessing"
        )

    def predict(forward: Forward, images: Sequence[np.ndarray], size: Size | None) -> np.ndarray:
        if kind == "class_map":
            return _classes(file.path, arch.num_classes, output, forward, images, size)

        def checked(image: np.ndarray) -> np.ndarray:
            scores = forward(image).astype(np.float32, copy=False)
            _check_shape(file.path, scores, _shape(output, arch, image))
            return np.log(np.maximum(scores, TINY)) if kind == "probabilities" else scores

        return output.predict(numpy_ops, arch, checked, images, size)

    return predict


def _shape(output: Any, arch: Any, image: np.ndarray) -> tuple[int, ...]:
    """Return the shape of a graph's output for an input."""
    if isinstance(output, segment.ClassMap):
        return len(image), arch.num_classes, *image.shape[1:3]
    return len(image), arch.num_classes if isinstance(output, classify.Scores) else arch.embedding


def _classes(
    path: str, outputs: int, output: Any, forward: Forward, images: Sequence[np.ndarray], size: Size | None
) -> np.ndarray:
    """Return the class maps of a graph that ends in them, which cannot be averaged or resized."""
    image = images[0]
    whole = len(segment.windows((image.shape[1], image.shape[2]), output)) == 1
    if len(images) > 1 or output.flip or not whole or (size or image.shape[1:3]) != image.shape[1:3]:
        raise UserError(
            f"{path} gives class maps, which can be neither averaged over scales, mirror images and windows "
            "nor resized: set data.base_size to the size of the images, data.eval_scales to [1.0] and task.flip to "
            "false, or export the checkpoint without --with-preprocessing"
        )
    labels = forward(image)
    _check_shape(path, labels, image.shape[:3])
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= outputs:
        raise UserError(f"{path}: its class map has values that are no classes; export the checkpoint again")
    return labels.astype(np.uint8)


def _check_shape(path: str, output: np.ndarray, expected: tuple[int, ...]) -> None:
    if output.shape != expected:
        raise UserError(
            f"{path}: its output has the shape {output.shape} instead of {expected}; export the checkpoint again"
        )
