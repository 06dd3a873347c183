"""The strict comparison of tensors with the parameters and statistics of a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_LISTED = 10  # keys in each list of the report


@dataclass(frozen=True)
class MatchReport:
    """Keys by the result of the comparison; str() is the report for the user, with a line per key."""

    matched: tuple[str, ...]
    missing_keys: tuple[str, ...]
    unexpected_keys: tuple[str, ...]
    shape_mismatches: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]  # key, shape, expected shape

    @property
    def complete(self) -> bool:
        return not (self.missing_keys or self.unexpected_keys or self.shape_mismatches)

    def __str__(self) -> str:
        mismatches = [
            f"{name}: {shape}, the model expects {expected}" for name, shape, expected in self.shape_mismatches
        ]
        return "\n".join(
            [
                f"  {len(self.matched)} tensors match",
                *_section("missing keys", self.missing_keys),
                *_section("unexpected keys", self.unexpected_keys),
                *_section("shape mismatches", mismatches),
            ]
        )


def match_state_dict(tensors: Mapping[str, Any], expected: Mapping[str, Sequence[int]]) -> MatchReport:
    """Compare tensors with the shapes that a model expects, key by key.

    Args:
        tensors: Anything with a `shape`, by canonical name.
        expected: The shape of every parameter and running statistic of the model.
    """
    common = [name for name in expected if name in tensors]
    shapes = {name: (tuple(tensors[name].shape), tuple(expected[name])) for name in common}
    return MatchReport(
        matched=tuple(name for name, (shape, model_shape) in shapes.items() if shape == model_shape),
        missing_keys=tuple(name for name in expected if name not in tensors),
        unexpected_keys=tuple(name for name in tensors if name not in expected),
        shape_mismatches=tuple((name, *pair) for name, pair in shapes.items() if pair[0] != pair[1]),
    )


def _section(title: str, rows: Sequence[str]) -> list[str]:
    if not rows:
        return []
    lines = [f"  {title} ({len(rows)}):"] + [f"    {row}" for row in rows[:MAX_LISTED]]
    return lines + ([f"    ... and {len(rows) - MAX_LISTED} more"] if len(rows) > MAX_LISTED else [])
