"""The comparison of a graph with the framework's own output, without which nothing is written."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import Finding, UserError
from zoo.export import assembly, proof
from zoo.export.proof import Forward, Row
from zoo.models import load_graph
from zoo.predict.stream import shapes_of
from zoo.run.trained import Trained
from zoo.trainer.pixels import normalize
from zoo.trainer.protocol import Trainer
from zoo.weights.onnx_file import State

SHARE_OF_CHANGE = 0.5  # of the framework's change by reversed frames, which the graph's must have at least
MIN_FRAMES = 64  # of a stream in the proof


class Reference(NamedTuple):
    """The model that a graph is compared with.

    Attributes:
        trainer: its model in the framework, of proof.load_trainer.
        batches: uint8 (N, ..., 3).
        with_preprocessing: whether graphs take pixels as they are, and end in what a program does with the output.
        raw_output: whether they end in the output of the model in any case.
    """

    source: Trained
    trainer: Trainer
    batches: Sequence[np.ndarray]
    with_preprocessing: bool
    raw_output: bool = False

    @property
    def kind(self) -> str:
        """Output of the graphs; see zoo.weights.onnx_file.Output."""
        return assembly.output_kind(self.source, self.with_preprocessing and not self.raw_output)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the graph's input without the batch, channels last."""
        return self.batches[0].shape[1:]

    @property
    def states(self) -> tuple[State, ...]:
        return ()

    def build(self) -> Any:
        """Return the graph to compare, an onnx.ModelProto in fp32."""
        return assembly.build(self.source, self.shape, self.with_preprocessing, self.kind)

    def compare(self, model: Any, limit: float = math.inf) -> list[Row]:
        """Compare a graph on all batches, and on clips whose frames are reversed, too.

        Args:
            limit: of the relative difference; above it, no frames are reversed.
        """
        run = proof.runner(self.source, proof.start(model.SerializeToString()), self.with_preprocessing)
        compared = [self._compare_batch(run, pixels) for pixels in self.batches]
        if proof.largest(compared) <= limit and depends_on_order(self.source):
            compared += [self._compare_reversed(run, pixels) for pixels in self.batches]
        return compared

    def cause(self, compared: Sequence[Row]) -> str:
        """Return where a graph differs. compared: what `compare` returned."""
        _, pixels = max(zip(compared, self.batches), key=lambda pair: pair[0].difference)
        return proof.find_cause(self.source, self.trainer, pixels, self.with_preprocessing)

    def _compare_batch(self, run: Forward, pixels: np.ndarray) -> Row:
        expected = proof.forward(self.trainer, self.source, pixels)
        if not np.isfinite(expected).all():
            raise UserError("the framework's own output is not finite; the weights may be those of a run that diverged")
        return Row("", pixels.shape, proof.difference(run(pixels), expected, self.kind))

    def _compare_reversed(self, run: Forward, pixels: np.ndarray) -> Row:
        reverse = np.ascontiguousarray(pixels[:, ::-1])
        expected = proof.forward(self.trainer, self.source, reverse)
        before = proof.forward(self.trainer, self.source, pixels)
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
            raise Finding(
                f"reversing the frames changes the framework's output by {of_framework:.1e} and the graph's by "
                f"{of_graph:.1e}: the graph does not look at the order of frames as the model does"
            )
        return Row("frames reversed", pixels.shape, proof.difference(found, expected, self.kind))


def depends_on_order(source: Trained) -> bool:
    """Return whether a model takes clips and looks at the order of their frames."""
    return len(source.fields[0].shape) == 4 and getattr(source.arch, "shift_place", "") != "none"


def check_stream(source: Trained, precision: str) -> None:
    """Raise UserError unless the model of a checkpoint is causal, and the precision one that a stream can have."""
    if precision == "int8":
        raise UserError("--stream: int8 would need the ranges of the states; take --precision fp16 or fp32")
    shapes_of(source.model, source.arch, (source.cfg.data.size,) * 2)


class StreamReference(Reference):
    """The model that the graph of a frame is compared with: frames of clips one after the other, and whole clips."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a frame, channels last."""
        return self.batches[0].shape[2:]

    @property
    def states(self) -> tuple[State, ...]:
        shapes = shapes_of(self.source.model, self.source.arch, self.shape[:2])
        return tuple(State(f"state_{i}", f"next_state_{i}", (1, *shape)) for i, shape in enumerate(shapes))

    def build(self) -> Any:
        from zoo.models.onnx_graph import Graph  # imports onnx

        graph = Graph(self.source.tensors)
        x = assembly.add_input(graph, self.source, self.shape, self.with_preprocessing)
        given = [graph.input(state.input, ("batch", *state.shape[1:])) for state in self.states]
        y, kept = load_graph(self.source.model).build_frame(graph, self.source.arch, x, given)
        y = assembly.finish(graph.scope(assembly.POSTPROCESSING), y, self.kind)
        graph.output(assembly.OUTPUT, y, ("batch", graph.size(y, 1)))
        for state, value in zip(self.states, kept, strict=True):
            graph.output(state.output, value, ("batch", *state.shape[1:]))
        return graph.model(self.source.model, {})

    def compare(self, model: Any, limit: float = math.inf) -> list[Row]:
        """Compare a graph frame by frame, and the mean of its logits over the frames with those of the whole clip.

        A wrong state shows in the frames after it.
        """
        session = proof.start(model.SerializeToString())
        compared: list[Row] = []
        for pixels in self.batches:
            difference, outputs = self._compare_frames(session, pixels)
            compared.append(Row("frame by frame", pixels.shape, difference))
            if self.kind == "logits" and difference <= limit:
                clip = proof.forward(self.trainer, self.source, pixels)
                mean = np.mean(outputs[: pixels.shape[1]], 0)
                compared.append(Row("mean, and clip", pixels.shape, proof.relative(mean, clip)))
        return compared

    def cause(self, compared: Sequence[Row]) -> str:
        """Return where a graph differs."""
        return f"look at build_frame of zoo/models/{self.source.model}/onnx.py, or export without --stream first"

    def _compare_frames(self, session: Any, pixels: np.ndarray) -> tuple[float, list[np.ndarray]]:
        """Return the largest difference of all frames of clips (N, T, H, W, 3), and the graph's outputs.

        A single clip is repeated until it has MIN_FRAMES frames: the state is passed on as often.
        """
        zeros = [np.zeros((len(pixels), *state.shape[1:]), np.float32) for state in self.states]
        theirs: Any = tuple(self.trainer.to_device({f"{i}": array for i, array in enumerate(zeros)}).values())
        ours, largest, outputs = zeros, 0.0, []
        for t in range(max(pixels.shape[1], MIN_FRAMES) if len(pixels) == 1 else pixels.shape[1]):
            frame = np.ascontiguousarray(pixels[:, t % pixels.shape[1]])
            expected, theirs = proof.forward_frame(self.trainer, self.source, frame, theirs)
            x = frame if self.with_preprocessing else normalize(frame, self.source.fields[0])
            feeds = {assembly.INPUT: x, **{state.input: array for state, array in zip(self.states, ours)}}
            found, *ours = session.run(None, feeds)
            outputs.append(found)
            largest = max(largest, proof.difference(found, expected, self.kind))
        return largest, outputs
