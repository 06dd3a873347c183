"""Comparison of two or more sides: their weights find each other, all run the same passes, their records are judged."""

import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import UserError, known_names, similar_name
from zoo.parity import inputs as input_values
from zoo.parity import losses, mapping, match, nesting, updates
from zoo.parity.facts import facts
from zoo.parity.outline import Outline, Tensor
from zoo.parity.record import Identity, Record
from zoo.parity.record import load as load_record
from zoo.parity.session import Session
from zoo.parity.side import INPUTS, MATCH, NAMES, OUTLINE, Order, Side, parse, spec_of
from zoo.parity.verdict import LOSS, OPTIMIZER, Judged, Result, judge
from zoo.weights import files

NATURAL, ALONE, EXPLAINED = "natural", "alone", "explained"
FINE, COARSE = "fp64", "fp32"
UPDATES = 3
FREEZING = {"torch", "paddle", "mindspore"}  # frameworks with a property by which a parameter is not trained


class Request(NamedTuple):
    """What is compared.

    Attributes:
        sides: the first one is the reference.
        accepted: modules of the reference whose differences are known.
        mappings: file or names by which tensors of a side are found in the reference, by title.
    """

    sides: Sequence[Side]
    inputs: Mapping[str, np.ndarray]
    loss: str | None = None
    optimizer: str | None = None
    updates: int = UPDATES
    accepted: Sequence[str] = ()
    mappings: Mapping[str, Any] = {}


class Opened(NamedTuple):
    """A side whose process runs."""

    session: Session
    outline: Outline
    precisions: Sequence[str]
    has_gradients: bool
    dropout: Mapping[str, float]


def request_of(
    sides: Mapping[str, Any],
    inputs: Mapping[str, Any],
    loss: Any = None,
    optimizer: Any = None,
    count: int = UPDATES,
    accepted: Sequence[str] = (),
    mappings: Mapping[str, Any] = {},
    python: Mapping[str, str] = {},
    channels_last: Sequence[str] = (),
    seed: int = 0,
) -> Request:
    """Return the request that the arguments of `zoo.parity.compare` make.

    Raises:
        UserError: an argument is wrong, or names no side.
    """
    if len(sides) < 2:
        raise UserError("two sides at least, such as torch=mine.py:build paddle=other.py:build")
    for key, value in (("loss", loss), ("optimizer", optimizer)):
        if not isinstance(value, str | Mapping | None):
            raise UserError(f"{key}: give a function for each side, as {{{', '.join(f'{t!r}: ...' for t in sides)}}}")
    own = {
        key: value if isinstance(value, Mapping) else {} for key, value in (("loss", loss), ("optimizer", optimizer))
    }
    named = {f"--{key}": tuple(value) for key, value in own.items()}
    named |= {"--python": tuple(python), "--map": tuple(mappings), "--channels-last": tuple(channels_last)}
    for option, titles in named.items():
        for title in titles:
            if title not in sides:
                raise UserError(f"{option} {title}: there is no such side{known_names(title, tuple(sides))}")
    found = []
    for title, source in sides.items():
        functions: dict[str, Any] = {key: spec_of(value[title]) for key, value in own.items() if title in value}
        parsed = parse(title, spec_of(source))
        found.append(parsed._replace(python=python.get(title), channels_last=title in channels_last, **functions))
    for key, value in own.items():
        if value and len(value) < len(sides):
            raise UserError(
                f"--{key}: give one for each side, or one of the zoo; {', '.join({*sides} - {*value})} lacks it"
            )
    if count < 1 or (count != UPDATES and not optimizer):
        raise UserError(f"--updates {count}: one at least, of an optimizer; name one by --optimizer")
    made = input_values.make(inputs, seed)
    if isinstance(loss, str):
        losses.check(loss, made)
    if isinstance(optimizer, str):
        updates.settings_of(optimizer)
    shared_loss, shared_optimizer = (value if isinstance(value, str) else None for value in (loss, optimizer))
    return Request(found, made, shared_loss, shared_optimizer, count if optimizer else 1, accepted, mappings)


def run(request: Request, place: str | None = None) -> Result:
    """Compare the sides.

    Args:
        place: new folder for the records; None for a temporary one.

    Raises:
        UserError: a side fails, or tensors do not find each other.
    """
    if place is None:
        with tempfile.TemporaryDirectory(prefix="parity-") as temporary:
            return _run(request, Path(temporary))
    folder = Path(place)
    if folder.exists():
        raise UserError(f"{place} exists already and is not overwritten; choose another folder")
    folder.mkdir(parents=True)
    return _run(request, folder)


def _run(request: Request, folder: Path) -> Result:
    write_inputs(request, folder)
    with ExitStack() as stack:
        opened = open_sides(request, folder, stack)
        reference, *others = opened
        outline = reference.outline
        modules = dict.fromkeys([call.name for call in outline.calls] + [tensor.module for tensor in outline.tensors])
        known = [*modules, LOSS, OPTIMIZER, *(fact.name for fact in facts())]
        for name in request.accepted:
            if name not in known:
                raise UserError(f"--accept: there is no module or fact {name!r}{similar_name(name, known)}")
        judged = []
        bases = {finest(reference, other)[0] for other in others}
        for precision in reference.precisions:
            ask(reference, Order(f"{NATURAL}-{precision}", precision, keeps=precision in bases, **_training(request)))
        reference.session.close()  # its memory is for the others
        for other in others:
            judged.append(_compare(request, reference, other))
            other.session.close()
    return Result(judged)


def write_inputs(request: Request, folder: Path) -> None:
    files.write(str(folder / INPUTS), dict(request.inputs), {NAMES: json.dumps(list(request.inputs))})


def _training(request: Request) -> dict[str, Any]:
    return {"loss": request.loss, "optimizer": request.optimizer, "updates": request.updates}


def open_sides(request: Request, folder: Path, stack: ExitStack) -> list[Opened]:
    """Start all sides at once, and return them with the outlines of their models."""
    sessions = []
    for number, side in enumerate(request.sides):
        place = folder / f"{number}-{side.title.replace(':', '-').replace('/', '-')}"
        session = Session(side, place)
        stack.callback(session.close)
        withheld = [losses.LABEL] if request.loss or side.loss else []
        session.send({"do": "outline", "withheld": withheld})
        sessions.append(session)
    return [_describe(session, session.receive()) for session in sessions]


def _describe(session: Session, answer: Mapping[str, Any]) -> Opened:
    record = load_record(str(session.folder / OUTLINE))
    tensors = [Tensor(name, tuple(shape), *rest) for name, shape, *rest in answer["tensors"]]
    calls = next(iter(record.passes.values()))
    outline = Outline(session.side.framework, tensors, calls, record.shapes)
    own = session.side.precision
    precisions = (own,) if own else answer["precisions"]
    return Opened(session, outline, precisions, answer["has_gradients"], answer["dropout"])


def ask(opened: Opened, order: Order) -> None:
    """Let a side make a record."""
    opened.session.ask({"do": "record", **order._asdict()})


def record_of(opened: Opened, name: str) -> Record:
    return load_record(str(opened.session.folder / f"{name}.safetensors"))


def finest(reference: Opened, other: Opened) -> tuple[str, str]:
    """Return the precision of each in which they are compared: fp64, if both have it."""
    precision = FINE if FINE in other.precisions and FINE in reference.precisions else other.precisions[-1]
    return precision if precision in reference.precisions else reference.precisions[0], precision


def _compare(request: Request, reference: Opened, other: Opened) -> Judged:
    """Compare a side with the reference: as it is, each module alone, and with the modules that differ replaced."""
    title = other.session.side.title
    given = request.mappings.get(title)
    matched = match.match(reference.outline, other.outline, mapping.load(given) if isinstance(given, str) else given)
    match.require_complete(matched, (reference.outline, other.outline), title, f"--map {title}=FILE")
    write_match(other, matched)
    base, precision = finest(reference, other)
    common = {"partner": str(reference.session.folder), "trains": reference.has_gradients, **_training(request)}
    natural = f"{NATURAL}-{base}"
    ask(other, Order(f"{NATURAL}-{precision}", precision, reference=natural, **common))
    if COARSE in other.precisions and precision != COARSE:
        ask(other, Order(f"{NATURAL}-{COARSE}", COARSE, reference=natural, **common))
    names = (reference.session.side.title, title)
    proofs = {names[0]: record_of(reference, natural), names[1]: record_of(other, f"{NATURAL}-{precision}")}
    rounded = {
        name: record_of(opened, f"{NATURAL}-{COARSE}")
        for name, opened in zip(names, (reference, other))
        if COARSE in opened.precisions and (opened is reference or precision != COARSE)
    }
    order = Order(ALONE, precision, reference=natural, **common)
    matched, forced = _without(other, matched, nesting.ending_elsewhere(proofs, rounded))
    ask(other, order._replace(forced=forced))
    alone = {names[0]: proofs[names[0]], names[1]: record_of(other, ALONE)}
    if later := nesting.holding_what_follows(*alone.values()):
        matched, forced = _without(other, matched, later)
        ask(other, order._replace(forced=forced))
        alone[names[1]] = record_of(other, ALONE)
    for records in (proofs, rounded):
        if title in records:
            records[title] = nesting.only(records[title], forced)
    judged = judge(names, matched, proofs, alone, rounded, request.accepted)
    judged = judged._replace(dropout=_dropout(reference, other), frozen=_frozen(reference, other, matched))
    suspects = [identity for identity in forced if identity[0] in judged.suspects()]
    if judged.outputs_agree:
        return judged._replace(is_explained=True)
    if suspects:
        ask(other, Order(EXPLAINED, precision, reference=natural, forced=tuple(suspects), **common))
        judged = judged.explained_by({**proofs, names[1]: record_of(other, EXPLAINED)}, rounded)
    return judged


def _without(
    opened: Opened, matched: match.Match, calls: Collection[Identity]
) -> tuple[match.Match, tuple[Identity, ...]]:
    """Tell a side that some calls have no counterpart; return the match, and the reference's calls that have one."""
    matched = matched._replace(calls={own: each for own, each in matched.calls.items() if each not in calls})
    write_match(opened, matched)
    return matched, tuple(dict.fromkeys(matched.calls.values()))


def write_match(opened: Opened, matched: match.Match) -> None:
    (opened.session.folder / MATCH).write_text(mapping.to_json(matched), encoding="utf-8")


def _frozen(reference: Opened, other: Opened, matched: match.Match) -> list[str]:
    """Return the parameters that one side alone trains, of frameworks in which a parameter may be frozen."""
    if not {reference.outline.framework, other.outline.framework} <= FREEZING:
        return []
    trained = {tensor.name: tensor.is_trained for tensor in reference.outline.tensors}
    sources = {t: matched.tensors[t.name].names for t in other.outline.tensors if t.name in matched.tensors}
    return [names[0] for t, names in sources.items() if names and trained[names[0]] != t.is_trained]


def _dropout(reference: Opened, other: Opened) -> dict[str, tuple[float, float]]:
    """Return the rates of dropout modules that differ, which have one name or one place in the order of both models."""
    ours, theirs = reference.dropout, other.dropout
    if ours.keys() != theirs.keys() and len(ours) == len(theirs):
        theirs = dict(zip(ours, theirs.values()))
    return {name: (ours[name], rate) for name, rate in theirs.items() if ours.get(name, rate) != rate}
