"""Rules of a recipe for the learning rate and the weight decay of parameters: `optim.groups`."""

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from zoo.config.suggestions import suggestion

EXAMPLE = "{match: 'layer[12].*', lr: 0.1}"


@dataclass(frozen=True)
class GroupRule:
    """What a recipe changes of the parameters whose whole canonical name matches a pattern.

    Attributes:
        match: regular expression.
        lr: factor of the learning rate.
        decay: factor of the weight decay.
        freeze: do not train them.
    """

    match: str
    lr: float = 1.0
    decay: float = 1.0
    freeze: bool = False

    @classmethod
    def parse(cls, value: Any) -> "GroupRule":
        """Parse an item of the list in a recipe. Raises ValueError if it is none."""
        if not isinstance(value, dict) or not value:
            raise ValueError(f"expected keys such as {EXAMPLE}, got {value!r}")
        keys = list(cls.__dataclass_fields__)
        for key in value:
            if key not in keys:
                raise ValueError(f"unknown key {key!r}{suggestion(str(key), keys)}")
        if value.keys() <= {"match"}:
            raise ValueError(f"{value!r} changes nothing; give lr, decay or freeze, such as {EXAMPLE}")
        return cls(
            _pattern(value.get("match")),
            _factor("lr", value.get("lr", 1.0)),
            _factor("decay", value.get("decay", 1.0)),
            _boolean("freeze", value.get("freeze", False)),
        )

    def plain(self) -> dict[str, Any]:
        """Return what `parse` reads: the keys that are not the defaults."""
        defaults = GroupRule(self.match)
        return {key: value for key, value in asdict(self).items() if key == "match" or value != getattr(defaults, key)}

    def __str__(self) -> str:
        changes = [f"{name} x {factor:g}" for name, factor in self._factors() if factor != 1]
        return ", ".join(["not trained"] if self.freeze else changes or ["unchanged"])

    def matches(self, name: str) -> bool:
        return re.fullmatch(self.match, name) is not None

    def _factors(self) -> Iterable[tuple[str, float]]:
        return ("learning rate", self.lr), ("weight decay", self.decay)


def _pattern(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"match: expected a regular expression of names, such as {EXAMPLE}, got {value!r}")
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"match: {value!r} is no regular expression: {error}") from None
    return value


def _factor(key: str, value: Any) -> float:
    try:  # YAML 1.1 reads 1e-4 as text
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{key}: expected a factor, not below 0, got {value!r}")
    return number


def _boolean(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{key}: expected true or false, got {value!r}")
    return value
