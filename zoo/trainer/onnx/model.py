"""The predictions of an exported model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.data.batch import Batch
from zoo.data.errors import UserError
from zoo.data.loaders.dali_graph import DeviceImages
from zoo.trainer import preprocessing
from zoo.trainer.onnx import outputs
from zoo.trainer.onnx.session import GraphFile, Session
from zoo.trainer.onnx.world import World
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import NO_IMAGES, DeviceBatch, Param


class OnnxModel:
    """See Inference in zoo/trainer/protocol.py.

    Attributes:
        params: none; a graph's weights are constants.
    """

    params: tuple[Param, ...] = ()

    def __init__(self, file: GraphFile, arch: Any, plan: Plan, world: World):
        """Load the graph.

        Args:
            file: the exported model.
            arch: its architecture.
            plan: `fields` has its input first, `output` is the task's specification of predictions.
            world: this process.

        Raises:
            UserError: the graph cannot be loaded here, or cannot give such predictions.
        """
        self.session, self.input = Session(file, world), file.metadata.input
        self.field = plan.fields[0]
        self._check_normalization(file.path)
        constants = preprocessing.scale_and_offset(self.field) if self.input.normalized else None
        self.scale: np.ndarray | None = constants and constants[0]
        self.offset: np.ndarray | None = constants and constants[1]
        self.output = outputs.build(plan.output, arch, file)

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
                "tools/predict.py --stream, or export the checkpoint without --stream"
            )
        return self.output(self.forward, list(device_batch.values()), size)

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
        """Return the graph's input by its name."""
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
