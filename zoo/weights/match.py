"""Do these tensors fill that net exactly? The one comparison behind every strict load."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SHOWN = 10  # names per list of the report


@dataclass(frozen=True)
class Report:
    """Names by what became of them; str() is the text for the user, a line per name."""

    matched: tuple[str, ...]
    missing: tuple[str, ...]  # wanted, not there
    unexpected: tuple[str, ...]  # there, not wanted
    wrong_shape: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]  # name, shape there, shape wanted

    @property
    def complete(self) -> bool:
        return not (self.missing or self.unexpected or self.wrong_shape)

    def __str__(self) -> str:
        lines = [f"  {len(self.matched)} tensors match"]
        lines += _listing("missing", self.missing)
        lines += _listing("unexpected", self.unexpected)
        lines += _listing(
            "of another shape", [f"{name}: {there}, the net wants {wanted}" for name, there, wanted in self.wrong_shape]
        )
        return "\n".join(lines)


def match(tensors: Mapping[str, Any], wanted: Mapping[str, Sequence[int]]) -> Report:
    """Compare tensors (or what else has a shape) with the shapes of every parameter and statistic of a net, by name."""
    both = [name for name in wanted if name in tensors]
    shapes = {name: (tuple(tensors[name].shape), tuple(wanted[name])) for name in both}
    return Report(
        matched=tuple(name for name in both if shapes[name][0] == shapes[name][1]),
        missing=tuple(name for name in wanted if name not in tensors),
        unexpected=tuple(name for name in tensors if name not in wanted),
        wrong_shape=tuple((name, *shapes[name]) for name in both if shapes[name][0] != shapes[name][1]),
    )


def _listing(title: str, rows: Sequence[str]) -> Sequence[str]:
    if not rows:
        return []
    lines = [f"  {len(rows)} {title}:"] + [f"    {row}" for row in rows[:SHOWN]]
    return lines + ([f"    ... and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else [])
