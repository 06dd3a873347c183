"""Tensors of several frameworks' records in the order of the computation, and their differences.

They are judged by the rounding that the frameworks themselves show.

A framework in fp32 and the same in fp64 differ by the rounding of fp32, as the computation amplifies it up to a tensor.
Rounding in fp64 is 2**-29 of that. Two frameworks that compute the same in fp64 differ by about that share; the limit
is SAFETY times as much, since they add in other orders.

This holds as long as rounding in fp32 is small. After an update or two at a large learning rate, it may have grown to
the size of the values. Then it cannot grow further, and no longer shows how far rounding in fp64 has grown: there,
CHAOTIC_SHARE of the values passes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from zoo.parity.record import ACCUMULATED, CLIPPED, Call, Record

Records = Mapping[str, Record]  # by title
AFTER = "after the updates"  # end of the titles of passes that follow the updates
OBJECTIVE_FIRST = 1 << 30  # position of parameters that no module of the model has
SAFETY = 1000.0
FP64_SHARE = 2.0**-29  # of the rounding of fp32
FLOOR = 2.0**-52 * 64  # of the largest values of a stage: always passes
SUM_FLOOR = 2.0**-52 * 4096  # the same for a loss or a norm: one number has no reliable rounding of its own
CHAOTIC = 0.03  # rounding of fp32, relative to the largest value, from which on it has grown too far to be a measure
CHAOTIC_SHARE = 1e-3  # of the largest value
OUTLIER = 1000.0  # times the median size of a stage's inputs: no measure of its others
FP32_SAFETY = 30.0  # where a framework has no fp64 and all are compared in fp32
PARTS = {"in": "input", "out": "output", "dout": "output gradient", "din": "input gradient"}


class Event(NamedTuple):
    """A tensor of the proof.

    Attributes:
        keys: of the tensor in each record that has it, by the record's title.
        part: input, output, their gradients, loss, gradient, grad_norm, statistic, objective (a running statistic of
            the loss), change, optimizer, ema or prediction.
    """

    keys: dict[str, str]
    stage: str
    name: str
    part: str
    calls: dict[str, Call]


def events(records: Records, least: int = 2) -> list[Event]:
    """List the tensors that at least so many records have."""
    first = next(iter(records.values()))
    order: list[Event] = []
    for title in first.passes:
        if not title.endswith(AFTER):
            order += _pass_events(records, title)
    for step in first.steps:
        order += _update_events(records, step["title"], first)
    order += _plain_events(records, ["prediction"], "prediction", "prediction")
    for stage in ("moving average", "in windows"):
        order += _plain_events(records, [f"{stage}/prediction"], stage, "prediction")
    for title in first.passes:
        if title.endswith(AFTER):
            order += _pass_events(records, title)
    return [event for event in order if len(event.keys) >= least]


def backward_order(record: Record, names: Iterable[str]) -> list[str]:
    """Sort parameters by the order in which the backward pass reaches their modules; those of the loss come first."""
    reached = {call.name: call.span[1] for call in record.passes["training"]}
    return sorted(names, key=lambda name: -reached.get(name.rpartition(".")[0], OBJECTIVE_FIRST))


def _pass_events(records: Records, title: str) -> Iterator[Event]:
    """Yield inputs and outputs of the modules of a forward pass, as they are computed."""
    by_name = {record: {call.identity: call for call in records[record].passes.get(title, [])} for record in records}
    first = next(iter(records.values()))
    ticks: list[tuple[int, Call, str]] = []
    for call in first.passes[title]:
        ticks += [(call.span[0], call, "in"), (call.span[1], call, "out")]
    ticks.sort(key=lambda tick: tick[0])
    backward = [(position, call, f"d{kind}") for position, call, kind in reversed(ticks)]
    for _, call, kind in (*ticks, *backward):
        identity = call.identity
        calls = {record: same[identity] for record, same in by_name.items() if identity in same}
        for i in range(min(other.inputs if "in" in kind else other.outputs for other in calls.values())):
            keys = {record: f"{other.key}/{kind}{i}" for record, other in calls.items()}
            known = {record: key for record, key in keys.items() if key in records[record].shapes}
            yield Event(known, title, call.name, PARTS[kind], calls)


def _update_events(records: Records, step: str, first: Record) -> list[Event]:
    def named(part: str) -> list[str]:
        start = f"{step}/{part}/"
        return [key.removeprefix(start) for key in first.shapes if key.startswith(start) and "#" not in key]

    order = backward_order(first, named("gradient"))
    found = _plain_events(records, [f"{step}/loss"], step, "loss")
    found += _plain_events(records, [f"{step}/gradient/{name}" for name in order], step, "gradient")
    found += _plain_events(records, [f"{step}/grad_norm"], step, "grad_norm")
    for part, names in (
        ("statistic", named("statistic")),
        ("objective", named("objective")),
        ("change", order),
        ("optimizer", named("optimizer")),
        ("ema", named("ema")),
    ):
        found += _plain_events(records, [f"{step}/{part}/{name}" for name in names], step, part)
    return found


def _plain_events(records: Records, keys: Sequence[str], stage: str, part: str) -> list[Event]:
    return [
        Event(
            {title: key for title, record in records.items() if key in record.shapes},
            stage,
            key.removeprefix(f"{stage}/{part}/").removeprefix(f"{stage}/"),
            part,
            {},
        )
        for key in keys
    ]


class Difference(NamedTuple):
    """Comparison of one tensor.

    Attributes:
        largest: largest difference between any two records; inf if the shapes differ or a number is not finite.
        limit: largest difference that rounding explains.
        apart: titles of the records that differ from the majority; all, if there is no majority.
    """

    event: Event
    largest: float
    limit: float
    magnitude: float
    apart: tuple[str, ...]

    @property
    def is_beyond(self) -> bool:
        """Whether rounding does not explain the difference."""
        return not self.largest <= self.limit

    @property
    def relative(self) -> float:
        return self.largest / self.magnitude if self.magnitude else self.largest


def differences(proofs: Records, rounded: Records) -> list[Difference]:
    """Compare all tensors, in the order of the computation.

    Args:
        proofs: records of at least two frameworks by title, in fp64 or, where a framework has none, in fp32.
        rounded: records in fp32 by the same titles, perhaps not of all; they show the rounding.
    """
    found = events(proofs)
    sizes: dict[tuple[str, str], list[float]] = {}
    for event in found:
        size = max(magnitude_of(proofs, event), _weight(proofs, event))
        sizes.setdefault((event.stage, event.part), []).append(size)
    scales = {kind: (_largest if kind[1] == "input" else max)(values) for kind, values in sizes.items()}
    return [_difference(event, proofs, rounded, scales[event.stage, event.part]) for event in found]


def _largest(sizes: Sequence[float]) -> float:
    """Return the largest size of inputs but for those of masks, which may be the largest number of a type."""
    usual = float(np.median([size for size in sizes if size] or [0.0]))
    return max((size for size in sizes if size <= OUTLIER * usual), default=0.0)


def distance(records: Records, event: Event, a: str, b: str) -> float:
    """Return the largest difference of a tensor's excerpts and channel statistics between two records."""
    return _distance(records[a], event.keys[a], records[b], event.keys[b])


def rounding(proof: Record, rounded: Record, key: str) -> float:
    """Return the difference of a tensor between fp64 and fp32; that of the first update if fp32 has not got it."""
    if key not in rounded.shapes:
        key = f"update 1/{key.partition('/')[2]}"
    return _distance(proof, key, rounded, key)


def _distance(first: Record, key: str, second: Record, other_key: str) -> float:
    x, y = first.get(key), second.get(other_key)
    if x.shape != y.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):  # infinity less infinity
        largest = float(np.abs(x - y).max(initial=0.0))
    channels_x, channels_y = first.channels(key), second.channels(other_key)
    if channels_x is not None and channels_y is not None:
        largest = max(largest, float(np.abs(channels_x - channels_y).max()))
    return largest if np.isfinite(largest) else float("inf")


def _difference(event: Event, proofs: Records, rounded: Records, scale: float) -> Difference:
    titles, magnitude = list(event.keys), magnitude_of(proofs, event)
    noise = max(
        (rounding(proofs[title], rounded[title], event.keys[title]) for title in titles if title in rounded),
        default=0.0,
    )
    is_chaotic = _follows_an_update(event) and CHAOTIC * magnitude <= noise < np.inf
    # An update that overflowed or diverged in fp32 explains no more. The largest value of all tensors counts, because
    # AdamW makes large changes of gradients that are 0 but for rounding.
    noise = min(noise, scale)
    floor = (SUM_FLOOR if event.part in ("loss", "grad_norm") else FLOOR) * max(scale, magnitude)
    if all(proofs[title].precision == "fp64" for title in titles):
        limit = noise * SAFETY * FP64_SHARE + floor
        limit = max(limit, CHAOTIC_SHARE * magnitude) if is_chaotic else limit
    else:
        limit = noise * FP32_SAFETY + floor / FP64_SHARE
    pairs = {(a, b): distance(proofs, event, a, b) for i, a in enumerate(titles) for b in titles[i + 1 :]}
    if max(pairs.values()) > limit and all(_is_fp32(proofs[title].get(event.keys[title])) for title in titles):
        limit = max(limit, noise * FP32_SAFETY + floor / FP64_SHARE)  # both compute it so, whatever their precision
    agree = {pair: value <= limit and _same_shape(proofs, event, *pair) for pair, value in pairs.items()}
    largest = max(pairs.values()) if all(_same_shape(proofs, event, *pair) for pair in pairs) else float("inf")
    apart = _apart(titles, lambda a, b: agree.get((a, b), agree.get((b, a))))
    not_finite = tuple(title for title in titles if not np.isfinite(proofs[title].get(event.keys[title])).all())
    if len(apart) == len(titles) and len(not_finite) < len(titles):
        apart = not_finite or apart
    if not apart and not all(agree.values()):  # each of the outer two agrees with the one in the middle
        apart = tuple(titles)
    return Difference(event, largest, limit, magnitude, apart)


def _is_fp32(values: np.ndarray) -> bool:
    """Return whether all numbers are those of fp32."""
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float32) == values).all())


def _follows_an_update(event: Event) -> bool:
    """Return whether a tensor was computed from weights that are no longer the initial ones."""
    return event.stage not in ("training", "evaluation", "update 1", CLIPPED, ACCUMULATED)


def _apart(titles: Sequence[str], agree: Callable[[str, str], bool | None]) -> tuple[str, ...]:
    """Return the titles that do not belong to the majority."""
    groups = [[other for other in titles if other == title or agree(title, other)] for title in titles]
    majority = max(groups, key=len)
    if 2 * len(majority) <= len(titles):
        return tuple(titles)
    return tuple(title for title in titles if title not in majority)


def _same_shape(records: Records, event: Event, a: str, b: str) -> bool:
    return records[a].shapes[event.keys[a]] == records[b].shapes[event.keys[b]]


def _weight(records: Records, event: Event) -> float:
    """Return the largest initial value of a parameter whose change is compared: the change is rounded as it is."""
    settings = next(iter(records.values())).settings
    return settings["magnitudes"].get(event.name, 0.0) if event.part in ("change", "ema") else 0.0


def magnitude_of(records: Records, event: Event) -> float:
    """Return the largest finite value of a tensor."""
    values = [np.abs(records[title].get(key)).max(initial=0.0) for title, key in event.keys.items()]
    finite = [float(value) for value in values if np.isfinite(value)]
    return max(finite, default=0.0)
