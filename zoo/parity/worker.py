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
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import UserError
from zoo.parity import checkpoints, facts, losses, mapping, updates
from zoo.parity.nesting import EVALUATION
from zoo.parity.probe import Archive, Identity, Partner, Probe, axes
from zoo.parity.record import Call, Record, empty
from zoo.parity.record import load as load_record
from zoo.parity.recorders.common import Objective
from zoo.parity.recording import relative
from zoo.parity.side import Side, load
from zoo.weights import files

TRAINING = "training"
SUSPECT = 1e-9  # relative difference of a module's output from which on its cause is searched
MAX_EXPLAINED = 1 << 16  # elements of a tensor whose updates are explained
MAX_TENSORS = 4  # whose updates differ: until a cause explains one
FUNCTIONS = "activation attention interpolation"  # what code between modules calls, most often
SEVERAL, FEW = 3, 12  # tensors that a function may get, such as query, key and value; that may be a term of a sum
MAX_FAILURES = 8  # of the search for causes, for modules of one class
VARIATION = 0.1  # of the elements of initial weights that are all the same
FRAMES = 6  # lines of a traceback that an error shows
ARCHIVE, MATCH = "tensors", "match.json"
WEIGHTS, OUTLINE, INPUTS = "weights.safetensors", "outline.safetensors", "inputs.safetensors"
NAMES = "names"  # metadata of the inputs: their order, which the file does not keep


class Order(NamedTuple):
    """A request for a record.

    Attributes:
        name: of the record, a file in the side's folder.
        partner: folder of the reference; None for the reference itself.
        reference: name of the reference's record.
        forced: the reference's calls whose tensors replace those of the model.
        loss: name of one of zoo/parity/losses.py; None for random weights of the outputs, or the side's own.
        optimizer: name of one of zoo/parity/updates.py with its settings; None for none, or the side's own.
        trains: whether a pass with gradients follows that in evaluation mode.
        keeps: whether the reference keeps whole tensors, which others are compared with.
    """

    name: str
    precision: str
    partner: str | None = None
    reference: str = ""
    forced: tuple[Identity, ...] = ()
    loss: str | None = None
    optimizer: str | None = None
    updates: int = 0
    trains: bool = True
    keeps: bool = True


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
            "version": self.recorder.VERSION,
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

    def restore(self, path: str, label: str) -> dict[str, Any]:
        """Load a checkpoint of the side's framework, and write the weights that the model then has.

        Args:
            path: of tensors as the framework stores them, .safetensors.
            label: of the file that they are from, for messages.
        """
        model = self.build("fp32")
        tensors, left_out = checkpoints.fit(label, files.read(path)[0], model.state())
        if missing := model.restore(tensors):
            raise UserError(checkpoints.lacks(label, missing, left_out))
        _rewrite(self.folder / WEIGHTS, model.arrays())
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
        self.failures: dict[tuple[str, str], int] = {}  # of the search for causes, by class of module and place
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
        start, history = _small(before), list[dict[str, np.ndarray]]()
        for number in range(max(1, order.updates)):
            loss, gradients = self._gradients(number) if not (order.forced and number) else (None, {})
            if step is not None:
                step(self._reference_gradients(number) if order.forced else gradients)
            after = self._tensors(step is not None)
            self._add(f"update {number + 1}", loss, before, after, self._named(gradients))
            history.append(_small(after))
            before = after
            if order.partner is None and order.keeps:
                self._archive(number, gradients, after)
        if order.forced:
            self._explain_loss()
            self._explain_statistics(start, history[0])
            self._explain_updates(start, history)

    def _tensors(self, with_trained: bool) -> dict[str, np.ndarray]:
        """Return tensors of the model by the reference's names: all, or the statistics."""
        named = self._named(self.model.arrays())
        return {name: value for name, value in named.items() if with_trained or name not in self.trained}

    def _gradients(self, number: int) -> tuple[float | None, dict[str, np.ndarray]]:
        """Run forward and backward; the first time, with a probe."""
        worker = self.worker
        weighting = losses.Weighting(self.order.loss, worker.inputs, self._like_reference)
        probe = self._probe(TRAINING) if number == 0 else None
        result = self.model.run(worker.given, probe, Objective(weighting, worker.own, load_function(worker.side.loss)))
        if probe is not None:
            probe.close()
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
        for name, value in _small(after).items():
            self.archive.save(f"after{number}/{name}", value)

    def _reference_gradients(self, number: int) -> dict[str, np.ndarray]:
        assert self.matched is not None
        loaded = {name: self.archive.load(f"gradient{number}/{name}") for name in self.trained}
        found = {name: array for name, array in loaded.items() if array is not None}
        whole = {name: each for name, each in self.matched.tensors.items() if found.keys() >= {*each.names}}
        return mapping.convert(self.matched._replace(tensors=whole), found)

    def _explain_loss(self) -> None:
        """Search the cause of a loss of the side's own that differs where the outputs are the reference's."""
        assert self.reference is not None
        reference, own = self.reference.steps[0]["loss"], self.record.steps[0]["loss"]
        label = self.worker.inputs.get(losses.LABEL)
        output = self.archive.load(f"{self.reference.passes[TRAINING][0].key}/out0")
        spec = self.worker.side.loss
        if spec is None or label is None or output is None or close(np.array(reference), np.array(own)):
            return
        if label.dtype.kind in "iu" and label.shape == output.shape[:-1]:  # classes on the last axis
            output, label = output.reshape(-1, output.shape[-1]), label.ravel()
        guess = facts.explain_loss(spec, [np.asarray(output), label], reference, own, **self._of_optimizers())
        self._note("loss", guess)

    def _of_side(self) -> dict[str, Any]:
        framework = getattr(self.model, "library", self.worker.side.framework)
        return {"framework": framework, "precision": self.order.precision}

    def _of_optimizers(self) -> dict[str, Any]:
        """Return the same of a side's optimizers and losses, which another library may have."""
        return {**self._of_side(), "framework": getattr(self.worker.recorder, "OPTIMIZERS", self.worker.side.framework)}

    def _explain_statistics(self, before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> None:
        """Search the cause of running statistics that differ."""
        assert self.reference is not None
        assert self.matched is not None
        keys = {call.name: call.key for call in self.reference.passes[TRAINING]}
        sources = {
            (each.module, each.role): self.matched.tensors[each.name].names[0]
            for each in self.model.tensors()
            if each.name in self.matched.tensors
        }
        for own_module, _ in (place for place in sources if place[1] == "running_mean"):
            names = [sources.get((own_module, role), "") for role in ("running_mean", "running_var")]
            module = names[0].rpartition(".")[0]
            reference = [self.archive.load(f"after0/{name}") for name in names]
            batch = self.archive.load(f"{keys[module]}/in0") if module in keys else None
            if batch is None or any(value is None for value in reference) or not all(name in after for name in names):
                continue
            own, expected = [after[name] for name in names], [np.asarray(value) for value in reference]
            if not all(close(a, b) for a, b in zip(expected, own)):
                batch, old = np.asarray(batch), [before[name] for name in names]
                guess = facts.explain_statistics(batch, old, expected, own, **self._of_side())
                self._note(f"statistic/{module}", guess)

    def _explain_updates(self, start: Mapping[str, np.ndarray], history: Sequence[Mapping[str, np.ndarray]]) -> None:
        """Search the cause of updates that differ, by the first tensors whose do."""
        tries = 0
        for name in sorted(self.trained):
            kept = [self.archive.load(f"after{number}/{name}") for number in range(len(history))]
            expected = [np.asarray(value) for value in kept if value is not None]
            own = [after[name] for after in history if name in after]
            if len(expected) == len(own) == len(history) and not all(close(a, b) for a, b in zip(expected, own)):
                loaded = (self.archive.load(f"gradient{number}/{name}") for number in range(len(history)))
                gradients = [np.asarray(value) for value in loaded if value is not None]
                kind = self.worker.side.optimizer or ""
                guess = facts.explain_update(kind, start[name], gradients, expected, own, **self._of_optimizers())
                self._note("optimizer", guess)
                tries += 1
                if guess or tries == MAX_TENSORS:
                    return

    def _note(self, key: str, guess: facts.Guess | None) -> None:
        if guess is not None:
            self.record.settings["guesses"][key] = [guess.cause, guess.remedy, guess.fact]

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
        assert self.matched is not None
        keys = {(call.name, call.occurrence): call.key for call in self.reference.passes.get(title, [])}
        partner = Partner(self.archive, keys, self.matched.calls, frozenset(order.forced), self._examine)
        return Probe(modules, self.record, title, None, partner)

    @cached_property
    def _weights(self) -> dict[str, dict[str, np.ndarray]]:
        """Tensors by module and role when one is examined first; no optimizer changes them while modules are."""
        arrays, found = self.model.arrays(), dict[str, dict[str, np.ndarray]]()
        for tensor in self.model.tensors():
            found.setdefault(tensor.module, {})[tensor.role] = arrays[tensor.name]
        return found

    def _examine(self, call: Call, identity: Identity, place: str, reference: np.ndarray, own: np.ndarray) -> None:
        """Search the cause if a module's output differs from that of its partner, whose inputs it got, or its input."""
        assert self.reference is not None
        if close(reference, own) or self.failures.get((call.kind, place), 0) >= MAX_FAILURES:
            return
        title = call.key.partition("/")[0]
        calls = self.reference.passes[title]
        partner = next(c for c in calls if (c.name, c.occurrence) == identity)
        if place == "out0":
            key, kinds = f"{title}/{identity[0]}", f"{partner.kind} {call.kind}"
            tensors = self._weights.get(call.name, {})
            sources = [[f"{partner.key}/in{index}" for index in range(call.inputs)]]
            before = _before(calls, partner.span[1], partner.span[0])
        else:
            key, kinds, tensors, sources = f"{title}/{identity[0]}/input", FUNCTIONS, {}, []
            before = _before(calls, partner.span[0])
        guess: facts.Guess | None = None
        for names in filter(None, (*sources, list(before)[-1:], list(before)[-SEVERAL:])):
            loaded = [np.asarray(array) for name in names if (array := self.archive.load(name)) is not None]
            for part in parts(loaded, reference, own) if names not in sources else [slice(None)]:
                sides = np.asarray(reference)[part], own[part]
                guess = guess or facts.explain(kinds, loaded, tensors, *sides, title == TRAINING, **self._of_side())
        terms = {name: self.archive.load(key) for key, name in list(before.items())[-FEW:]}
        guess = guess or of_sum(np.asarray(reference), own, terms, self.order.precision)
        self._note(key, guess)
        if guess is None:
            self.failures[call.kind, place] = self.failures.get((call.kind, place), 0) + 1


def _before(calls: Sequence[Call], position: int, start: int = -1) -> dict[str, str]:
    """Return what code may compute with at a position of a pass: keys of tensors and what they are, the last one last.

    Args:
        start: position from which on it computes.
    """
    ticks = [(each.span[0], f"{each.key}/in0", f"the input of {each.name or 'the model'}") for each in calls]
    ticks += [(each.span[1], f"{each.key}/out0", f"the output of {each.name}") for each in calls if each.name]
    return {key: name for tick, key, name in sorted(ticks) if start <= tick < position}


def of_sum(
    reference: np.ndarray, own: np.ndarray, terms: Mapping[str, np.ndarray | None], precision: str
) -> facts.Guess | None:
    """Find that two arrays differ by a tensor, which is a term of one of them alone."""
    tolerance = facts.FITS.get(precision, facts.FIT) * np.abs(reference).max(initial=0.0)
    for name, term in terms.items():
        if own.shape == reference.shape and term is not None and term.shape == own.shape:
            for sign, cause in ((1, f"{name} is added, too"), (-1, f"{name} is not added")):
                if np.abs(own - reference - sign * term).max() <= tolerance < 0.01 * np.abs(term).max():
                    return facts.Guess("", cause)
    return None


def _small(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the tensors whose changes are explained."""
    return {name: value for name, value in arrays.items() if value.size <= MAX_EXPLAINED}


def close(reference: np.ndarray, own: np.ndarray) -> bool:
    """Return whether two arrays are equal but for rounding in fp64."""
    scale = float(np.abs(reference).max(initial=0.0))
    return own.shape == reference.shape and float(np.abs(own - reference).max(initial=0.0)) <= SUSPECT * scale


def place_of(spec: str | None) -> str:
    """Return file and line of a side's function, "" if it is none of a file."""
    function = load(spec) if spec else None
    code = getattr(getattr(function, "func", function), "__code__", None)
    return f"{relative(code.co_filename)}:{code.co_firstlineno}" if code else ""


def parts(sources: Sequence[np.ndarray], reference: np.ndarray, own: np.ndarray) -> list[Any]:
    """Return the parts of a tensor that code may have made of another one: all, or channels that others join."""
    found: list[Any] = [slice(None)]
    if sources and own.shape == reference.shape and all(x.ndim > 1 for x in (own, *sources)):
        differs = np.flatnonzero(np.abs(own - reference).max((0, *range(2, own.ndim))))
        count, channels = sources[0].shape[1], own.shape[1]
        starts = {0, channels - count} if count < channels else {}
        found += [(slice(None), slice(i, i + count)) for i in starts if i <= differs[0] and differs[-1] < i + count]
    return found


def load_function(spec: str | None) -> Callable[..., Any] | None:
    return load(spec) if spec else None


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


def _rewrite(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    path.unlink(missing_ok=True)
    files.write(str(path), arrays)
