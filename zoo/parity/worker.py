"""The process of one side: it builds the model, describes it, and runs the passes that its parent asks for.

Requests come as JSON, one per line of the standard input; results go to files, and an answer of one line to a file
descriptor of the parent. The process needs numpy, safetensors and the side's framework alone.
"""

import importlib
import json
import os
import sys
import traceback
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.errors import UserError
from zoo.parity import checkpoints, losses, mapping, updates
from zoo.parity.nesting import EVALUATION
from zoo.parity.probe import Archive, Partner, Probe, axes
from zoo.parity.record import Record, empty
from zoo.parity.record import load as load_record
from zoo.parity.recorders.common import Objective
from zoo.parity.recording import relative
from zoo.parity.search import TRAINING, Search, small
from zoo.parity.side import INPUTS, MATCH, NAMES, OUTLINE, WEIGHTS, Order, Side, load
from zoo.weights import files

VARIATION = 0.1  # of the elements of initial weights that are all the same
FRAMES = 6  # lines of a traceback that an error shows
ARCHIVE = "tensors"  # folder


class Worker:
    """A side.

    Args:
        folder: for its results; that of the inputs lies around it.
    """

    def __init__(self, side: Side, folder: str):
        self.side, self.folder = side, Path(folder)
        inputs, metadata = files.read(str(self.folder.parent / INPUTS))
        self.inputs = {name: inputs[name] for name in json.loads(metadata[NAMES])}
        self.own = self.inputs  # as the side has them
        if side.channels_last:
            self.own = {name: np.moveaxis(v, 1, -1) if v.ndim > 3 else v for name, v in self.inputs.items()}
        self.given = self.own  # those that the model gets
        self.recorder = importlib.import_module(f"zoo.parity.recorders.{side.framework}")
        if hasattr(self.recorder, "start"):  # of a framework that makes tensors on one device
            self.recorder.start(side.device)

    def build(self, precision: str) -> Any:
        """Return a new model, or that of an ONNX file."""
        if hasattr(self.recorder, "set_precision"):  # of a framework in which it is no property of the model
            self.recorder.set_precision(precision)
        source = self.side.model if self.side.framework == "onnx" else load(self.side.model)()
        if source is None:
            raise UserError(f"{self.side.model} returns None, and no model")
        model = self.recorder.Model(source, precision, self.side.device, self.side.compile)
        if hasattr(model, "prepare"):  # whose tensors are made for its inputs
            model.prepare(self.given)
        return model

    def outline(self, withheld: Sequence[str]) -> dict[str, Any]:
        """Describe the model by a pass in evaluation mode; write its weights, without constant tensors.

        Args:
            withheld: inputs that are not the model's.
        """
        self.given = {name: value for name, value in self.own.items() if name.partition(".")[0] not in withheld}
        model, record = self.build("fp32"), empty(self.side.framework, "fp32", {})
        probe = Probe(model.modules(), record, EVALUATION)
        model.run(self.given, probe, None)
        probe.close()
        record.save(str(self.folder / OUTLINE))
        tensors = model.tensors()
        files.write(str(self.folder / WEIGHTS), varied(model.arrays(), {each.name: each.role for each in tensors}), {})
        return {
            "precisions": list(self.recorder.precisions(self.side.device)),
            "has_gradients": self.recorder.HAS_GRADIENTS,
            "tensors": [list(tensor) for tensor in tensors],
            "dropout": model.dropout(),
        }

    def record(self, **words: Any) -> dict[str, Any]:
        """Run the passes and updates of an order, and write their record."""
        order = Order(**{**words, "forced": tuple((name, number) for name, number in words["forced"])})
        record = empty(self.side.framework, order.precision, {"magnitudes": {}, "guesses": {}})
        model, source = self.build(order.precision), Path(order.partner or self.folder)
        matched = None if order.partner is None else self._matched()
        arrays, _ = files.read(str(source / WEIGHTS))
        model.load(arrays if matched is None else mapping.convert(matched, arrays))
        record.settings["places"] = {
            key: place for key in ("loss", "optimizer") if (place := place_of(getattr(self.side, key)))
        }
        record.settings["magnitudes"] = {name: float(np.abs(value).max(initial=0)) for name, value in arrays.items()}
        passes = _Passes(
            self, model, record, order, matched, Archive(source / ARCHIVE / (order.reference or order.name))
        )
        passes.evaluate()
        if self.recorder.HAS_GRADIENTS and order.trains:
            passes.train()
        path = self.folder / f"{order.name}.safetensors"
        path.unlink(missing_ok=True)
        record.save(str(path))
        return {}

    def restore(self, path: str | None, label: str) -> dict[str, Any]:
        """Load a checkpoint of the side's framework, and write the weights that the model then has.

        Args:
            path: of tensors as the framework stores them, .safetensors; None for those that the model has.
            label: of the file that they are from, for messages.
        """
        model = self.build("fp32")
        own = model.state()
        tensors, left_out = checkpoints.fit(label, own if path is None else files.read(path)[0], own)
        if missing := model.restore(tensors):
            raise UserError(checkpoints.lacks(label, missing, left_out))
        (self.folder / WEIGHTS).unlink(missing_ok=True)
        files.write(str(self.folder / WEIGHTS), model.arrays())
        return {"left_out": left_out}

    def save(self, partner: str, path: str) -> dict[str, Any]:
        """Write a checkpoint with the weights of a reference in another folder, as the side's framework does."""
        model = self.build("fp32")
        model.load(mapping.convert(self._matched(), files.read(str(Path(partner) / WEIGHTS))[0]))
        files.write(path, model.state()) if path.endswith(".safetensors") else self.recorder.save(path, model.state())
        return {}

    def _matched(self) -> mapping.Match:
        return mapping.from_json((self.folder / MATCH).read_text(encoding="utf-8"))


class _Passes:
    """The passes of one record."""

    def __init__(
        self,
        worker: Worker,
        model: Any,
        record: Record,
        order: Order,
        matched: mapping.Match | None,
        archive: Archive,
    ):
        self.worker, self.model, self.record, self.order = worker, model, record, order
        self.matched, self.archive = matched, archive
        reference = f"{order.partner}/{order.reference}.safetensors"
        self.reference = load_record(reference) if order.partner else None
        self.search: Search | None = None
        if self.reference is not None and matched is not None:
            library = getattr(worker.recorder, "OPTIMIZERS", worker.side.framework)
            side, precision = worker.side, order.precision
            self.search = Search(model, side, library, precision, self.reference, matched, archive)
            record.settings["guesses"] = self.search.guesses
        trained = {tensor.name for tensor in model.tensors() if tensor.is_trained}
        sources = None if matched is None else matched.tensors
        self.trained = (
            trained if sources is None else {n for name in trained & sources.keys() for n in sources[name].names}
        )

    def evaluate(self) -> None:
        probe = self._probe(EVALUATION)
        self.model.run(self.worker.given, probe, None)
        probe.close()

    def train(self) -> None:
        """Run a pass with gradients, and the updates.

        A model whose modules get the reference's tensors gets its gradients, too: so the optimizer is judged alone.
        """
        order, step = self.order, self._step()
        before = self._tensors(step is not None)
        start, history = small(before), list[dict[str, np.ndarray]]()
        for number in range(max(1, order.updates)):
            loss, gradients = self._gradients(number) if not (order.forced and number) else (None, {})
            if step is not None:
                step(self._reference_gradients(number) if order.forced else gradients)
            after = self._tensors(step is not None)
            self._add(f"update {number + 1}", loss, before, after, self._named(gradients))
            history.append(small(after))
            before = after
            if order.partner is None and order.keeps:
                self._archive(number, gradients, after)
        if order.forced:
            self._search(start, history)

    def _search(self, start: Mapping[str, np.ndarray], history: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Search the causes of what differs behind the modules."""
        assert self.search is not None
        self.search.loss(self.record.steps[0]["loss"], self.worker.inputs)
        self.search.statistics(start, history[0])
        self.search.updates(self.trained, start, history)

    def _tensors(self, with_trained: bool) -> dict[str, np.ndarray]:
        """Return tensors of the model by the reference's names: all, or the statistics."""
        named = self._named(self.model.arrays())
        return {name: value for name, value in named.items() if with_trained or name not in self.trained}

    def _gradients(self, number: int) -> tuple[float | None, dict[str, np.ndarray]]:
        """Run forward and backward; the first time, with a probe."""
        worker = self.worker
        weighting = losses.Weighting(self.order.loss, worker.inputs, self._like_reference)
        probe = self._probe(TRAINING) if number == 0 else None
        loss = load(worker.side.loss) if worker.side.loss else None
        result = self.model.run(worker.given, probe, Objective(weighting, worker.own, loss))
        if probe is not None:
            probe.close()
        if loss is not None and result.loss is None:
            raise UserError(f"{worker.side.loss} returns None, and no loss")
        return (result.loss if weighting.loss is None else weighting.loss), result.gradients

    def _add(
        self,
        title: str,
        loss: float | None,
        before: Mapping[str, np.ndarray],
        after: Mapping[str, np.ndarray],
        gradients: Mapping[str, np.ndarray],
    ) -> None:
        norm = float(np.sqrt(sum(float(np.square(value).sum()) for value in gradients.values())))
        if loss is not None:
            self.record.add(f"{title}/loss", np.array(loss))
        for name, gradient in gradients.items():
            self.record.add(f"{title}/gradient/{name}", gradient)
        if loss is not None and self.trained - gradients.keys():
            # zeros for what the backward pass does not reach, if it has an array of its own (a summed bias has none)
            for name, array in self._tensors(True).items():
                if name in self.trained and name not in gradients:
                    self.record.add(f"{title}/gradient/{name}", np.zeros(array.shape))
        for name, value in after.items():
            if name in self.trained:
                self.record.add(f"{title}/change/{name}", value - before[name])
            elif loss is not None:
                self.record.add(f"{title}/statistic/{name}", value)
        self.record.steps.append({"title": title, "loss": loss, "grad_norm": norm})

    def _step(self) -> Callable[[Mapping[str, np.ndarray]], None] | None:
        """Return the function that updates the weights along gradients."""
        if self.worker.side.optimizer:
            return self.model.optimizer(load(self.worker.side.optimizer))
        return updates.Optimizer(self.order.optimizer, self.model).step if self.order.optimizer else None

    def _archive(self, number: int, gradients: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> None:
        """Keep the gradients of an update and, of small tensors, what it has made of them."""
        for name, gradient in gradients.items():
            self.archive.save(f"gradient{number}/{name}", gradient)
        for name, value in small(after).items():
            self.archive.save(f"after{number}/{name}", value)

    def _reference_gradients(self, number: int) -> dict[str, np.ndarray]:
        assert self.matched is not None
        loaded = {name: self.archive.load(f"gradient{number}/{name}") for name in self.trained}
        found = {name: array for name, array in loaded.items() if array is not None}
        whole = {name: each for name, each in self.matched.tensors.items() if found.keys() >= {*each.names}}
        return mapping.convert(self.matched._replace(tensors=whole), found)

    def _named(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return tensors of the model by the reference's names."""
        return dict(arrays) if self.matched is None else mapping.revert(self.matched, arrays)

    def _like_reference(self, index: int, output: np.ndarray) -> tuple[int, ...]:
        """Return the order of axes by which an output of the model is that of the reference."""
        natural = tuple(range(output.ndim))
        if self.reference is None:
            return natural
        key = self.reference.passes[EVALUATION][0].key
        other = self.archive.load(f"{key}/out{index}")
        return natural if other is None else axes(output, other)

    def _probe(self, title: str) -> Probe:
        modules, order = self.model.modules(), self.order
        if self.reference is None:
            return Probe(modules, self.record, title, self.archive if order.keeps else None)
        assert self.matched is not None and self.search is not None
        keys = {call.identity: call.key for call in self.reference.passes.get(title, [])}
        partner = Partner(self.archive, keys, self.matched.calls, frozenset(order.forced), self.search.module)
        return Probe(modules, self.record, title, None, partner)


def place_of(spec: str | None) -> str:
    """Return file and line of a side's function, "" if it is none of a file."""
    function = load(spec) if spec else None
    code = getattr(getattr(function, "func", function), "__code__", None)
    return f"{relative(code.co_filename)}:{code.co_firstlineno}" if code else ""


def varied(arrays: Mapping[str, np.ndarray], roles: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return weights without constant tensors: a bias of 0 would not show whether it is added, nor a scale of 1."""
    found = {}
    for name, value in arrays.items():
        generator = np.random.default_rng(zlib.crc32(name.encode()))
        noise = generator.uniform(-VARIATION, VARIATION, value.shape)
        is_constant = value.size > 0 and np.ptp(value) == 0 and value.dtype.kind == "f"
        found[name] = (value + noise).astype(np.float32) if is_constant else value
        if roles.get(name) == "running_var":
            found[name] = np.abs(found[name])
    return found


def main(words: list[str]) -> None:
    """Answer requests until the input ends.

    Args:
        words: the file descriptor of the answers, the side as JSON, and its folder.
    """
    answers = os.fdopen(int(words[0]), "w")
    worker: Worker | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            worker = worker or Worker(Side(**json.loads(words[1])), words[2])
            answer = getattr(worker, request.pop("do"))(**request)
        except UserError as error:
            answer = {"error": str(error)}
        except Exception as error:  # of the user's model
            lines = traceback.format_exc().splitlines()[-FRAMES:]
            answer = {"error": f"{type(error).__name__}: {error}", "traceback": lines}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
