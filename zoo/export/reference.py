"""The comparison of a graph with the framework's own output, without which nothing is written."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import UserError
from zoo.export import assembly, causes, native, proof
from zoo.export.proof import Forward, Row
from zoo.export.source import Source
from zoo.trainer.protocol import Trainer
from zoo.weights.onnx_metadata import State

SHARE_OF_CHANGE = 0.5  # of the framework's change by reversed frames, which the graph's must have at least


class Reference(NamedTuple):
    """What a graph is compared with.

    Attributes:
        source: the checkpoint.
        trainer: its model in the framework, of native.build.
        batches: uint8 (N, ..., 3).
        with_preprocessing: whether graphs take pixels as they are, and end in what a program does with the output.
        raw_output: whether they end in the output of the model in any case.
    """

    source: Source
    trainer: Trainer
    batches: Sequence[np.ndarray]
    with_preprocessing: bool
    raw_output: bool = False

    @property
    def kind(self) -> str:
        """Output of the graphs; see zoo.weights.onnx_metadata.Output."""
        return assembly.output_kind(self.source, self.with_preprocessing and not self.raw_output)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the graph's input without the batch, channels last."""
        return self.batches[0].shape[1:]

    @property
    def states(self) -> tuple[State, ...]:
        """States of the graph: none."""
        return ()

    def build(self) -> Any:
        """Return the graph to compare, an onnx.ModelProto in fp32."""
        return assembly.build(self.source, self.shape, self.with_preprocessing, self.kind)

    def compare(self, model: Any, limit: float = math.inf) -> list[Row]:
        """Compare a graph on all batches, and on clips whose frames are reversed, too.

        Args:
            model: onnx.ModelProto.
            limit: of the relative difference; above it, no frames are reversed.

        Raises:
            UserError: the framework's output is not finite or does not depend on the order, so that nothing is proven;
                or the graph's output depends on it less.
        """
        run = proof.runner(self.source, proof.start(model.SerializeToString()), self.with_preprocessing)
        compared = [self._compare_batch(run, pixels) for pixels in self.batches]
        if proof.largest(compared) <= limit and depends_on_order(self.source):
            compared += [self._compare_reversed(run, pixels) for pixels in self.batches]
        return compared

    def cause(self, compared: Sequence[Row]) -> str:
        """Return where a graph differs. compared: what `compare` returned."""
        _, pixels = max(zip(compared, self.batches), key=lambda pair: pair[0].difference)
        return causes.find(self.source, self.trainer, pixels, self.with_preprocessing)

    def _compare_batch(self, run: Forward, pixels: np.ndarray) -> Row:
        expected = native.forward(self.trainer, self.source, pixels)
        if not np.isfinite(expected).all():
            raise UserError("the framework's own output is not finite; the weights may be those of a run that diverged")
        return Row("", pixels.shape, proof.difference(run(pixels), expected, self.kind))

    def _compare_reversed(self, run: Forward, pixels: np.ndarray) -> Row:
        reverse = np.ascontiguousarray(pixels[:, ::-1])
        expected = native.forward(self.trainer, self.source, reverse)
        before = native.forward(self.trainer, self.source, pixels)
        of_framework = proof.relative(proof.finish(expected, self.kind), proof.finish(before, self.kind))
        if of_framework <= proof.LIMIT:
            raise UserError(
                "reversing the frames of these clips changes the framework's output by no more than "
                f"{of_framework:.1e}, so they cannot prove that the graph looks at the order of frames; give clips "
                "that move with --samples FILE ..."
            )
        found = run(reverse)
        of_graph = proof.relative(found, run(pixels))
        if of_graph < SHARE_OF_CHANGE * of_framework:
            raise UserError(
                f"reversing the frames changes the framework's output by {of_framework:.1e} and the graph's by "
                f"{of_graph:.1e}: the graph does not look at the order of frames as the model does"
            )
        return Row("frames reversed", pixels.shape, proof.difference(found, expected, self.kind))


def depends_on_order(source: Source) -> bool:
    """Return whether a model takes clips and looks at the order of their frames."""
    return len(source.fields[0].shape) == 4 and getattr(source.arch, "shift_place", "") != "none"
