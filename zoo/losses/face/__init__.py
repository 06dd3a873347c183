"""Margin softmax of face models: the cosine of a sample's class gets a margin; see zoo/losses/__init__.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from zoo.data.fields import Positive, Range, check

Cosine = Annotated[float, Range(0, 1, above=True, below=True)]
Share = Annotated[float, Range(0, 1, above=True)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `task:` of a face model: softmax cross-entropy of scaled cosines, with a margin on the target class.

    The logits are scale * cosine between the embeddings (N, d) and the rows of the class matrix (K, d); labels are
    (N,). The cosine of the target class is replaced by one with a margin. All of it is computed in fp32; cosines are
    clamped to [-1, 1].
    """

    task: ClassVar[str] = "face"
    uses_norms: ClassVar[bool] = False  # whether the margin depends on the lengths of the embeddings

    scale: Positive = 64.0  # factor that turns cosines into logits
    interclass: Cosine | None = None  # set cosines of other classes above this to 0: they may be the same person
    gradient: Literal["true", "straight"] = "true"  # straight: as if the margin's derivative were 1, as insightface's
    sample_rate: Share = 1.0  # Partial FC (arXiv:2203.15565): fraction of the classes that an update uses
    flip: bool = True  # evaluate each image and its mirror image
    far: Share = 1e-3  # the false accept rate at which <name>_tar is measured

    def __post_init__(self):
        check(self)

    @property
    def statistics(self) -> Mapping[str, float]:
        """Return the initial values of the running statistics, in their order."""
        return {}

    def quality(self, ops: Any, norms: Any, statistics: Sequence[Any]) -> Any:
        """Return what the margin of a sample depends on, (M,), with `uses_norms`.

        Args:
            ops: of the framework.
            norms: (M,), lengths of the embeddings of all ranks.
            statistics: the running statistics, moved in place.
        """
        return None

    def margin(self, ops: Any, cosine: Any, quality: Any) -> tuple[Any, Any]:
        """Return the cosines (M,) of samples and their classes with a margin, and the derivative by those without.

        The derivative stays finite where that of the angle is not.
        """
        raise NotImplementedError
