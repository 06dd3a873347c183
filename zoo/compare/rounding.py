"""Rounding of a run's own precision that is in excess: code that no comparison in fp64 reaches."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from zoo.parity.differences import Difference, Event, Records, events, magnitude_of, rounding
from zoo.parity.record import ACCUMULATED, ROUNDING_UNITS, Record

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
# closes ReLUs. In the demos, lengths differ by up to 0.002 in fp32. In small models, gradients at nearby weights do not
# explain lengths that differ by up to 0.16 in fp16 and 0.36 in bf16 (of attention), nor distances up to 0.16 and 0.37.
GRADIENT_SHARES = {"fp32": (0.02, 0.2), "fp16": (0.2, 0.3), "bf16": (0.5, 1.0)}
# The same between two frameworks in one 16-bit type, whose rounding is largely common: in resnet50_demo 0.013 in fp16,
# for a bias 0.07, where both are 0.2 away from fp64, and MindSpore's are all shorter by 0.04 where small numbers become
# 0. The distance from fp64 may then be COMMON_ROUNDING times as large.
PAIR_SHARES = {"fp16": (0.1, 0.2), "bf16": (0.3, 0.8)}
COMMON_ROUNDING = 2.0
# Outputs in one 16-bit type: units, and a multiple of another framework's rounding, that one may have.
PAIR_UNITS, PAIR_EXCESS = 2.0, 4.0
GRADIENT_EXCESS = 10.0  # a gradient's deviation in fp32 as a multiple of another framework's, to be reported
SINGLE_SAFETY = 10.0  # the gradient of one number, a sum over whole activations, may deviate so many times as far
COMMON_SHARE = 0.2  # of these, by which three quarters of all matrices or vectors may be longer, or shorter
DEVIATIONS = 3.0  # standard deviations of the part of rounding along a gradient
# Multiple of a gradient's distance from that at nearby weights by which it may differ from fp64, if three quarters
# differ by as much: rounding crosses kinks of activations, in fp32 few of them, so that a gradient may meet many more
# than others (7 were seen in MobileNetV2's ReLU6); in 16 bits, where all meet some, 2.6 were seen.
SPREADS = {"fp32": 10.0, "fp16": 4.0, "bf16": 4.0}
LOSS_UNITS = 8  # units of 16 bits: rounding of a loss, a mean over samples, that is never reported
NO_GRADIENT = 1e-6  # of the largest gradient: 0 but for rounding


def excess_rounding(proofs: Records, rounded: Records, finer: Records | None = None) -> list[Difference]:
    """Find tensors of the forward passes and gradients that a framework rounds by far more than it should.

    In fp32 that is far more than the other frameworks do, in 16 bits more than the operations of a network explain.
    Args:
        proofs: in fp64.
        rounded: in another precision, by the same titles.
        finer: in fp32, if the other precision has 16 bits.
    """
    found: list[Difference] = []
    order = [
        event._replace(keys={title: key for title, key in event.keys.items() if title in rounded})
        for event in events(proofs, 1)
    ]
    gradients = [event for event in order if (event.stage, event.part) == ("update 1", "gradient")]
    largest_gradient = max((magnitude_of(proofs, event) for event in gradients), default=0.0)
    gradients = [event for event in gradients if magnitude_of(proofs, event) > NO_GRADIENT * largest_gradient]
    spreads = {title: _spreads(title, gradients, proofs, rounded, finer or rounded) for title in rounded}
    errors = {title: _gradient_errors(title, gradients, proofs, rounded, spreads) for title in rounded}
    for event in order:
        titles = [title for title in event.keys if proofs[title].precision == "fp64"]
        if event.stage == ACCUMULATED:
            titles = [title for title in titles if event.keys[title] in rounded[title].shapes]
        magnitude = magnitude_of(proofs, event)
        is_fp32 = any(rounded[title].precision == "fp32" for title in titles)
        if (event.stage, event.part) in STEADY and len(titles) > is_fp32:
            sizes = {title: rounding(proofs[title], rounded[title], event.keys[title]) for title in titles}
            in_fp32 = {
                title: rounding(proofs[title], finer[title], event.keys[title])
                for title in titles
                if finer and title in finer and event.keys[title] in finer[title].shapes
            }
            limits = {title: _value_limit(title, event, sizes, rounded, magnitude, in_fp32) for title in titles}
        elif event in gradients:
            units = {title: magnitude * GRADIENT_SHARES[rounded[title].precision][0] for title in titles}
            sizes = {title: units[title] * errors[title][event.name] for title in titles}
            limits = {title: _gradient_limit(title, sizes, units) for title in titles} if is_fp32 else units
        else:
            continue
        apart = tuple(title for title in titles if not sizes[title] <= limits[title])
        found += [Difference(event, sizes[title], limits[title], magnitude, apart) for title in apart[:1] or titles[:1]]
    return found


def in_another_type(mixed: Records) -> list[str]:
    """Return the frameworks that have no output in training whose numbers are all of their 16-bit type."""
    return [
        title
        for title, record in mixed.items()
        if not any(
            (output := record.get(f"{call.key}/out{i}")).any() and has_16_bits(output, record.precision)
            for call in record.passes["training"]
            for i in range(call.outputs)
        )
    ]


def has_16_bits(array: np.ndarray, precision: str) -> bool:
    """Return whether all numbers are those of a 16-bit type."""
    numbers = array.astype(np.float32)
    if precision == "bf16":
        return not (numbers.view(np.uint32) & 0xFFFF).any()
    with np.errstate(over="ignore"):
        return bool((numbers.astype(np.float16) == numbers).all())


def _value_limit(
    title: str,
    event: Event,
    sizes: Mapping[str, float],
    rounded: Records,
    magnitude: float,
    in_fp32: Mapping[str, float],
) -> float:
    """Return the rounding of a value that is not reported, given that of every framework; in 16 bits, and in fp32.

    A network that amplifies rounding does so in 16 bits, too, by no more units than in fp32.
    """
    precision = rounded[title].precision
    if precision == "fp32":
        return EXCESS_FLOOR[precision] * ROUNDING_UNITS[precision] * magnitude + EXCESS * min(sizes.values())
    unit = ROUNDING_UNITS[precision] * magnitude
    peers = [size for each, size in sizes.items() if each != title and rounded[each].precision == precision]
    floor = (LOSS_UNITS if event.part == "loss" else EXCESS_FLOOR[precision]) * unit
    floor = max(floor, in_fp32.get(title, 0.0) * ROUNDING_UNITS[precision] / ROUNDING_UNITS["fp32"])
    return min(floor, PAIR_UNITS * unit + PAIR_EXCESS * max(peers)) if peers and event.stage == "training" else floor


def _gradient_limit(title: str, sizes: Mapping[str, float], units: Mapping[str, float]) -> float:
    """Return the rounding of a gradient in fp32 that is not reported.

    It is a multiple of that of another framework within the unit: beyond it, all may have the same fault.
    """
    others = [size for other, size in sizes.items() if other != title and size <= units[title]]
    return max(units[title], GRADIENT_EXCESS * max(others, default=0.0))


def _gradient_errors(
    title: str,
    gradients: Sequence[Event],
    proofs: Records,
    rounded: Records,
    spreads: Mapping[str, Mapping[str, float]],
) -> dict[str, float]:
    """Return by which multiple of what rounding explains each gradient of a framework differs from that in fp64.

    Or from that of the nearest framework with the same 16 bits, which is more accurate. Rounding has no direction: of a
    few numbers, it may all lie along them.
    """
    precision, found, along = rounded[title].precision, {}, {}
    apart: dict[str, float] = {}  # from the nearest of the others
    for event in (event for event in gradients if title in event.keys):
        key = event.keys[title]
        spread, part = spreads[title].get(event.name, 0.0), _part_along(proofs[title].get(key))
        safety = SINGLE_SAFETY if math.prod(proofs[title].shapes[key]) == 1 else 1.0
        peers = [each for each in event.keys if each != title and precision == rounded[each].precision != "fp32"]
        shares = safety * np.array(GRADIENT_SHARES[precision]) * (COMMON_ROUNDING if peers else 1.0)
        sideways = spread if precision == "fp32" else max(spread, shares[1])
        limits = np.maximum(shares, (part * sideways, spread))
        deviations = _deviations(proofs[title], rounded[title], key)
        along[event.name] = float(deviations[0] / np.clip(part * spread, shares[0], COMMON_ROUNDING * shares[0]))
        found[event.name] = np.abs(deviations / limits)
        for peer in peers:
            of_both = math.hypot(spread, spreads[peer].get(event.name, 0.0))
            limits = np.maximum(safety * np.array(PAIR_SHARES[precision]), (part * of_both, of_both))
            pair = _deviations(proofs[title], rounded[title], key, rounded[peer])
            apart[event.name] = min(apart.get(event.name, math.inf), float(np.abs(pair / limits).max()))
    kinds = {name: len(proofs[title].shapes[f"update 1/gradient/{name}"]) > 1 for name in found}
    common = {}
    for kind in set(kinds.values()):
        lengths = sorted(along[name] for name in along if kinds[name] == kind)
        common[kind] = max(0.0, lengths[len(lengths) // 4], -lengths[-1 - len(lengths) // 4]) / COMMON_SHARE
    return {name: float(np.max([*both, common[kinds[name]], apart.get(name, 0.0)])) for name, both in found.items()}


def _spreads(
    title: str, gradients: Sequence[Event], proofs: Records, rounded: Records, finer: Records
) -> dict[str, float]:
    """Return how far rounding moves each gradient, by kinks of activations that it crosses.

    That is as far as at nearby weights, times the part of it by which three quarters of the gradients differ from fp64:
    a fault moves those alone that the backward pass computes after it.
    """
    precision = rounded[title].precision
    spread = finer[title].settings.get("spread", {}).get(precision, {})
    keys = {event.name: event.keys[title] for event in gradients if title in event.keys}
    distances = {name: _deviations(proofs[title], rounded[title], key)[1] for name, key in keys.items()}
    parts = [distance / spread[name] for name, distance in distances.items() if spread.get(name)]
    scale = SPREADS[precision] * min(1.0, float(np.percentile(parts, 25))) if parts else 0.0
    return {name: scale * size for name, size in spread.items()}


def _part_along(gradient: np.ndarray) -> float:
    """Return which part of a deviation without direction may lie along a gradient: of few large numbers, all of it."""
    squares = np.square(gradient).ravel()
    return min(1.0, DEVIATIONS * float(np.linalg.norm(squares) / squares.sum()))


def _deviations(proof: Record, rounded: Record, key: str, other: Record | None = None) -> np.ndarray:
    """Return by which parts of itself in fp64 a gradient is longer than there, or than another, and away from that.

    What turns a gradient, and leaves its length, shortens it along itself by half the square of its distance. Of two in
    16 bits, either may be turned.
    """
    reference, difference = proof.get(key).ravel(), (rounded.get(key) - (other or proof).get(key)).ravel()
    power = float(reference @ reference)
    along, away = float(difference @ reference) / power, math.sqrt(float(difference @ difference) / power)
    turned = away**2 / 2
    return np.array([along - np.clip(along, -turned, turned if other else 0.0), away])
