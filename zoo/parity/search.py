"""Search for the causes of differences, in the process of a side, which has whole tensors."""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from zoo.parity import facts, losses, mapping
from zoo.parity.causes import some
from zoo.parity.formulas import losses as loss_formulas
from zoo.parity.formulas import optimizers
from zoo.parity.formulas.formula import FIT, FITS, Case
from zoo.parity.probe import Archive
from zoo.parity.record import ROUNDING_UNITS, Call, Identity, Record
from zoo.parity.side import Side
from zoo.parity.verdict import NEGLIGIBLE_CHANGE

TRAINING = "training"
SUSPECT = 1e-9  # relative difference of a module's output from which on its cause is searched
MAX_EXPLAINED = 1 << 16  # elements of a tensor whose updates are explained
GROUPS = "give params as [{'params': params}]: else MindSpore decays none with gamma or beta in its name"
MOVED = 1e-3  # share of the largest update of all tensors, from which on one says something of the optimizer
MAX_TENSORS = 4  # whose updates differ: until a cause explains one
FUNCTIONS = "activation attention interpolation"  # what code between modules calls, most often
SEVERAL, FEW = 3, 12  # tensors that a function may get, such as query, key and value; that may be a term of a sum
LATEST = 5  # of which a function may get one
DIMENSIONS = re.compile(r"(\w+)([123])[dD]")
MAX_FAILURES = 8  # of the search for causes, for modules of one class


class Search:
    """Search for the causes by which a model differs from a reference, whose tensors its modules get.

    Args:
        library: of the side's optimizers and losses.
        precision: of both sides.
        archive: whole tensors of the reference.

    Attributes:
        guesses: cause, remedy and fact of what differs: a module, its input or statistic, the loss or the optimizer.
    """

    def __init__(
        self,
        model: Any,
        side: Side,
        library: str,
        precision: str,
        reference: Record,
        matched: mapping.Match,
        archive: Archive,
    ):
        self.model, self.side, self.library = model, side, library
        self.precision, self.fit = precision, FITS.get(precision, FIT)
        self.framework = getattr(model, "library", side.framework)  # of the model's modules
        self.reference, self.matched, self.archive = reference, matched, archive
        self.guesses: dict[str, list[str]] = {}
        self.failures: dict[tuple[str, str], int] = {}  # by class of module and place
        self.is_apart = False  # whether the last tensor had another shape

    def module(self, call: Call, identity: Identity, place: str, reference: np.ndarray, own: np.ndarray) -> None:
        """Search the cause if a module's output differs from that of its partner, whose inputs it got, or its input."""
        was_apart, self.is_apart = self.is_apart, own.shape != reference.shape
        if was_apart and self.is_apart:  # since the one before has
            return
        if close(reference, own) or self.failures.get((call.kind, place), 0) >= MAX_FAILURES:
            return
        title = call.key.partition("/")[0]
        calls = self.reference.passes[title]
        partner = next(c for c in calls if c.identity == identity)
        if place == "out0":
            key, kinds = f"{title}/{identity[0]}", f"{partner.kind} {call.kind}"
            tensors = self._weights.get(call.name, {})
            sources = [[f"{partner.key}/in{index}" for index in range(call.inputs)]]
            before = _before(calls, partner.span[1], partner.span[0])
        else:
            key, kinds, tensors, sources = f"{title}/{identity[0]}/input", FUNCTIONS, {}, []
            before = _before(calls, partner.span[0])
        guess: facts.Guess | None = None
        last = list(before)[-LATEST:]
        for names in filter(None, (*sources, last[-1:], last[-SEVERAL:], *([name] for name in last[-2::-1]))):
            loaded = [np.asarray(array) for name in names if (array := self.archive.load(name)) is not None]
            for part in parts(loaded, reference, own) if names not in sources else [...]:
                sides = np.asarray(reference)[part], own[part]
                case = Case(kinds, loaded, tensors, *sides, title == TRAINING, fit=self.fit)
                guess = guess or facts.explain(case, self.framework)
        terms = {name: self.archive.load(key) for key, name in list(before.items())[-FEW:]}
        guess = guess or of_sum(np.asarray(reference), own, terms, self.fit)
        self._note(key, guess, call.kind)
        if guess is None:
            self.failures[call.kind, place] = self.failures.get((call.kind, place), 0) + 1

    def loss(self, own: float, inputs: Mapping[str, np.ndarray]) -> None:
        """Search the cause of a loss of the side's own that differs where the outputs are the reference's."""
        reference, label = self.reference.steps[0]["loss"], inputs.get(losses.LABEL)
        output = self.archive.load(f"{self.reference.passes[TRAINING][0].key}/out0")
        spec = self.side.loss
        if spec is None or label is None or output is None or close(np.array(reference), np.array(own)):
            return
        if label.dtype.kind in "iu" and label.shape == output.shape[:-1]:  # classes on the last axis
            output, label = output.reshape(-1, output.shape[-1]), label.ravel()
        case = Case(spec, [np.asarray(output), label], {}, np.array(reference), np.array(own), True, fit=self.fit)
        self._note("loss", facts.explain_by(loss_formulas.FORMULAS, case, self.library))

    def statistics(self, before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> None:
        """Search the cause of running statistics that differ."""
        keys = {call.name: call.key for call in self.reference.passes[TRAINING]}
        sources = {
            (each.module, each.role): self.matched.tensors[each.name].names[0]
            for each in self.model.tensors()
            if each.name in self.matched.tensors
        }
        kinds = {each.module: each.kind for each in self.model.tensors()}
        for own_module, _ in (place for place in sources if place[1] == "running_mean"):
            names = [sources.get((own_module, role), "") for role in ("running_mean", "running_var")]
            module = names[0].rpartition(".")[0]
            reference = [self.archive.load(f"after0/{name}") for name in names]
            batch = self.archive.load(f"{keys[module]}/in0") if module in keys else None
            if batch is None or any(value is None for value in reference) or not all(name in after for name in names):
                continue
            own, expected = [after[name] for name in names], [np.asarray(value) for value in reference]
            if not all(close(a, b) for a, b in zip(expected, own)):
                given = [channels_second(np.asarray(batch), own[0].size), np.stack([before[name] for name in names])]
                case = Case("", given, {}, np.stack(expected), np.stack(own), True, fit=self.fit)
                guess = facts.explain_by([optimizers.STATISTICS], case, self.framework)
                self._note(f"statistic/{module}", guess, kinds[own_module])

    def updates(
        self,
        trained: Collection[str],
        start: Mapping[str, np.ndarray],
        history: Sequence[Mapping[str, np.ndarray]],
    ) -> None:
        """Search the cause of updates that differ, by the tensors whose differ most."""
        compared, differ = 0, dict[str, tuple[np.ndarray, np.ndarray]]()
        for name in sorted(trained):
            kept = [self.archive.load(f"after{number}/{name}") for number in range(len(history))]
            expected = [np.asarray(value) for value in kept if value is not None]
            own = [after[name] for after in history if name in after]
            if len(expected) == len(own) == len(history):
                compared += 1
                others, changes = (np.diff([start[name], *after], axis=0) for after in (expected, own))
                if apart(others, changes) > max(NEGLIGIBLE_CHANGE, self._rounding(start[name], others)):
                    differ[name] = others, changes
        found, divided = dict[facts.Guess, list[str]](), groups(differ)
        for names in divided:
            guesses = (self._update(start[name], name, differ[name], len(history)) for name in names[:MAX_TENSORS])
            if guess := next(filter(None, guesses), None):
                first = next(iter(found), guess)
                is_part = {*guess.fact.split(", ")} < {*first.fact.split(", ")}  # of a cause that more tensors show
                found.setdefault(first if is_part else guess, []).extend(names)
        if [len(names) for names in found.values()] == [sum(map(len, divided))]:  # one cause of all
            found = {guess: list(differ) if len(differ) < compared else [] for guess in found}
        if found:
            causes = [
                f"{guess.cause}, for {some(sorted(names))}" if names else guess.cause for guess, names in found.items()
            ]
            remedies = [self._remedy(guess) if names else guess.remedy for guess, names in found.items()]
            known = ", ".join(guess.fact for guess in found if guess.fact)
            self._note("optimizer", facts.Guess(known, "; ".join(causes), "; ".join(filter(None, remedies))))

    def _update(
        self, start: np.ndarray, name: str, changes: tuple[np.ndarray, np.ndarray], updates: int
    ) -> facts.Guess | None:
        """Search the cause of a parameter's changes that differ from the reference's."""
        loaded = (self.archive.load(f"gradient{number}/{name}") for number in range(updates))
        gradients = [np.asarray(value) for value in loaded if value is not None]
        fit = max(self.fit, self._rounding(start, changes[0]))
        case = Case(self.side.optimizer or "", [start, *gradients], {}, *changes, True, fit=fit)
        return facts.explain_by(optimizers.UPDATES, case, self.library)

    def _remedy(self, guess: facts.Guess) -> str:
        """Return the remedy for some parameters: by groups, where MindSpore decays by name, else none."""
        return GROUPS if self.library == "mindspore" and guess.fact.endswith("-decay") else ""

    def _rounding(self, weight: np.ndarray, changes: np.ndarray) -> float:
        """Return what the rounding of a parameter may change in its updates, relative to the largest of them."""
        largest = float(np.abs(changes).max(initial=0.0))
        return 4 * ROUNDING_UNITS[self.precision] * float(np.abs(weight).max(initial=0.0)) / largest if largest else 0.0

    def _note(self, key: str, guess: facts.Guess | None, kind: str = "") -> None:
        """Note a cause, with the remedy for a module of this class."""
        if guess is not None:
            self.guesses[key] = [guess.cause, of_class(guess.remedy, kind), guess.fact]

    @cached_property
    def _weights(self) -> dict[str, dict[str, np.ndarray]]:
        """Tensors by module and role when one is examined first; no optimizer changes them while modules are."""
        arrays, found = self.model.arrays(), dict[str, dict[str, np.ndarray]]()
        for tensor in self.model.tensors():
            found.setdefault(tensor.module, {})[tensor.role] = arrays[tensor.name]
        return found


def of_class(remedy: str, kind: str) -> str:
    """Return code with a class of the same dimensions as another one: BatchNorm1d for BatchNorm2d."""
    found = DIMENSIONS.fullmatch(kind)
    return re.sub(rf"\b{found[1]}[123](?=[dD]\b)", f"{found[1]}{found[2]}", remedy) if found else remedy


def _before(calls: Sequence[Call], position: int, start: int = -1) -> dict[str, str]:
    """Return what code may compute with at a position of a pass: keys of tensors and what they are, the last one last.

    Args:
        start: position from which on it computes.
    """
    ticks = [(each.span[0], f"{each.key}/in0", f"the input of {each.name or 'the model'}") for each in calls]
    ticks += [(each.span[1], f"{each.key}/out0", f"the output of {each.name}") for each in calls if each.name]
    return {key: name for tick, key, name in sorted(ticks) if start <= tick < position}


def of_sum(
    reference: np.ndarray, own: np.ndarray, terms: Mapping[str, np.ndarray | None], fit: float
) -> facts.Guess | None:
    """Find that two arrays differ by a tensor, which is a term of one of them alone."""
    tolerance = fit * np.abs(reference).max(initial=0.0)
    for name, term in terms.items():
        if own.shape == reference.shape and term is not None and term.shape == own.shape:
            for sign, cause in ((1, f"{name} is added, too"), (-1, f"{name} is not added")):
                if np.abs(own - reference - sign * term).max() <= tolerance < 0.01 * np.abs(term).max():
                    return facts.Guess("", cause)
    return None


def parts(sources: Sequence[np.ndarray], reference: np.ndarray, own: np.ndarray) -> list[Any]:
    """Return the parts of a tensor that code may have made of another one: all, or channels that others join."""
    found: list[Any] = [...]
    if sources and own.shape == reference.shape and all(x.ndim > 1 for x in (own, *sources)):
        differs = np.flatnonzero(np.abs(own - reference).max((0, *range(2, own.ndim))))
        count, channels = sources[0].shape[1], own.shape[1]
        starts = {0, channels - count} if count < channels else {}
        found += [(slice(None), slice(i, i + count)) for i in starts if i <= differs[0] and differs[-1] < i + count]
    return found


def channels_second(batch: np.ndarray, count: int) -> np.ndarray:
    """Return a batch with its channels, so many, behind the samples; a reference may have them last."""
    return batch if batch.shape[1] == count else np.moveaxis(batch, -1, 1)


def groups(differ: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> list[list[str]]:
    """Return names of updates that differ, matrices and vectors apart, each the largest difference first.

    Recipes give biases and normalizations settings of their own. Left out are those that hardly move the reference,
    unless all do: where a gradient is 0, as of a bias before a normalization, no update says what rate it has.
    """
    sizes = {name: float(np.abs(others).max(initial=0.0)) for name, (others, _) in differ.items()}
    apart_by = {name: float(np.abs(own - others).max(initial=0.0)) for name, (others, own) in differ.items()}
    names = sorted(differ, key=lambda name: -apart_by[name])
    moving = [name for name in names if sizes[name] >= MOVED * max(sizes.values(), default=0.0)] or names
    ranks = {name: differ[name][0].ndim - 1 for name in moving}  # changes lie one after the other
    return [[name for name in moving if (ranks[name] > 1) == is_matrix] for is_matrix in (True, False)]


def small(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the tensors whose changes are explained."""
    return {name: value for name, value in arrays.items() if value.size <= MAX_EXPLAINED}


def close(reference: np.ndarray, own: np.ndarray) -> bool:
    """Return whether two arrays are equal but for rounding in fp64."""
    return own.shape == reference.shape and apart(reference, own) <= SUSPECT


def apart(reference: np.ndarray, own: np.ndarray) -> float:
    """Return the largest difference, relative to the largest value of the reference."""
    largest, scale = (float(np.abs(x).max(initial=0.0)) for x in (own - reference, reference))
    if not scale:
        return np.inf if largest else 0.0
    return largest / scale
