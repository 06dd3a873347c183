"""Findings: what differs first, in which framework, where its code is, and a guess at the cause."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from zoo.compare import causes
from zoo.compare.formulas import NORM_ROUNDING
from zoo.compare.rounding import excess_rounding, in_another_type
from zoo.parity.causes import of_activation, of_gradient, some
from zoo.parity.differences import Difference, Event, Records, differences
from zoo.parity.record import CLIPPED, Record


class Finding(NamedTuple):
    """Something that differs and is not explained by anything before it.

    Attributes:
        titles: records at fault; several if it cannot be told which is.
        what: description of the tensor and of the difference.
        places: files, perhaps with lines, in which to look, the most likely first.
    """

    titles: tuple[str, ...]
    what: str
    places: tuple[str, ...]
    cause: str

    def __str__(self) -> str:
        who = " or ".join(self.titles)
        cause = f"\n    likely cause: {self.cause}" if self.cause else ""
        return f"{who}: {self.what}{cause}\n    look in: {', '.join(self.places)}"


class Verdict(NamedTuple):
    """Result of the comparison of proofs. without_opinion: what the reference has not got."""

    findings: list[Finding]
    differences: list[Difference]
    without_opinion: tuple[str, ...] = ()


def judge(proofs: Records, rounded: Records, mixed: Records | None = None) -> Verdict:
    """Compare the proofs of several frameworks.

    Args:
        proofs: in fp64 where a framework has it, by title.
        rounded: in fp32, by the same titles.
        mixed: in the 16 bits that the recipe trains with, by the same titles; perhaps not of all.
    """
    found = differences(proofs, rounded)
    missing = (what for record in proofs.values() for what in record.settings.get("no_opinion", ()))
    without_opinion = tuple(dict.fromkeys(missing))
    updates, averages = _of_all(proofs, optimizer_findings), _of_all(proofs, average_findings)
    findings, explained = updates + averages, {"change": updates, "optimizer": updates, "ema": averages}
    unequal = [finding for finding in (_missing_gradients(proofs),) if finding]
    first = next((difference for difference in found if difference.is_beyond), None)
    if unequal:
        return Verdict(unequal + findings + opinion_findings(proofs), found, without_opinion)
    if first and not explained.get(first.event.part):
        findings.insert(0, _difference_finding(first, found, proofs))
    for records in (rounded, mixed or {}):  # what only the run's own precision reaches
        findings = findings or _of_all(records, optimizer_findings) + _of_all(records, average_findings)
        findings = findings or _rounding_findings(proofs, records, rounded if records is mixed else {})
    shared = opinion_findings(proofs)
    known = {finding.what for finding in shared}
    shared += [finding for finding in opinion_findings(mixed or {}) if finding.what not in known]
    return Verdict(findings + shared + _without_gradient(rounded), found, without_opinion)


def _of_all(records: Records, find: Callable[[str, Record], list["Finding"]]) -> list["Finding"]:
    return [finding for title, record in records.items() for finding in find(title, record)]


def optimizer_findings(title: str, record: Record) -> list[Finding]:
    """Return a finding for the first update that does not follow the optimizer's formula, or for a wrong norm.

    Or for a skipped update that changes something.
    """
    places = tuple(record.files["update"])
    changed = record.settings.get("changed_by_skipped_update")
    if changed:
        what = f"an update whose gradients are not finite changes {some(changed)}"
        places = (*places, *record.files["precision"])
        return [Finding((title,), f"{what}, in {record.precision}", places, "it is not skipped")]
    for what in record.settings.get("coarse", ())[:1]:
        places = (*record.files["precision"], *record.files["objective"], *record.files["trainer"])
        return [Finding((title,), f"{what} is not in fp32, but in {record.precision}", places, "")]
    for what in record.settings.get("not_rounded", ())[:1]:
        return [Finding((title,), f"the gradient of {what} is not rounded in an exact update", places, "")]
    for what in record.settings.get("loss_scale", ())[:1]:
        return [Finding((title,), f"{what}, in {record.precision}", places, "")]
    for step in record.steps:
        norm, reported = step["norm_of_gradients"], step["grad_norm"]
        if abs(norm - reported) > NORM_ROUNDING[record.precision] * norm:
            what = f"{step['title']}: the norm of the gradients is {norm:.6g}, and reported as {reported:.6g}"
            return [Finding((title,), what, places, "")]
    deviating = [step for step in record.steps if step["deviations"] and np.isfinite(step["grad_norm"])]
    if not deviating:
        return []
    step, *later = deviating
    if all(name in record.settings["sharded"] for name in step["deviations"]):
        places = (*record.files["shards"], *places)
    largest = max(deviation["deviation"] for deviation in step["deviations"].values())
    what = (
        f"{step['title']}: {len(step['deviations'])} of {len(record.settings['param_groups'])} tensors are not updated "
        f"by the optimizer's formula, by up to {largest:.1e} of the update, in {record.precision}"
    )
    # When momentum counts, more causes can be told apart.
    clearest = later[0] if later and later[0]["title"] != CLIPPED else step
    return [Finding((title,), what, places, causes.of_update(clearest["deviations"], record.settings["momentum"]))]


def average_findings(title: str, record: Record) -> list[Finding]:
    """Return a finding for the first update after which the moving average does not follow its formula."""
    step = next((step for step in record.steps if step.get("averages")), None)
    if step is None:
        return []
    deviating = step["averages"]
    largest = max(deviation["deviation"] for deviation in deviating.values())
    what = (
        f"{step['title']}: {len(deviating)} of {len(record.settings['param_groups'])} moving averages do not follow "
        f"the formula, by up to {largest:.1e} of the largest value, in {record.precision}"
    )
    found = sorted({deviation["cause"] for deviation in deviating.values()} - {""})
    named = [f"{cause} ({some([name for name in deviating if deviating[name]['cause'] == cause])})" for cause in found]
    return [Finding((title,), what, tuple(record.files["average"]), "; ".join(named))]


def opinion_findings(records: Records) -> list[Finding]:
    """Return a finding for each disagreement with the reference, of all frameworks that have the same."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for title, record in records.items():
        for what, places in record.settings.get("opinions", ()):
            found.setdefault((what, tuple(places)), []).append(title)
    return [Finding(_whose(titles, records), what, places, "") for (what, places), titles in found.items()]


def _whose(titles: Sequence[str], records: Records) -> tuple[str, ...]:
    return ("every framework",) if len(titles) == len(records) else tuple(titles)


def _without_gradient(records: Records) -> list[Finding]:
    """Return a finding for parameters that get no gradient from the recipe's own initial weights."""
    found: dict[tuple[str, ...], list[str]] = {}
    for title, record in records.items():
        found.setdefault(tuple(record.settings["without_gradient"]), []).append(title)
    return [
        Finding(
            _whose(titles, records),
            f"from the recipe's initial weights, the gradient of {some(names)} is 0 in every update",
            tuple(_module_files(records[titles[0]], names[0])),
            "layers around it, or it itself, start at values such as zeros that let no gradient through",
        )
        for names, titles in found.items()
        if names
    ]


def _missing_gradients(proofs: Records) -> Finding | None:
    names = {
        title: {key for key in record.shapes if key.startswith("update 1/gradient/") and "#" not in key}
        for title, record in proofs.items()
    }
    everywhere, anywhere = set.intersection(*names.values()), set.union(*names.values())
    if everywhere == anywhere:
        return None
    key = min(anywhere - everywhere)
    trained = tuple(title for title in proofs if key in names[title])
    frozen = tuple(title for title in proofs if key not in names[title])
    places = tuple(proofs[min(frozen, trained, key=len)[0]].files["trainer"])
    name = key.rpartition("/")[2]
    if len(trained) < len(frozen):
        return Finding(trained, f"{name} is trained, as it is not elsewhere", places, "it should be frozen")
    return Finding(frozen, f"{name} is not trained, as it is elsewhere", places, "it is frozen")


def _difference_finding(first: Difference, found: Sequence[Difference], proofs: Records) -> Finding:
    event, count = first.event, sum(difference.is_beyond for difference in found)
    size = f"differs by {first.relative:.1e} of its largest value"
    if _shapes(event, proofs) > 1:
        size = "has another shape"
    elif first.magnitude:
        size += f", where rounding explains {first.limit / first.magnitude:.1e}"
    what = f"{_describe(event)} {size}; it is the first of {count} tensors that differ"
    majority = [title for title in event.keys if title not in first.apart]
    guess = ""
    if majority:
        guess = _cause(event, proofs, majority[0], first.apart[0])
    elif len(event.keys) == 2:
        a, b = event.keys
        cases = {right: _cause(event, proofs, right, wrong) for right, wrong in ((a, b), (b, a))}
        guess = "; ".join(f"if {right} is right, {cause}" for right, cause in cases.items() if cause)
    places = [place for apart in first.apart for place in _places(event, found, proofs[apart], apart)]
    return Finding(first.apart, what, tuple(dict.fromkeys(places)), guess)


def _describe(event: Event) -> str:
    """Return stage and name of a tensor."""
    if event.part == event.stage:
        return event.stage
    if event.part in ("loss", "grad_norm", "prediction"):
        return f"{event.stage}: {event.part}"
    return f"{event.stage}: {event.part} of {event.name or 'the model'}"


def _shapes(event: Event, proofs: Records) -> int:
    return len({proofs[title].shapes[key] for title, key in event.keys.items()})


def _cause(event: Event, proofs: Records, reference: str, suspect: str) -> str:
    a, b = proofs[reference], proofs[suspect]
    x, y = a.get(event.keys[reference]), b.get(event.keys[suspect])
    if event.part in ("input", "output", "prediction"):
        return of_activation(x, y, causes.factors(a.settings))
    if event.part == "loss":
        return causes.of_loss(float(x), float(y), a.settings)
    if event.part == "statistic":
        return causes.of_statistic(event.name, a.get(f"initial/{event.name}"), x, y)
    return of_gradient(np.atleast_1d(x), np.atleast_1d(y), causes.factors(a.settings))


def _places(event: Event, found: Sequence[Difference], record: Record, title: str) -> list[str]:
    """Return where the code of an event is."""
    files = record.files
    if event.part in ("input", "output"):
        frozen = record.files["trainer"] if _is_frozen_normalization(event, record) else []
        return [*_places_of_call(event, record, title), *frozen]
    if event.part == "gradient":
        return _places_of_gradient(event, found, record)
    summed = files["update"] if record.settings["accumulate"] > 1 else []  # over micro-batches
    if event.part == "statistic":
        return [*reversed(_module_files(record, event.name)), *files["statistics"], *summed]
    by_part = {
        "loss": files["objective"] + files["trainer"] + summed,
        "objective": files["objective"],
        "grad_norm": files["update"],
        "change": files["update"],
        "optimizer": files["update"],
        "ema": files["average"],
        "prediction": files["output"] + files["trainer"],
    }
    if event.name.removeprefix("momentum/") in record.settings["sharded"]:
        return files["shards"] + by_part[event.part]
    return by_part[event.part]


def _is_frozen_normalization(event: Event, record: Record) -> bool:
    """Return whether an output is that of a normalization whose scale is not trained: the trainer freezes it."""
    groups = record.settings["param_groups"]
    weight = f"{event.name}.weight"
    is_normalization = f"{event.name}.running_var" in groups
    return event.part == "output" and is_normalization and groups.get(weight, [1.0])[0] == 0


def _places_of_call(event: Event, record: Record, title: str) -> list[str]:
    call = event.calls[title]
    if event.part == "input":
        return [*call.call_sites, *call.files] if call.name else record.files["preprocess"]
    is_leaf = call.span[1] == call.span[0] + 1
    return list(call.files) if is_leaf else [*reversed(call.files)]


def _places_of_gradient(event: Event, found: Sequence[Difference], record: Record) -> list[str]:
    """Return the code between the module and the next one, through which the gradient comes; or that of the loss.

    A gradient that is equal in the first update and differs later depends on something that is kept between updates.
    """
    if event.stage not in (record.steps[0]["title"], CLIPPED):
        return [*record.files["trainer"], *record.files["update"], *_module_files(record, event.name)]
    gradients = [d for d in found if d.event.part == "gradient" and d.event.stage == event.stage]
    beyond = [d for d in gradients if d.is_beyond]
    if gradients and gradients[0].is_beyond:
        if len(beyond) == len(gradients):
            return record.files["objective"] + record.files["trainer"]
        return [*record.files["objective"], *_module_files(record, event.name)]
    return [*_module_files(record, event.name), *_next_call(record, event.name)]


def _module_files(record: Record, parameter: str) -> list[str]:
    module = parameter.rpartition(".")[0]
    return next(
        (list(call.files) for call in record.passes["training"] if call.name == module), record.files["trainer"]
    )


def _next_call(record: Record, parameter: str) -> list[str]:
    module, calls = parameter.rpartition(".")[0], record.passes["training"]
    position = next((i for i, call in enumerate(calls) if call.name == module), len(calls))
    if position + 1 >= len(calls):
        return []
    call = calls[position + 1]
    known = {site.partition(":")[0] for site in call.call_sites}
    return [*call.call_sites, *(path for path in call.files if path not in known)]


def _rounding_findings(proofs: Records, rounded: Records, finer: Records) -> list[Finding]:
    """Return a finding for the first tensor whose rounding in the run's precision is far above the others'.

    Or for a framework that does not compute in the run's 16 bits.
    """
    for title in in_another_type(rounded) if finer else ():
        record = rounded[title]
        what = f"no output of a layer has numbers of {record.precision}: the model computes in another type"
        files = dict.fromkeys((*record.files["trainer"], *record.files["precision"]))
        return [Finding((title,), what, tuple(files), "autocast is off, or has another type")]
    found = excess_rounding(proofs, rounded, finer)
    first = next((difference for difference in found if difference.is_beyond), None)
    if first is None or not first.apart:
        return []
    title, others = first.apart[0], [other for other in first.event.keys if other in rounded.keys() - {*first.apart}]
    cause = _cause(first.event, rounded, others[0], title) if others else ""
    reference = "fp64, or from the others," if finer and len(first.event.keys) > 1 else "fp64"
    what = (
        f"{_describe(first.event)} in {rounded[title].precision} differs from {reference} by {first.relative:.1e} of "
        f"itself, where rounding explains {first.limit / first.magnitude:.1e}"
    )
    places = [*_places(first.event, found, rounded[title], title), *rounded[title].files["precision"]]
    return [Finding(first.apart, what, tuple(dict.fromkeys(places)), cause)]
