"""The strict comparison of tensors with the parameters and statistics of a model, and a check of their values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import Part, UserError

MAX_LISTED = 10  # keys in each list of the report


class MatchReport(NamedTuple):
    """Keys by the result of the comparison; str() is the report for the user, with a line per key."""

    matched: tuple[str, ...]
    missing_keys: tuple[str, ...]
    unexpected_keys: tuple[str, ...]
    shape_mismatches: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]  # key, shape, expected shape

    @property
    def complete(self) -> bool:
        return not (self.missing_keys or self.unexpected_keys or self.shape_mismatches)

    def __str__(self) -> str:
        mismatches = [f"{name}: {shape}, the model expects {wanted}" for name, shape, wanted in self.shape_mismatches]
        sections = {"missing keys": self.missing_keys, "unexpected keys": self.unexpected_keys}
        lines = [f"  {len(self.matched)} tensors match"]
        for title, rows in {**sections, "shape mismatches": mismatches}.items():
            if rows:
                lines += [f"  {title} ({len(rows)}):", *(f"    {row}" for row in rows[:MAX_LISTED])]
            if len(rows) > MAX_LISTED:
                lines.append(f"    ... and {len(rows) - MAX_LISTED} more")
        return "\n".join(lines)


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


def require_match(tensors: Mapping[str, Any], expected: Mapping[str, Sequence[int]], path: str, *hint: Part) -> None:
    """Raise UserError, with all differences, unless tensors are exactly those of a model.

    Args:
        tensors: anything with a `shape`, by canonical name.
        expected: shapes of the model's tensors.
    """
    report = match_state_dict(tensors, expected)
    if not report.complete:
        raise UserError(f"{path} does not match this model:\n{report}", *hint)


def require_usable(tensors: Mapping[str, np.ndarray], path: str) -> None:
    """Raise UserError for tensors of a diverged run: NaN, infinity, or running variances below 0."""
    filled = {name: tensor for name, tensor in tensors.items() if tensor.dtype.kind == "f" and tensor.size}
    not_finite = [name for name, tensor in filled.items() if not np.isfinite([tensor.min(), tensor.max()]).all()]
    negative = [name for name, tensor in filled.items() if name.endswith("running_var") and tensor.min() < 0]
    for names, problem in ((not_finite, "NaN or infinity"), (negative, "variances below 0")):
        if names:
            more = f" and {len(names) - 1} more tensors" if names[1:] else ""
            raise UserError(
                f"{path} holds {problem} in {names[0]}{more}, as a run that diverged leaves them; take an earlier "
                "checkpoint, or download the file again"
            )


def merge(
    initialized: Mapping[str, np.ndarray],
    tensors: Mapping[str, np.ndarray],
    is_fresh: Callable[[str], bool],
    path: str,
    *hint: Part,
) -> dict[str, np.ndarray]:
    """Replace initial tensors by those of a file, strictly, except for names that shall stay fresh.

    Args:
        is_fresh: whether a name keeps its initial tensor.
    """
    expected = {name: array.shape for name, array in initialized.items() if not is_fresh(name)}
    loaded = {name: array for name, array in tensors.items() if not is_fresh(name)}
    require_match(loaded, expected, path, *hint)
    require_usable(loaded, path)
    return {**initialized, **loaded}
