"""Margin softmax of face models: the cosine of a sample's class gets a margin; see zoo/losses/__init__.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from zoo.data.fields import Doc, Positive, Range, check

Cosine = Annotated[float, Range(low=0, high=1, open_low=True, open_high=True)]
Share = Annotated[float, Range(low=0, high=1, open_low=True)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Section `task:` of a face model: softmax cross-entropy of scaled cosines, with a margin on the target class.

    The logits are scale * cosine between the embeddings (N, d) and the rows of the class matrix (K, d); labels are
    (N,). The cosine of the target class is replaced by one with a margin. All of it is computed in fp32; cosines are
    clamped to [-1, 1].
    """

    task: ClassVar[str] = "face"
    uses_norms: ClassVar[bool] = False  # whether the margin depends on the lengths of the embeddings

    scale: Annotated[Positive, Doc("Factor that turns cosines into logits.")] = 64.0
    interclass: Annotated[
        Cosine | None, Doc("Cosine above which another class counts as the same person, and is set to 0; null: none.")
    ] = None
    gradient: Annotated[
        Literal["true", "straight"], Doc("Derivative of the margin; straight: as if it were 1, as insightface.")
    ] = "true"
    sample_rate: Annotated[
        Share, Doc("Fraction of the classes that an update uses: Partial FC (arXiv:2203.15565).")
    ] = 1.0
    flip: Annotated[bool, Doc("Evaluate each image and its mirror image.")] = True
    far: Annotated[Share, Doc("False accept rate at which <name>_tar is measured.")] = 1e-3

    def __post_init__(self):
        check(self)

    @property
    def statistics(self) -> Mapping[str, float]:
        """Return the initial values of the running statistics, in their order."""
        return {}

    def quality(self, ops: Any, norms: Any, statistics: Sequence[Any]) -> Any:
        """Return what the margin of a sample depends on, (M,), with `uses_norms`.

        Args:
            norms: (M,), lengths of the embeddings of all ranks.
            statistics: the running statistics, moved in place.
        """
        return None

    def margin(self, ops: Any, cosine: Any, quality: Any) -> tuple[Any, Any]:
        """Return the cosines (M,) of samples and their classes with a margin, and the derivative by those without.

        The derivative stays finite where that of the angle is not.
        """
        raise NotImplementedError
