"""Tensors of several frameworks' records in the order of the computation, and their differences.

They are judged by the rounding that the frameworks themselves show.

A framework in fp32 and the same in fp64 differ by the rounding of fp32, as the computation amplifies it up to a tensor.
Rounding in fp64 is 2**-29 of that. Two frameworks that compute the same in fp64 differ by about that share; the limit
is SAFETY times as much, since they add in other orders.

This holds as long as rounding in fp32 is small. After an update or two at a large learning rate, it may have grown to
the size of the values. Then it cannot grow further, and no longer shows how far rounding in fp64 has grown: there,
CHAOTIC_SHARE of the values passes.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from zoo.parity.record import ACCUMULATED, CLIPPED, ROUNDING_UNITS, Call, Record

Records = Mapping[str, Record]  # by title
AFTER = "after the updates"  # end of the titles of passes that follow the updates
OBJECTIVE_FIRST = 1 << 30  # position of parameters that no module of the model has
SAFETY = 1000.0
FP64_SHARE = 2.0**-29  # of the rounding of fp32
FLOOR = 2.0**-52 * 64  # of the largest values of a stage: always passes
SUM_FLOOR = 2.0**-52 * 4096  # the same for a loss or a norm: one number has no reliable rounding of its own
CHAOTIC = 0.03  # rounding of fp32, relative to the largest value, from which on it has grown too far to be a measure
CHAOTIC_SHARE = 1e-3  # of the largest value
FP32_SAFETY = 30.0  # where a framework has no fp64 and all are compared in fp32
# What rounding changes little: not gradients, since it opens and closes ReLUs, nor what follows an update.
STEADY = {
    ("training", "input"),
    ("training", "output"),
    ("evaluation", "input"),
    ("evaluation", "output"),
    ("update 1", "loss"),
    ("update 1", "statistic"),
    (ACCUMULATED, "loss"),
    (ACCUMULATED, "statistic"),
}
EXCESS = 100.0  # a framework's rounding in fp32 as a multiple of that of the others, to be reported
EXCESS_FLOOR = {"fp32": 64, "fp16": 32, "bf16": 32}  # units of the largest value: rounding that is never reported
# Part of a gradient by which it may be longer or shorter than in fp64, and its distance from that: rounding opens and
# closes ReLUs. In the demos, lengths differ by up to 0.002 in fp32 and 0.2 in bf16.
GRADIENT_SHARES = {"fp32": (0.02, 0.2), "fp16": (0.1, 0.2), "bf16": (0.75, 1.5)}
# The same between two frameworks in one 16-bit type, whose rounding is largely common: in resnet50_demo 0.013 in fp16,
# for a bias 0.07, where both are 0.2 away from fp64. The distance from fp64 may then be COMMON_ROUNDING times as large.
PAIR_SHARES = {"fp16": (0.05, 0.15), "bf16": (0.3, 0.8)}
COMMON_ROUNDING = 3.0
# Outputs in one 16-bit type: units, and a multiple of another framework's rounding, that one may have.
PAIR_UNITS, PAIR_EXCESS = 2.0, 4.0
LEAST_UNITS = 0.1  # rounding of the coarsest output of a network: less means that it is computed in more bits
GRADIENT_EXCESS = 10.0  # a gradient's deviation in fp32 as a multiple of another framework's, to be reported
SINGLE_SAFETY = 10.0  # the gradient of one number, a sum over whole activations, may deviate so many times as far
COMMON_SHARE = 0.2  # of these, by which three quarters of all matrices or vectors may be longer, or shorter
DEVIATIONS = 3.0  # standard deviations of the part of rounding along a gradient, in 16 bits
GRADIENT_SAFETY = 8.0  # a gradient in 16 bits may differ by so many times what its rounding in fp32 lets expect
LOSS_UNITS = 8  # units of 16 bits: rounding of a loss, a mean over samples, that is never reported
NO_GRADIENT = 1e-6  # of the largest gradient: 0 but for rounding


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


def events(records: Records) -> list[Event]:
    """List the tensors that at least two records have."""
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
    return [event for event in order if len(event.keys) > 1]


def backward_order(record: Record, names: Iterable[str]) -> list[str]:
    """Sort parameters by the order in which the backward pass reaches their modules; those of the loss come first."""
    reached = {call.name: call.span[1] for call in record.passes["training"]}
    return sorted(names, key=lambda name: -reached.get(name.rpartition(".")[0], OBJECTIVE_FIRST))


def _pass_events(records: Records, title: str) -> Iterator[Event]:
    """Yield inputs and outputs of the modules of a forward pass, as they are computed."""
    by_name = {
        record: {(call.name, call.occurrence): call for call in records[record].passes.get(title, [])}
        for record in records
    }
    first = next(iter(records.values()))
    ticks: list[tuple[int, Call, str]] = []
    for call in first.passes[title]:
        ticks += [(call.span[0], call, "in"), (call.span[1], call, "out")]
    ticks.sort(key=lambda tick: tick[0])
    backward = [(position, call, f"d{kind}") for position, call, kind in reversed(ticks)]
    for _, call, kind in (*ticks, *backward):
        identity = call.name, call.occurrence
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
    scales: dict[tuple[str, str], float] = {}
    for event in found:
        kind = event.stage, event.part
        scales[kind] = max(scales.get(kind, 0.0), _magnitude(proofs, event), _weight(proofs, event))
    return [_difference(event, proofs, rounded, scales[event.stage, event.part]) for event in found]


def excess_rounding(proofs: Records, rounded: Records, finer: Records | None = None) -> list[Difference]:
    """Find tensors of the forward passes and gradients that a framework rounds by far more than it should.

    In fp32 that is far more than the other frameworks do, in 16 bits more than the operations of a network explain.
    It shows what the comparison in fp64 cannot: code that only the run's own precision reaches.

    Args:
        proofs: in fp64.
        rounded: in another precision, by the same titles.
        finer: in fp32, if the other precision has 16 bits.
    """
    found: list[Difference] = []
    order = [
        event._replace(keys={title: key for title, key in event.keys.items() if title in rounded})
        for event in events(proofs)
    ]
    gradients = [event for event in order if (event.stage, event.part) == ("update 1", "gradient")]
    largest_gradient = max((_magnitude(proofs, event) for event in gradients), default=0.0)
    gradients = [event for event in gradients if _magnitude(proofs, event) > NO_GRADIENT * largest_gradient]
    errors = {title: _gradient_errors(title, gradients, proofs, rounded, finer or {}) for title in rounded}
    for event in order:
        titles = [title for title in event.keys if proofs[title].precision == "fp64"]
        if event.stage == ACCUMULATED:
            titles = [title for title in titles if event.keys[title] in rounded[title].shapes]
        magnitude = _magnitude(proofs, event)
        is_fp32 = any(rounded[title].precision == "fp32" for title in titles)
        if (event.stage, event.part) in STEADY and len(titles) > is_fp32:
            sizes = {title: rounding(proofs[title], rounded[title], event.keys[title]) for title in titles}
            limits = {title: _value_limit(title, event, sizes, rounded, magnitude) for title in titles}
        elif event in gradients:
            units = {title: magnitude * GRADIENT_SHARES[rounded[title].precision][0] for title in titles}
            sizes = {title: units[title] * errors[title][event.name] for title in titles}
            limits = {title: _gradient_limit(title, sizes, units) for title in titles} if is_fp32 else units
        else:
            continue
        apart = tuple(title for title in titles if not sizes[title] <= limits[title])
        found += [Difference(event, sizes[title], limits[title], magnitude, apart) for title in apart[:1] or titles[:1]]
    return found


def computed_finer(proofs: Records, mixed: Records) -> list[str]:
    """Return the frameworks whose outputs in training are nearer to fp64 than their 16-bit type can be."""
    outputs = [event for event in events(proofs) if (event.stage, event.part) == ("training", "output")]
    found = []
    for title, record in mixed.items():
        own = [event for event in outputs if title in event.keys and proofs[title].precision == "fp64"]
        sizes = [
            rounding(proofs[title], record, event.keys[title]) / magnitude
            for event in own
            if (magnitude := _magnitude(proofs, event))
        ]
        if sizes and max(sizes) < LEAST_UNITS * ROUNDING_UNITS[record.precision]:
            found.append(title)
    return found


def _value_limit(title: str, event: Event, sizes: Mapping[str, float], rounded: Records, magnitude: float) -> float:
    """Return the rounding of a value that is not reported, given that of every framework."""
    precision = rounded[title].precision
    if precision == "fp32":
        return EXCESS_FLOOR[precision] * ROUNDING_UNITS[precision] * magnitude + EXCESS * min(sizes.values())
    unit = ROUNDING_UNITS[precision] * magnitude
    peers = [size for each, size in sizes.items() if each != title and rounded[each].precision == precision]
    floor = (LOSS_UNITS if event.part == "loss" else EXCESS_FLOOR[precision]) * unit
    return min(floor, PAIR_UNITS * unit + PAIR_EXCESS * max(peers)) if peers and event.stage == "training" else floor


def _gradient_limit(title: str, sizes: Mapping[str, float], units: Mapping[str, float]) -> float:
    """Return the rounding of a gradient in fp32 that is not reported.

    It is a multiple of that of another framework within the unit: beyond it, all may have the same fault.
    """
    others = [size for other, size in sizes.items() if other != title and size <= units[title]]
    return max(units[title], GRADIENT_EXCESS * max(others, default=0.0))


def _gradient_errors(
    title: str, gradients: Sequence[Event], proofs: Records, rounded: Records, finer: Records
) -> dict[str, float]:
    """Return by which multiple of what rounding explains each gradient of a framework differs from that in fp64.

    Or from that of the nearest framework with the same 16 bits, which is more accurate. A gradient whose terms cancel
    is rounded more, in 16 bits as in fp32. Rounding has no direction: of a few numbers, it may all lie along them.
    """
    precision, found, along, apart = rounded[title].precision, {}, {}, {}
    gradients = [event for event in gradients if title in event.keys]
    in_fp32: dict[str, np.ndarray] = {}
    if title in finer:
        in_fp32 = {
            event.name: np.abs(_deviations(proofs[title], finer[title], event.keys[title])) for event in gradients
        }
    usual = float(np.median([distance for _, distance in in_fp32.values()])) if in_fp32 else 0.0
    for event in gradients:
        limits, key = np.array(GRADIENT_SHARES[precision]), event.keys[title]
        size = math.prod(proofs[title].shapes[key])
        safety = SINGLE_SAFETY if size == 1 else 1.0
        if title in finer:
            safety *= max(1.0, in_fp32[event.name][1] / usual) if usual else 1.0
        limits *= safety
        if title in finer:
            growth = GRADIENT_SAFETY * ROUNDING_UNITS[precision] / ROUNDING_UNITS["fp32"]
            limits = np.maximum(limits, growth * in_fp32[event.name])
        peers = [each for each in event.keys if each != title and precision == rounded[each].precision != "fp32"]
        if peers:
            limits *= COMMON_ROUNDING
            pairs = [np.abs(_deviations(proofs[title], rounded[title], key, rounded[peer])) for peer in peers]
            apart[event.name] = min(float((pair / PAIR_SHARES[precision]).max()) for pair in pairs) / safety
        deviations = _deviations(proofs[title], rounded[title], key)
        along[event.name] = float(deviations[0] / limits[0])
        if title in finer:
            limits[0] = max(limits[0], limits[1] * min(1.0, DEVIATIONS / math.sqrt(size)))
        found[event.name] = np.abs(deviations / limits)
    kinds = {name: len(proofs[title].shapes[f"update 1/gradient/{name}"]) > 1 for name in found}
    common = {}
    for kind in set(kinds.values()):
        lengths = sorted(along[name] for name in along if kinds[name] == kind)
        common[kind] = max(0.0, lengths[len(lengths) // 4], -lengths[-1 - len(lengths) // 4]) / COMMON_SHARE
    return {name: float(np.max([*both, common[kinds[name]], apart.get(name, 0.0)])) for name, both in found.items()}


def _deviations(proof: Record, rounded: Record, key: str, other: Record | None = None) -> np.ndarray:
    """Return by which parts of itself in fp64 a gradient is longer than there, or than another, and away from that."""
    reference, difference = proof.get(key).ravel(), (rounded.get(key) - (other or proof).get(key)).ravel()
    power = float(reference @ reference)
    return np.array([float(difference @ reference) / power, math.sqrt(float(difference @ difference) / power)])


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
    titles, magnitude = list(event.keys), _magnitude(proofs, event)
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
    agree = {pair: value <= limit and _same_shape(proofs, event, *pair) for pair, value in pairs.items()}
    largest = max(pairs.values()) if all(_same_shape(proofs, event, *pair) for pair in pairs) else float("inf")
    apart = _apart(titles, lambda a, b: agree.get((a, b), agree.get((b, a))))
    not_finite = tuple(title for title in titles if not np.isfinite(proofs[title].get(event.keys[title])).all())
    if len(apart) == len(titles) and len(not_finite) < len(titles):
        apart = not_finite or apart
    if not apart and not all(agree.values()):  # each of the outer two agrees with the one in the middle
        apart = tuple(titles)
    return Difference(event, largest, limit, magnitude, apart)


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


def _magnitude(records: Records, event: Event) -> float:
    values = [np.abs(records[title].get(key)).max(initial=0.0) for title, key in event.keys.items()]
    finite = [float(value) for value in values if np.isfinite(value)]
    return max(finite, default=0.0)
