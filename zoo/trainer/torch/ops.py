"""The operations of zoo/trainer/numpy_ops.py in PyTorch."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

from zoo.trainer.torch import parallel

Tensor = torch.Tensor
exp, log, square, abs, sin, cos = torch.exp, torch.log, torch.square, torch.abs, torch.sin, torch.cos
arctan2, zeros_like, ones_like, rows_like = torch.atan2, torch.zeros_like, torch.ones_like, torch.empty_like
logical_and, where, clip, clip_ = torch.logical_and, torch.where, torch.clamp, torch.clamp_
astype, index, assign, stop_gradient = Tensor.to, Tensor.long, Tensor.copy_, Tensor.detach
softmax, log_softmax, log_sigmoid = partial(torch.softmax, dim=1), partial(torch.log_softmax, dim=1), F.logsigmoid
row_norms, row_sums, cumsum = partial(torch.norm, dim=1), partial(torch.sum, dim=1), partial(torch.cumsum, dim=1)
concat, stack = torch.cat, torch.stack
scale_ = scale_columns_ = Tensor.mul_
all_gather, sum_over_ranks = parallel.all_gather, parallel.all_reduce

# Numbers and types


def widest(device: torch.device) -> torch.dtype:
    """Return the type of long sums and of counts: float64, which Apple's GPUs lack."""
    return torch.float32 if device.type == "mps" else torch.float64


def number(value: float, dtype: torch.dtype) -> float:
    return value  # PyTorch keeps Python numbers in fp64


def vector(values: Sequence[float], like: Tensor) -> Tensor:
    return _constant(tuple(values), like.dtype, like.device)


@cache
def _constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return values as a tensor; copied to the device once, because a copy waits for it."""
    return torch.tensor(values, dtype=dtype, device=device)


@cache
def integers(values: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def array(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like)


# Elements


def sqrt(x: Tensor) -> Tensor:
    """Return the square root; of constants in fp64 on a CPU by NumPy, since MKL's is not always rounded correctly."""
    if x.dtype == torch.float64 and x.device.type == "cpu" and not x.requires_grad:
        return torch.from_numpy(np.sqrt(x.numpy(), out=np.empty(x.shape)))
    return x.sqrt()


def maximum(x: Tensor, y: Any) -> Tensor:
    return torch.maximum(x, y) if isinstance(y, Tensor) else x.clamp(min=y)


def cross_entropy(logits: Tensor, labels: Tensor, ignored: int = -100) -> Tensor:
    return F.cross_entropy(logits, labels.long(), ignore_index=ignored, reduction="none")


def one_hot(labels: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    numbers = torch.arange(classes, device=labels.device).reshape((-1,) + (1,) * (labels.dim() - 1))
    return (labels[:, None] == numbers).to(dtype)


# Indices


def gather(x: Tensor, indices: Tensor) -> Tensor:
    return x.gather(1, indices)


def scatter(x: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    return x.scatter(1, indices, values)


def scatter_(x: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    return x.scatter_(1, indices, values)


def lookup(values: Sequence[float], indices: Tensor, dtype: torch.dtype) -> Tensor:
    return _constant(tuple(values), dtype, indices.device)[indices]


def element(x: Tensor, position: Tensor) -> Tensor:
    return x.index_select(0, position[None])  # an index in brackets would wait for the device


def sort(x: Tensor, descending: bool) -> Tensor:
    return x.sort(descending=descending).values


def argsort_descending(x: Tensor) -> Tensor:
    return x.argsort(dim=1, descending=True, stable=True)


# Optimizers


def largest(x: Tensor) -> Tensor:
    return x.abs().max()


def norm(x: Tensor, ranks: int) -> Tensor:
    return parallel.all_reduce(squared_norm(x), ranks).sqrt().to(x.dtype)


def squared_norm(x: Tensor) -> Tensor:
    """Return the sum of squares, in float64 where the device has it.

    On CPUs, PyTorch sums in fp32 and loses a percent of a hundred million elements. Computed in blocks, because there
    vector_norm makes a float64 copy.
    """
    zero = torch.zeros((), dtype=widest(x.device), device=x.device)
    blocks = x.flatten().split(1 << 24)
    return sum((torch.linalg.vector_norm(block, dtype=zero.dtype).square() for block in blocks), zero)


def squared_norms(tensors: tuple[Tensor, ...]) -> Tensor:
    """Return `squared_norm` of each tensor, on a GPU of CUDA by one kernel for many of them."""
    if tensors[0].is_cuda:
        return torch.stack(torch._foreach_norm(tensors, 2, torch.float64)).square()
    return torch.stack([squared_norm(tensor) for tensor in tensors])


def bias_correction(log_beta: float, applied: Tensor, dtype: torch.dtype) -> Tensor:
    return -torch.expm1(log_beta * applied.to(widest(applied.device)))


def round_to_fp32(x: Tensor) -> Tensor:
    return x.float().to(x.dtype)


# Rows and columns of large matrices


def row_max(x: Tensor) -> Tensor:
    return x.max(1).values


def scale_rows(x: Tensor, factors: Tensor) -> Tensor:
    return x * factors[:, None]


def scale_rows_(x: Tensor, factors: Tensor) -> Tensor:
    return x.mul_(factors[:, None])


def fill_zeros_(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill_(mask, 0)


def exp_shifted_(x: Tensor, shift: Tensor) -> Tensor:
    return x.sub_(shift[:, None]).exp_()


def matmul(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, dtype: torch.dtype | None) -> Tensor:
    a, b = a.T if transpose_a else a, b.T if transpose_b else b
    if dtype is None:
        return a @ b
    a, b = a.to(dtype), b.to(dtype)
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float()


def remove_radial_(grad: Tensor, x: Tensor, inverse_norms: Tensor) -> Tensor:
    radial = torch.einsum("kd,kd->k", grad, x)
    return grad.addcmul_(x, (-radial * inverse_norms * inverse_norms)[:, None])


def row_view(x: Tensor, first: int, count: int) -> Tensor:
    return x[first : first + count]


def set_rows(target: Tensor, first: int, rows: Tensor) -> Tensor:
    target[first : first + len(rows)] = rows
    return target


def joined_rows(target: Tensor) -> Tensor:
    return target


def after(x: Tensor, other: Tensor) -> Tensor:
    return x


# Ranks


def max_over_ranks(x: Tensor, ranks: int) -> Tensor:
    return parallel.all_reduce(x.clone(), ranks, dist.ReduceOp.MAX)


# Moving averages


def move_(averages: list[Tensor], sources: list[Tensor], rate: Tensor) -> None:
    differences = torch._foreach_sub(averages, sources)  # one kernel each for all of them on a GPU
    torch._foreach_mul_(differences, rate)
    torch._foreach_sub_(averages, differences)


# Predictions


def flip(x: Tensor, axis: int) -> Tensor:
    return x.flip(axis)


def resize(x: Tensor, size: tuple[int, int], align_corners: bool) -> Tensor:
    return F.interpolate(x, size, mode="bilinear", align_corners=align_corners)


def add_window(total: Tensor | None, window: Tensor, box: tuple[int, int, int, int], size: tuple[int, int]) -> Tensor:
    total = window.new_zeros((*window.shape[:2], *size)) if total is None else total
    top, bottom, left, right = box
    total[:, :, top:bottom, left:right] += window
    return total


def class_map(scores: Tensor) -> Tensor:
    return scores.argmax(1).to(torch.uint8)
