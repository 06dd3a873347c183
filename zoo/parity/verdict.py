"""Judgement of two records: which modules differ by themselves, why, and whether that explains the end result."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from zoo.parity.causes import MAX_NAMES, NOT_FINITE, of_activation, of_gradient, some
from zoo.parity.differences import Difference, Event, Records, differences, rounding
from zoo.parity.mapping import Match
from zoo.parity.record import ROUNDING_UNITS, Call, Record

OPTIMIZER, LOSS = "optimizer", "loss"
GRADIENTS = ("output gradient", "input gradient", "gradient")
MIXED = ("fp16", "bf16")
# Relative differences in fp64 that nobody would mend, such as constants of a library that are rounded to fp32.
NEGLIGIBLE_ALONE, NEGLIGIBLE = 2.0**-24, 1e-6  # of a module alone; of the passes as they are, which amplify it
IN_FP32 = 1000  # times as much where both are computed in fp32
NEGLIGIBLE_CHANGE = 2.0**-22  # of an optimizer alone, whose factors are such constants, and powers of them
MIXED_UNITS = 8  # of 16 bits: rounding of a module whose inputs are rounded, too, that is never reported
SEPARATE = ("input", "statistic")  # parts of a module that have causes of their own
FORWARD, BACKWARD = ("input", "output"), ("output gradient", "input gradient")
WORDS = {  # for a report, by the part that differs first
    "input": "its input, which the code before it computes,",
    "output": "its output",
    "output gradient": "the gradient of its output, which the code behind it computes,",
    "input gradient": "the gradient of its input",
    "gradient": "the gradient of its weights",
    "statistic": "its running statistic",
    "change": "the update of its weights",
    "loss": "its value, or its gradient,",
}
ZEROS = "exporters leave out biases of 0, unless with optimize=False"
OF_BIASES = "after an update: two biases of a recurrent layer, which take a step each, are one on the other side"


class Finding(NamedTuple):
    """Modules that differ for one reason.

    Attributes:
        modules: names of the reference, in the order of the computation; "" is the model itself.
        kinds: class names on both sides.
        what: the first tensor of each that differs.
        relative: largest difference, relative to the largest value.
        fact: name of the fact that is the cause, "" if it is none.
        places: source files of the side that is compared, and lines of calls.
    """

    modules: tuple[str, ...]
    kinds: tuple[str, str]
    what: str
    relative: float
    limit: float
    cause: str
    remedy: str
    fact: str
    places: tuple[str, ...]

    def __str__(self) -> str:
        kinds = " / ".join(dict.fromkeys(filter(None, self.kinds)))
        infinite = "is not finite" if self.cause == NOT_FINITE else "has another shape"
        size = infinite if self.relative == np.inf else f"differs by {self.relative:.1e}"
        explained = "" if self.relative == np.inf else f", where rounding explains {self.limit:.1e}"
        lines = [f"{some(self.modules)}{f' ({kinds})' if kinds else ''}: {WORDS[self.what]} {size}{explained}"]
        lines += [f"  cause: {self.cause}"] if self.cause else []
        lines += [f"  remedy: {self.remedy}"] if self.remedy else []
        lines += [f"  look in: {', '.join(self.places)}"] if self.places else []
        return "\n".join(lines)


class Judged(NamedTuple):
    """Comparison of a side with the reference.

    Attributes:
        natural: differences of the passes as they are.
        alone: the same with the reference's tensors around each module.
        findings: what differs by itself.
        accepted: findings in modules that were accepted.
        is_explained: whether all agrees once the modules found are replaced; None if that was not tried.
        dropout: rates of dropout modules that differ.
        frozen: parameters that one side alone trains.
        outputs: how many tensors the model returns in evaluation mode, on both sides.
    """

    titles: tuple[str, str]
    matched: Match
    natural: list[Difference]
    alone: list[Difference]
    findings: list[Finding]
    accepted: list[Finding]
    precision: str = "fp64"
    is_explained: bool | None = None
    dropout: Mapping[str, tuple[float, float]] = {}
    frozen: Sequence[str] = ()
    outputs: Sequence[int] = ()

    @property
    def agrees(self) -> bool:
        """Whether nothing differs but what was accepted."""
        rest = any(d.is_beyond for d in self.natural) and (not self.accepted or self.is_explained is False)
        return not (self.findings or self.dropout or self.frozen or rest)

    @property
    def outputs_agree(self) -> bool:
        """Whether the outputs of the model do, in the passes as they are."""
        return not any(each.is_beyond for each in outputs_of(self.natural))

    def __str__(self) -> str:
        """Return the report."""
        reference, side = self.titles
        lines = [f"{side} beside {reference}: {self.matched.found}"]
        if self.matched.unused:
            remedy = f"; {ZEROS}" if side.startswith("onnx") else ""
            lines.append(f"not in {side}: {some(self.matched.unused)}{remedy}")
        for name, (rate, other) in self.dropout.items():
            lines.append(f"{name}: the rate of dropout is {other:g} instead of {rate:g}")
        if self.frozen:
            lines.append(f"{some(self.frozen)}: trained by one side alone, and frozen by the other")
        if len({*self.outputs}) > 1:
            expected, own = self.outputs
            lines.append(f"{own} outputs instead of {expected}, of which {min(own, expected)} are compared")
        for finding in self.findings:
            lines.append(str(finding))
        for finding in self.accepted:
            lines.append(f"accepted: {finding}")
        lines.append(self.summary())
        return "\n".join(lines)

    def summary(self) -> str:
        """Return a sentence on the passes as they are."""
        beyond = [difference for difference in self.natural if difference.is_beyond]
        largest = max((each.relative for each in outputs_of(self.natural)), default=0.0)
        if self.precision in MIXED:
            return f"outputs differ by {largest:.1e}; by itself, each module rounds by: {self.rounding()}"
        if not beyond:
            end = "they agree" if self.agrees else "as a whole, they agree"
            return f"{end}: {len(self.natural)} tensors are equal within rounding, outputs to {largest:.1e}"
        start = "they agree but for what was accepted" if self.agrees else "they differ"
        what = f"{start}: {len(beyond)} of {len(self.natural)} tensors, outputs by {largest:.1e}"
        if self.is_explained is None:
            return what
        return f"{what}, all of it by the modules above" if self.is_explained else f"{what}, not by these modules alone"

    def rounding(self) -> str:
        """Return the modules whose outputs differ most from the reference's by themselves."""
        outputs = [each for each in self.alone if each.event.part == "output" and each.event.name]
        sizes: dict[str, float] = {}
        for each in outputs:
            sizes[each.event.name] = max(sizes.get(each.event.name, 0.0), each.relative)
        first = sorted(sizes, key=lambda name: -sizes[name])[:MAX_NAMES]
        return ", ".join(f"{name} {sizes[name]:.1e}" for name in first)

    def suspects(self) -> set[str]:
        """Return the modules that were found to differ, the accepted ones included, if others can take their place."""
        found = (*self.findings, *self.accepted)
        if any(finding.relative == np.inf or "" in finding.modules for finding in found):  # another shape; the model
            return set()
        return {name for finding in found for name in finding.modules}

    def explained_by(self, proofs: Records, rounded: Records) -> "Judged":
        """Return the judgement with `is_explained`, given records in which the modules found are replaced."""
        scale = IN_FP32 if self.precision == "fp32" else 1
        all_differences = _notable(differences(proofs, rounded), scale * NEGLIGIBLE)
        return self._replace(is_explained=not any(each.is_beyond for each in outputs_of(all_differences)))


def outputs_of(differences: Sequence[Difference]) -> list[Difference]:
    """Return the differences of the model's outputs."""
    return [each for each in differences if each.event.name == "" and each.event.part == "output"]


class Result(NamedTuple):
    """Result of a comparison: a judgement for each side but the reference."""

    sides: list[Judged]

    @property
    def agrees(self) -> bool:
        return all(side.agrees for side in self.sides)

    def __str__(self) -> str:
        return "\n".join(map(str, self.sides))


def judge(
    titles: tuple[str, str],
    matched: Match,
    proofs: Records,
    alone: Records,
    rounded: Records,
    accepted: Collection[str] = (),
) -> Judged:
    """Judge a side.

    Args:
        titles: of the reference and the side, the keys of the records.
        proofs: of the passes as they are; of `alone` the side's modules had the reference's inputs.
        rounded: in fp32, perhaps not of both.
    """
    other = alone[titles[1]]
    scale = IN_FP32 if other.precision == "fp32" else 1
    natural = _but_changes(_notable(differences(proofs, rounded), scale * NEGLIGIBLE))
    of_modules = _notable(differences(alone, rounded), scale * NEGLIGIBLE_ALONE, scale * NEGLIGIBLE_CHANGE)
    if other.precision in MIXED:  # whose rounding adds up as it may: each module is judged alone
        natural = [difference._replace(limit=np.inf) for difference in natural]
        excess = _excess(of_modules, proofs[titles[0]], rounded[titles[0]]) if titles[0] in rounded else {}
        of_modules = [_in_16_bits(each, other.precision, excess.get(each.event.name, 1.0)) for each in of_modules]
    found = findings(group(of_modules), alone[titles[0]], other)
    if not found:
        natural = natural if other.precision != "fp32" else _but_gradients(natural)
        found = first_beyond(natural, proofs[titles[0]], proofs[titles[1]])
        if _is_of_biases(natural, matched):
            found = [found[0]._replace(cause=OF_BIASES, fact="recurrent-bias-count")]
    known = [finding for finding in found if _is_accepted(finding, {*accepted})]
    rest = [finding for finding in found if finding not in known]
    outputs = [call.outputs for title in titles for call in proofs[title].passes.get("evaluation", ()) if not call.name]
    return Judged(titles, matched, natural, of_modules, rest, known, other.precision, outputs=outputs)


def _is_accepted(finding: Finding, accepted: Collection[str]) -> bool:
    """Return whether all modules of a finding are accepted, or all facts that are its cause."""
    found = {*finding.fact.split(", ")} - {""}
    return {*finding.modules} <= {*accepted} or (bool(found) and found <= {*accepted})


def _notable(differences: Sequence[Difference], share: float, of_changes: float | None = None) -> list[Difference]:
    """Return differences with limits that are at least a share of the largest value."""
    return [
        each._replace(limit=max(each.limit, _least_share(each.event, share, of_changes) * each.magnitude))
        for each in differences
    ]


def _least_share(event: Event, share: float, of_changes: float | None) -> float:
    """Return the share of the largest value that nobody would mend, more where one constant in fp32 is a factor."""
    if event.part == "change":
        return of_changes or share
    has_factor = event.part == "statistic" or _owner(event) == LOSS  # a momentum, label smoothing
    return max(share, NEGLIGIBLE) if has_factor else share


def _but_changes(differences: Sequence[Difference]) -> list[Difference]:
    """Return differences without limits of updates, which are judged alone.

    Adam makes whole steps of gradients that are 0 but for rounding, such as those of the biases of keys.
    """
    return [each._replace(limit=np.inf) if each.event.part == "change" else each for each in differences]


def _but_gradients(differences: Sequence[Difference]) -> list[Difference]:
    """Return differences without limits of gradients, which kinks of activations that rounding in fp32 crosses change.

    Those of each module alone are judged by the same tensors on both sides.
    """
    return [each._replace(limit=np.inf) if each.event.part in GRADIENTS else each for each in differences]


def _excess(differences: Sequence[Difference], reference: Record, rounded: Record) -> dict[str, float]:
    """Return how many times as much as the median one the gradient of a parameter is rounded: its terms cancel."""
    found = {}
    for each in differences:
        if each.event.part == "gradient" and each.magnitude:
            key = next(iter(each.event.keys.values()))
            found[each.event.name] = rounding(reference, rounded, key) / each.magnitude
    usual = float(np.median(list(found.values()))) if found else 0.0
    return {name: max(1.0, size / usual) for name, size in found.items()} if usual else {}


def _in_16_bits(difference: Difference, precision: str, excess: float) -> Difference:
    """Return the difference of a module alone with the limit that rounding to 16 bits sets."""
    if difference.event.part in ("change", "loss", "statistic"):
        return difference._replace(limit=np.inf)
    units = MIXED_UNITS * (excess if difference.event.part == "gradient" else 1.0)
    return difference._replace(limit=units * ROUNDING_UNITS[precision] * difference.magnitude)


def group(differences: Sequence[Difference]) -> dict[tuple[str, str], list[Difference]]:
    """Return what differs by the module that makes it, and by SEPARATE parts, in the order of the computation.

    The gradient of a parameter belongs to its module, an update to the optimizer. Code between two modules that changes
    the input of the second one changes the gradient of the first one's output, too, which is not repeated. Nor is
    another shape, by which a module computes with its own input, nor what follows where a model is judged as a whole.
    """
    groups: dict[tuple[str, str], list[Difference]] = {}
    own_shape = {_call(each.event) for each in differences if each.event.part == "input" and each.largest == np.inf}
    modules = {each.event.name for each in differences if each.event.calls and _call(each.event) in own_shape}
    later, is_whole = _later_shapes(differences), _differs_as_a_whole(differences)
    for difference in (each for each in differences if each.is_beyond and not _follows(each, differences)):
        event = difference.event
        is_of_own = event.part in ("gradient", "statistic") and event.name.rpartition(".")[0] in modules
        is_of_own |= bool(event.part != "input" and event.calls) and _call(event) in own_shape
        is_later = event.part in FORWARD and bool(event.calls) and (_call(event), event.part) in later
        if is_of_own or is_later or (is_whole and event.part == "gradient"):
            continue
        part = event.part if event.part in SEPARATE else ""
        groups.setdefault((_owner(event), part), []).append(difference)
    return groups


def _differs_as_a_whole(differences: Sequence[Difference]) -> bool:
    """Return whether the output differs of a model without modules, such as a compiled one."""
    called = [each for each in differences if each.event.calls]
    is_beyond = any(each.is_beyond and each.event.part == "output" for each in called)
    return is_beyond and all(each.event.name == "" for each in called)


def _later_shapes(differences: Sequence[Difference]) -> set[tuple[str, str]]:
    """Return calls, and parts of them, that have another shape since the one before has."""
    found, is_apart = set[tuple[str, str]](), False
    for each in differences:
        if each.event.part in FORWARD and each.event.calls:
            if is_apart and each.largest == np.inf:
                found.add((_call(each.event), each.event.part))
            is_apart = each.largest == np.inf
    return found


def _call(event: Event) -> str:
    return next(iter(event.calls.values())).key


def _owner(event: Event) -> str:
    if event.part == "change":
        return OPTIMIZER
    if event.part == "loss" or (event.name, event.part) == ("", "output gradient"):
        return LOSS
    return event.name if event.part in (*FORWARD, *BACKWARD) else event.name.rpartition(".")[0]


def _follows(difference: Difference, all_differences: Sequence[Difference]) -> bool:
    """Return whether the gradient of an output differs since the tensor that is computed of it next does."""
    event = difference.event
    if event.part != "output gradient":
        return False
    forward = [each for each in all_differences if each.event.stage == event.stage and each.event.part in FORWARD]
    ends = [i for i, each in enumerate(forward) if each.event.calls == event.calls and each.event.part == "output"]
    following = forward[ends[-1] + 1 :][:1] if ends else []
    return any(each.is_beyond for each in following)


def findings(groups: Mapping[tuple[str, str], Sequence[Difference]], reference: Record, other: Record) -> list[Finding]:
    """Return findings: modules of equal classes whose first difference is of one kind and has one cause are one."""
    merged: dict[tuple, Finding] = {}
    for (module, _), found in groups.items():
        finding = _finding(module, found, reference, other)
        key = finding.kinds, finding.what.partition(" of ")[0], finding.cause
        if key in merged:
            first = merged[key]
            places = tuple(dict.fromkeys((*first.places, *finding.places)))[:4]
            merged[key] = first._replace(
                modules=(*first.modules, module), relative=max(first.relative, finding.relative), places=places
            )
        else:
            merged[key] = finding
    return list(merged.values())


def _finding(module: str, found: Sequence[Difference], reference: Record, other: Record) -> Finding:
    is_statistic = found[0].event.part == "statistic"
    first = max(found, key=lambda each: each.relative) if is_statistic else found[0]
    kinds = tuple(next((c.kind for c in _calls(record) if c.name == module), "") for record in (reference, other))
    call = next((c for c in _calls(other) if c.name == module), None)
    guesses = other.settings.get("guesses", {})
    cause, remedy, fact = next((guesses[key] for key in _keys(module, first) if key in guesses), ("", "", ""))
    cause = cause or _of_call(module, reference, call) or _pattern(first, reference, other)
    limit = first.limit / first.magnitude if first.magnitude else first.limit
    places = _places(first, call, other) or tuple(
        place for record in (other, reference) if (place := record.settings.get("places", {}).get(module))
    )
    part = LOSS if module == LOSS else first.event.part
    return Finding((module,), (kinds[0], kinds[1]), part, first.relative, limit, cause, remedy, fact, places)


def _of_call(module: str, reference: Record, call: Call | None) -> str:
    """Find that a module is called with more or fewer tensors."""
    partner = next((c for c in _calls(reference) if c.name == module), None)
    if call is None or partner is None or call.inputs == partner.inputs:
        return ""
    return f"it is called with {'fewer' if call.inputs < partner.inputs else 'more'} tensors"


def _pattern(difference: Difference, reference: Record, other: Record) -> str:
    """Guess the cause from the pattern of the numbers alone."""
    keys = list(difference.event.keys.values())
    shapes = reference.shapes[keys[0]], other.shapes[keys[1]]
    if shapes[0] != shapes[1]:
        return f"the shape is {shapes[1]} instead of {shapes[0]}"
    x, y = reference.get(keys[0]), other.get(keys[1])
    if difference.event.part in FORWARD:
        return of_activation(x, y, {}) if x.size > 1 else ""  # one number is some number of times any other
    return of_gradient(np.atleast_1d(x), np.atleast_1d(y), {}) if difference.event.part in GRADIENTS else ""


def _keys(module: str, difference: Difference) -> list[str]:
    """Return the keys of guesses that explain a module's first difference."""
    if module in (OPTIMIZER, LOSS):
        return [module]
    if difference.event.part == "statistic":
        return [f"statistic/{module}"]
    if difference.event.part == "input":
        return [f"{difference.event.stage}/{module}/input"]
    return [f"{stage}/{module}" for stage in (difference.event.stage, "training", "evaluation")]


def _places(difference: Difference, call: Call | None, record: Record) -> tuple[str, ...]:
    """Return where the code is: before a call if its input differs, behind the last one within it, or its own."""
    if call is None:
        return ()
    calls = next(calls for calls in record.passes.values() if call in calls)
    if difference.event.part == "input":
        return tuple(dict.fromkeys((*_lines_since_last(call, calls), *call.files)))
    inner = [each.call_sites for each in calls if call.span[0] < each.span[0] < call.span[1]]
    behind = inner[-1][:1] if inner and difference.event.part == "output" else ()
    return tuple(dict.fromkeys((*behind, *reversed(call.files), *call.call_sites)))


def _lines_since_last(call: Call, calls: Sequence[Call]) -> tuple[str, ...]:
    """Return the places of a call, the first with the lines since the call before it in the same module."""
    around = [each.span[0] for each in calls if each.span[0] < call.span[0] < each.span[1]]
    earlier = [each for each in calls if max(around, default=0) < each.span[0] and each.span[1] < call.span[0]]
    before = [each for each in earlier if each.call_sites]  # a package's code may call modules, too
    if not before or not call.call_sites:
        return call.call_sites
    last = max(before, key=lambda each: each.span[1])
    (path, _, line), (other, _, first) = (each.call_sites[0].rpartition(":") for each in (call, last))
    is_range = path == other and int(first) < int(line)
    return f"{path}:{first}-{line}" if is_range else call.call_sites[0], *call.call_sites[1:]


def _calls(record: Record) -> list[Call]:
    return [call for calls in record.passes.values() for call in calls]


def _is_of_biases(natural: Sequence[Difference], matched: Match) -> bool:
    """Return whether nothing differs before the second update, and two biases are one tensor on the other side."""
    stages = [each.event.stage for each in natural if each.is_beyond]
    steps = [step[0] for source in matched.tensors.values() for step in source.steps]
    is_late = all(stage.startswith("update ") and stage != "update 1" for stage in stages)
    return bool(stages) and is_late and ("sum" in steps or "zeros" in steps)


def first_beyond(natural: Sequence[Difference], reference: Record, other: Record) -> list[Finding]:
    """Return a finding for the first difference of passes that are not judged module by module."""
    first = next((difference for difference in natural if difference.is_beyond), None)
    return [] if first is None else [_finding(first.event.name, [first], reference, other)]
