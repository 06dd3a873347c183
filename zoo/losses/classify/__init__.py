"""Losses of classifiers; see zoo/losses/__init__.py."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from zoo.data.fields import Range, check

Share = Annotated[float, Range(low=0, high=1, open_high=True)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `task:` of a classifier."""

    task: ClassVar[str] = "classify"

    def __post_init__(self) -> None:
        check(self)

    def total(self, ops: Any, logits: Any, target: Any) -> Any:
        """Return the sum of the losses of logits (N, K) and labels (N,), or distributions over the classes (N, K)."""
        raise NotImplementedError
