"""The predictions of an exported model, by the outputs of zoo/tasks in numpy.

An exported graph may end in the probabilities, class maps or unit vectors that a program wants. The logarithm of
probabilities is as good as logits, from which it differs by one number per sample.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.data.batch import Batch
from zoo.data.errors import Option, UserError
from zoo.data.loaders.packed import DeviceImages
from zoo.tasks import Forward, Size, classify, face, segment
from zoo.trainer import numpy_ops
from zoo.trainer.onnx.world import GraphFile, Session, World
from zoo.trainer.pixels import scale_and_offset
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import NO_IMAGES, DeviceBatch, Param

TINY = np.finfo(np.float32).tiny
MAX_SHARE = np.float32(1 - 2**-24)  # probability of a class whose logit is finite
Predict = Callable[[Forward, Sequence[np.ndarray], Size | None], np.ndarray]


class OnnxModel:
    """See Inference in zoo/trainer/protocol.py.

    Attributes:
        params: none; a graph's weights are constants.
    """

    params: tuple[Param, ...] = ()

    def __init__(self, file: GraphFile, arch: Any, plan: Plan, world: World):
        """Load the graph.

        Args:
            plan: `fields` has its input first, `output` is the task's specification of predictions.
        """
        self.session, self.input = Session(file, world), file.metadata.input
        self.field = plan.fields[0]
        self._check_normalization(file.path)
        constants = scale_and_offset(self.field) if self.input.normalized else None
        self.scale: np.ndarray | None = constants and constants[0]
        self.offset: np.ndarray | None = constants and constants[1]
        self.output = build(plan.output, arch, file)

    def to_device(self, batch: Batch, images: Mapping[str, DeviceImages] = NO_IMAGES) -> DeviceBatch:
        """See Inference in zoo/trainer/protocol.py: ONNX Runtime copies its inputs itself."""
        assert not images, "none is decoded on a device without a cuda_index"
        return dict(batch)

    def predict(
        self, device_batch: DeviceBatch, size: tuple[int, int] | None = None, averaged: bool = False
    ) -> np.ndarray:
        """See Inference in zoo/trainer/protocol.py."""
        assert not averaged, "an exported model has one kind of weights"
        if self.session.metadata.states:
            raise UserError(
                f"{self.session.path} is a streaming graph, which takes a video frame by frame: give it to "
                "zoo predict --stream, or export the checkpoint without --stream"
            )
        return self.output(self.forward, list(device_batch.values()), size)

    def features(self, device_batch: DeviceBatch) -> np.ndarray:
        """Refuse: a graph has one output."""
        raise UserError(f"{self.session.path} gives no features: load the checkpoint that it was exported from")

    def predict_frame(
        self, device_batch: DeviceBatch, state: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, Sequence[np.ndarray]]:
        """See Inference in zoo/trainer/protocol.py."""
        names = [each.input for each in self.session.metadata.states]
        shapes = [each.shape[1:] for each in self.session.metadata.states]
        if not names or shapes != [each.shape[1:] for each in state]:
            raise UserError(
                f"{self.session.path} is no graph of single frames of this model: export the checkpoint of a causal "
                "model with --stream"
            )
        new_state: Sequence[np.ndarray] = ()

        def forward(frames: np.ndarray) -> np.ndarray:
            nonlocal new_state
            scores, *new_state = self.session.run({**self._input(frames), **dict(zip(names, state))})
            return scores

        logits = self.output(forward, [device_batch[self.field.name][:, 0]], None)
        return logits, new_state

    def forward(self, pixels: np.ndarray) -> np.ndarray:
        """Return the graph's output for pixels, uint8 (N, ..., 3)."""
        return self.session.run(self._input(pixels))[0]

    def _input(self, pixels: np.ndarray) -> dict[str, np.ndarray]:
        self._check_size(pixels.shape)
        return {self.input.name: np.ascontiguousarray(pixels) if self.scale is None else self._normalize(pixels)}

    def _normalize(self, pixels: np.ndarray) -> np.ndarray:
        """Return float32 (N, ..., 3, H, W), rounded as the frameworks round: a product, then a sum."""
        assert self.scale is not None and self.offset is not None
        normalized = np.empty((*pixels.shape[:-3], 3, *pixels.shape[-3:-1]), np.float32)
        for channel, (scale, offset) in enumerate(zip(self.scale, self.offset)):
            plane = normalized[..., channel, :, :]
            np.multiply(pixels[..., channel], scale, out=plane, dtype=np.float32)
            plane += offset
        return normalized

    def _check_normalization(self, path: str) -> None:
        """Refuse another normalization than that which the graph contains or was compared with."""
        ours, graph = (self.field.mean, self.field.std), (self.input.mean, self.input.std)
        if ours != graph:
            raise UserError(
                f"{path} was exported for pixels normalized by mean {list(graph[0])} and std {list(graph[1])}; leave "
                "out data.mean, data.std and data.normalisation"
            )

    def _check_size(self, shape: tuple[int, ...]) -> None:
        """Refuse pixels of a size that the graph does not take, before ONNX Runtime does in its own words."""
        batch, *frames = self.session.size[:-3]
        channels_last = self.input.layout.endswith("C")
        height, width = self.session.size[-3:-1] if channels_last else self.session.size[-2:]
        taken = (batch, *frames, height, width, 3)
        if len(taken) != len(shape) or any(size not in (None, given) for size, given in zip(taken, shape)):
            wanted = " x ".join("any" if size is None else str(size) for size in taken)
            raise UserError(
                f"{self.session.path} takes arrays of {wanted}, and these settings give {' x '.join(map(str, shape))}; "
                "give the settings that it was exported with, or export the checkpoint with others"
            )


def build(output: Any, arch: Any, file: GraphFile) -> Predict:
    """Return the predictions of a task by an exported model of this architecture, from its `forward`."""
    kind = file.metadata.output.kind
    if isinstance(output, face.Embeddings) and output.flip and kind == "unit_embedding":
        raise UserError(
            f"{file.path} gives embeddings of length 1, and those of an image and its mirror image are added "
            "before: give ",
            Option("task.flip", False),
            ", or export the checkpoint without --with-preprocessing",
        )

    def predict(forward: Forward, images: Sequence[np.ndarray], size: Size | None) -> np.ndarray:
        if kind == "class_map":
            return _classes(file.path, arch.num_classes, output, forward, images, size)

        def checked(image: np.ndarray) -> np.ndarray:
            scores = forward(image).astype(np.float32, copy=False)
            _check_shape(file.path, scores, _shape(output, arch, image))
            logits = np.log(np.maximum(scores, TINY)) if kind.endswith("probabilities") else scores
            return logits - np.log1p(-np.minimum(scores, MAX_SHARE)) if kind == "class_probabilities" else logits

        return output.predict(numpy_ops, arch, checked, images, size)

    return predict


def _shape(output: Any, arch: Any, image: np.ndarray) -> tuple[int, ...]:
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
