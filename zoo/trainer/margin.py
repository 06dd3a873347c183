"""Margin softmax, zoo/losses/face, with the class matrix sharded over ranks: the loss, and its gradients by hand.

No rank ever holds the whole class matrix or its logits. The backward pass is the exact transpose of the forward pass
with a single matrix of the logits' size, changed in place where the framework can, and no copy of the weights. Where
that matrix would be large, it is computed in chunks of classes, and again in the backward pass. All in fp32, or in fp64
if the weights are; in modes of 16 bits the operands of the matrix products, but not the sums, are in 16 bits.
"""

from typing import Any

from zoo.losses.face import Settings

EPS = 1e-12  # smallest norm of a vector
CHUNK_ELEMENTS = 1 << 28  # logits that are held at once
# Probabilities in 16 bits are multiplied by this number, divided by the number of samples: fp16 holds none below 6e-8,
# 10 million classes have 1e-7, and a sum over all samples that are of one class must not exceed 65504.
GRADIENT_SCALE = 16384.0


class MarginSoftmax:
    """Loss of embeddings (N, d) of this rank, for the active rows of the class matrix (K, d) that it holds.

    Classes are given as `rows` (M,), for the M samples of all ranks: the row of a sample's class, or -1. All ranks must
    give their sums the same weight in the mean loss.

    Args:
        product_dtype: of the operands of matrix products; None for that of the weights.
    """

    def __init__(self, ops: Any, settings: Settings, rank: int, ranks: int, product_dtype: Any = None):
        self.ops = ops
        self.settings = settings
        self.rank = rank
        self.ranks = ranks
        self.dtype = product_dtype

    def forward(self, embeddings: Any, weight: Any, rows: Any, statistics: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the sum of this rank's losses, and what `backward` needs; statistics: moved in place."""
        ops = self.ops
        norms = ops.maximum(ops.row_norms(embeddings), ops.number(EPS, weight.dtype))
        units, quality = ops.all_gather(embeddings / norms[:, None], self.ranks), None
        if self.settings.uses_norms:
            quality = self.settings.quality(ops, ops.all_gather(norms, self.ranks), statistics)
        bounds = chunks(weight.shape[0], units.shape[0])
        if len(bounds) == 1:
            logits, is_filtered, slopes, inverse_norms = self.logits(units, weight, rows, quality)
            max_logits = ops.max_over_ranks(ops.row_max(logits), self.ranks)
            targets = own_targets(ops, logits, rows)
            exps = ops.exp_shifted_(logits, max_logits)
            sums = ops.sum_over_ranks(ops.stack((ops.row_sums(exps), targets)), self.ranks)
            kept = (exps, is_filtered, slopes, inverse_norms)
        else:
            own_max, sum_exps, targets = self.reduce_chunks(bounds, units, weight, rows, quality)
            max_logits = ops.max_over_ranks(own_max, self.ranks)
            sums = ops.sum_over_ranks(ops.stack((sum_exps * ops.exp(own_max - max_logits), targets)), self.ranks)
            kept = (max_logits, quality, None, None)
        loss = self.local(max_logits + ops.log(sums[0]) - sums[1], norms.shape[0]).sum()
        return loss, (weight, rows, norms, units, sums[0]) + kept

    def backward(self, saved: tuple[Any, ...], grad: Any) -> tuple[Any, Any]:
        """Return the gradients by the embeddings and by the active rows, of all ranks' sum; grad: that of the loss."""
        ops, (weight, rows, norms, units, sum_exps) = self.ops, saved[:5]
        factor, count = ops.number(self.settings.scale, weight.dtype) * grad, norms.shape[0]
        bounds = chunks(weight.shape[0], units.shape[0])
        if len(bounds) == 1:
            grad_units, grad_weight = self.gradients(saved[5:], sum_exps, units, weight, rows, factor)
        else:
            max_logits, quality = saved[5], saved[6]
            grad_units, grad_rows, done = None, ops.rows_like(weight), sum_exps
            for first, last in bounds:
                # Else a compiler would take the logits of the forward pass, and so keep those of all chunks.
                units, part = ops.after(units, done), ops.after(weight, done)[first:last]
                targets = rows_within(ops, rows, first, last)
                logits, is_filtered, slopes, inverse_norms = self.logits(units, part, targets, quality)
                chunk = (ops.exp_shifted_(logits, max_logits), is_filtered, slopes, inverse_norms)
                summand, of_rows = self.gradients(chunk, sum_exps, units, part, targets, factor)
                grad_units = summand if grad_units is None else grad_units + summand
                grad_rows, done = ops.set_rows(grad_rows, first, of_rows), grad_units
            grad_weight = ops.joined_rows(grad_rows)
        grad_units = self.local(ops.sum_over_ranks(grad_units, self.ranks), count)
        local_units = self.local(units, count)
        radial = (local_units * grad_units).sum(1)[:, None]
        return (grad_units - local_units * radial) / norms[:, None], grad_weight

    def logits(self, units: Any, weight: Any, rows: Any, quality: Any) -> tuple[Any, Any, Any, Any]:
        """Return the logits of units (M, d) and rows of the class matrix (k, d), and what their gradient needs.

        Returns:
            logits (M, k), overwritten by whoever uses them last; bool (M, k), the classes that the class filter leaves
            out, or None; slopes (M,), derivatives of the target's cosine with margin by the one without, undefined for
            a sample whose class is elsewhere; inverse norms of the rows (k,).
        """
        ops, dtype = self.ops, weight.dtype
        inverse_norms = 1 / ops.maximum(ops.row_norms(weight), ops.number(EPS, dtype))
        if self.dtype is None:
            cosines = ops.scale_columns_(ops.matmul(units, weight, False, True, None), inverse_norms)
        else:
            cosines = ops.matmul(units, ops.scale_rows(weight, inverse_norms), False, True, self.dtype)
        cosines = ops.clip_(cosines, -1.0, 1.0)
        target_cosines, slopes = self.settings.margin(ops, of_targets(ops, cosines, rows), quality)
        if self.settings.gradient == "straight":
            slopes = ops.ones_like(slopes)
        is_filtered = None
        if self.settings.interclass is not None:
            is_filtered = cosines > ops.number(self.settings.interclass, dtype)
            cosines = ops.fill_zeros_(cosines, is_filtered)
        cosines = set_targets_(ops, cosines, rows, target_cosines)
        return ops.scale_(cosines, ops.number(self.settings.scale, dtype)), is_filtered, slopes, inverse_norms

    def gradients(
        self, chunk: tuple[Any, ...], sum_exps: Any, units: Any, weight: Any, rows: Any, factor: Any
    ) -> tuple[Any, Any]:
        """Return the gradients by units, of these classes, and by their rows of the class matrix.

        Args:
            chunk: exp(logit - largest logit), and the other results of `logits`.
            sum_exps: (M,), over all classes.
        """
        ops, (exps, is_filtered, slopes, inverse_norms) = self.ops, chunk
        # The gradient of the logits, then of the cosines, then of the products, each times the sample's sum of exps.
        grad_targets, inverse_sums = (of_targets(ops, exps, rows) - sum_exps) * slopes, 1 / sum_exps
        grad = exps if is_filtered is None else ops.fill_zeros_(exps, is_filtered)
        grad = set_targets_(ops, grad, rows, grad_targets)
        if self.dtype is None:
            grad = ops.scale_columns_(grad, inverse_norms * factor)
            grad_units = ops.matmul(grad, weight, False, False, None) * inverse_sums[:, None]
            grad_weight = ops.matmul(grad, units * inverse_sums[:, None], True, False, None)
        else:  # products of probabilities, which are then multiplied by the factor, with its loss scale, in fp32
            scale = GRADIENT_SCALE / units.shape[0]
            grad, factor = ops.scale_rows_(grad, inverse_sums * scale), factor / scale
            grad_units = ops.matmul(grad, ops.scale_rows(weight, inverse_norms), False, False, self.dtype) * factor
            grad_weight = ops.matmul(grad, units, True, False, self.dtype)
            grad_weight = ops.scale_rows_(grad_weight, inverse_norms * factor)
        return grad_units, ops.remove_radial_(grad_weight, weight, inverse_norms)

    def reduce_chunks(self, bounds: Any, units: Any, weight: Any, rows: Any, quality: Any) -> tuple[Any, Any, Any]:
        """Return of each sample the largest logit, the sum of exp(logit - the largest), and the logit of its class."""
        ops = self.ops
        max_logits: Any = None
        sum_exps: Any = None
        targets: Any = None
        for first, last in bounds:
            own_rows = rows_within(ops, rows, first, last)
            logits = self.logits(units, weight[first:last], own_rows, quality)[0]
            chunk_targets, chunk_max, before = own_targets(ops, logits, own_rows), ops.row_max(logits), max_logits
            max_logits = chunk_max if before is None else ops.maximum(before, chunk_max)
            chunk_sum = ops.row_sums(ops.exp_shifted_(logits, max_logits))
            sum_exps = chunk_sum if before is None else sum_exps * ops.exp(before - max_logits) + chunk_sum
            targets = chunk_targets if before is None else targets + chunk_targets
        return max_logits, sum_exps, targets

    def local(self, x: Any, count: int) -> Any:
        """Return this rank's `count` rows of a tensor with the rows of all ranks."""
        return x[self.rank * count : (self.rank + 1) * count]


def chunks(classes: int, samples: int) -> tuple[tuple[int, int], ...]:
    """Return the rows of the class matrix in parts whose logits have CHUNK_ELEMENTS at most, but one class at least."""
    size, parts = max(1, CHUNK_ELEMENTS // samples), ()
    for first in range(0, classes, size):
        parts = (*parts, (first, min(first + size, classes)))  # type: ignore[assignment]
    return parts


def rows_within(ops: Any, rows: Any, first: int, last: int) -> Any:
    """Return rows counted from `first`; -1 where they are not in [first, last)."""
    return ops.where(ops.logical_and(rows >= first, rows < last), rows - first, -1)


def of_targets(ops: Any, matrix: Any, rows: Any) -> Any:
    """Return the element of each sample's class: (M, K) -> (M,). Undefined where its row is -1."""
    return ops.gather(matrix, ops.where(rows >= 0, rows, 0)[:, None])[:, 0]


def own_targets(ops: Any, logits: Any, rows: Any) -> Any:
    """Return the logit of each sample's class: (M, K) -> (M,); 0 where its row is -1."""
    return ops.where(rows >= 0, of_targets(ops, logits, rows), 0.0)


def set_targets_(ops: Any, matrix: Any, rows: Any, values: Any) -> Any:
    """Return the matrix with values (M,) as the elements of the samples' classes, where their row is not -1."""
    values = ops.where(rows >= 0, values, of_targets(ops, matrix, rows))
    return ops.scatter_(matrix, ops.where(rows >= 0, rows, 0)[:, None], values[:, None])
