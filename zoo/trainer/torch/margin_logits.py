"""Logits of margin softmax in PyTorch, and the gradients of a part of the class matrix; see margin.py."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from zoo.tasks import face

EPS = 1e-12  # smallest norm of a vector
MarginFunction = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]  # (M,) -> with margin, slope
GRADIENT_SCALE = 1024.0  # of probabilities in 16 bits: fp16 holds none below 6e-8, and 10 million classes have 1e-7


class Logits(NamedTuple):
    """Logits of some classes, and what their gradient needs.

    Attributes:
        logits: (M, k), for M samples and k classes; overwritten by whoever uses them last.
        is_filtered: bool (M, k), of classes that the class filter leaves out; None without it.
        slopes: (M,), derivative of the target's cosine with margin by the one without; undefined for a sample whose
            class is elsewhere.
        inverse_norms: (k,), of the rows of the class matrix.
    """

    logits: torch.Tensor
    is_filtered: torch.Tensor | None
    slopes: torch.Tensor
    inverse_norms: torch.Tensor


def margin_logits(
    units: torch.Tensor,
    weight: torch.Tensor,
    target_rows: torch.Tensor,
    settings: face.Margin,
    margin: MarginFunction,
    dtype: torch.dtype | None,
) -> Logits:
    """Compute the logits of units (M, d) and rows of the class matrix (k, d), with a margin of the target's."""
    inverse_norms = 1 / weight.norm(dim=1).clamp(min=EPS)
    if dtype is None:
        cosines = (units @ weight.T).mul_(inverse_norms)
    else:
        cosines = _product(units, (weight * inverse_norms[:, None]).T, dtype)
    cosines.clamp_(-1, 1)
    target_cosines, slopes = margin(_target_logits(cosines, target_rows))
    if settings.straight_through:
        slopes = torch.ones_like(slopes)
    is_filtered = None
    if settings.interclass is not None:
        is_filtered = cosines > settings.interclass
        cosines.masked_fill_(is_filtered, 0)
    _scatter_targets(cosines, target_rows, target_cosines)
    return Logits(cosines.mul_(settings.scale), is_filtered, slopes, inverse_norms)


def gradients(
    chunk: Logits,
    sum_exps: torch.Tensor,
    units: torch.Tensor,
    weight: torch.Tensor,
    target_rows: torch.Tensor,
    factor: torch.Tensor,
    dtype: torch.dtype | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients by units, of these classes, and by their rows of the class matrix.

    Args:
        chunk: with exp(logit - largest logit) as its logits, which are overwritten: the gradient of the logits, then of
            the cosines, then of the products, in place to save memory.
        factor: 0-d, of the gradient by cosines.
    """
    grad = chunk.logits.div_(sum_exps[:, None])
    grad_targets = (_target_logits(grad, target_rows) - 1) * chunk.slopes
    if chunk.is_filtered is not None:
        grad.masked_fill_(chunk.is_filtered, 0)
    _scatter_targets(grad, target_rows, grad_targets)
    inverse_norms = chunk.inverse_norms
    if dtype is None:
        grad.mul_(factor).mul_(inverse_norms)
        grad_units, grad_weight = grad @ weight, grad.T @ units
    else:  # products of probabilities, which are then multiplied by the factor, with its loss scale, in fp32
        grad, factor = grad.mul_(GRADIENT_SCALE).to(dtype), factor / GRADIENT_SCALE
        grad_units = _product(grad, weight * inverse_norms[:, None], dtype).mul_(factor)
        grad_weight = _product(grad.T, units, dtype).mul_(factor).mul_(inverse_norms[:, None])
    radial = torch.einsum("kd,kd->k", grad_weight, weight)
    grad_weight.addcmul_(weight, (-radial * inverse_norms * inverse_norms)[:, None])
    return grad_units, grad_weight


def _product(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a @ b in fp32, with operands rounded to 16 bits and sums in fp32."""
    a, b = a.to(dtype), b.to(dtype)
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float()


def _target_logits(matrix: torch.Tensor, target_rows: torch.Tensor) -> torch.Tensor:
    """Return the element of each sample's target class: (M, K) -> (M,). Undefined where target_rows is -1."""
    return matrix.gather(1, target_rows.clamp(min=0)[:, None]).squeeze(1)


def own_targets(logits: torch.Tensor, target_rows: torch.Tensor) -> torch.Tensor:
    """Return the logit of each sample's class: (M, K) -> (M,); 0 where target_rows is -1."""
    return torch.where(target_rows >= 0, _target_logits(logits, target_rows), 0)


def _scatter_targets(matrix: torch.Tensor, target_rows: torch.Tensor, values: torch.Tensor) -> None:
    """Store values (M,) in the elements of the target classes, in place, where target_rows is not -1."""
    values = torch.where(target_rows >= 0, values, _target_logits(matrix, target_rows))
    matrix.scatter_(1, target_rows.clamp(min=0)[:, None], values[:, None])
