"""Logits of margin softmax in MindSpore, and the gradients of a part of the class matrix; see margin.py."""

from dataclasses import dataclass
from typing import Any

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.tasks import face
from zoo.trainer.mindspore.fp64 import constant
from zoo.trainer.mindspore.precision import DTYPES
from zoo.trainer.plan import Mode

EPS = 1e-12  # smallest norm of a vector
# Probabilities in 16 bits are multiplied by this number, divided by the number of samples: fp16 holds none below 6e-8,
# and a sum over all samples that are of one class must not exceed 65504.
GRADIENT_SCALE = 16384.0


@dataclass(frozen=True)
class Numbers:
    """Numbers of the settings as operands: in fp64 tensors, because MindSpore rounds Python's numbers to fp32."""

    m1: Any
    m2: Any
    m3: Any
    scale: Any
    interclass: Any
    min_sine: Any
    threshold_cosine: Any
    threshold_offset: Any


def numbers(settings: face.Margin, is_fp64: bool) -> Numbers:
    number = constant if is_fp64 else float
    return Numbers(
        number(settings.m1),
        number(settings.m2),
        number(settings.m3),
        number(settings.scale),
        None if settings.interclass is None else number(settings.interclass),
        number(face.MIN_SINE),
        number(face.threshold_cosine(settings.m2)),
        number(face.threshold_offset(settings.m2)),
    )


class MarginLogits(nn.Cell):
    """Logits of units (M, d) and rows of the class matrix (K, d), and their gradients.

    In modes of 16 bits, the operands of the products are rounded to the mode's type. On a CPU, the product itself is
    in fp32; elsewhere it is returned in 16 bits, since MindSpore's has no other result for such operands.
    """

    def __init__(self, settings: face.Margin, mode: Mode, on_cpu: bool):
        super().__init__()
        self.settings, self.on_cpu, self.numbers = settings, on_cpu, numbers(settings, mode.is_fp64)
        self.dtype = mstype.float64 if mode.is_fp64 else mstype.float32
        self.product_dtype = DTYPES.get(mode.compute)
        self.matmul_nt, self.matmul_tn = ops.MatMul(transpose_b=True), ops.MatMul(transpose_a=True)

    def logits(self, units: Tensor, weight: Tensor, target_rows: Tensor) -> tuple[Tensor, Any, Tensor, Tensor]:
        """Return the logits (M, K) and what `gradients` needs: is_filtered, slopes and the rows' inverse norms."""
        inverse_norms = 1 / ops.maximum(ops.sqrt(ops.square(weight).sum(1)), EPS)
        if self.product_dtype is None:
            cosines = self.matmul_nt(units, weight)  # (M, K), after the division by the norms:
            cosines = cosines * self.expand(inverse_norms.reshape(1, -1), cosines)
        else:
            cosines = self.product(self.matmul_nt, units, weight * self.expand(inverse_norms.reshape(-1, 1), weight))
        cosines = ops.clamp(cosines, -1.0, 1.0)
        target_cosines, slopes = margin(target_logits(cosines, target_rows), self.settings, self.numbers)
        is_filtered = None
        if self.settings.interclass is not None:
            is_filtered = cosines > self.numbers.interclass
            cosines = self.fill_zeros(cosines, is_filtered)
        return (
            scatter_targets(cosines, target_rows, target_cosines) * self.numbers.scale,
            is_filtered,
            slopes,
            inverse_norms,
        )

    def gradients(
        self,
        exps: Tensor,
        is_filtered: Any,
        slopes: Tensor,
        inverse_norms: Tensor,
        sum_exps: Tensor,
        units: Tensor,
        weight: Tensor,
        target_rows: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients by units, of these classes, and by their rows of the class matrix.

        Args:
            exps: exp(logit - largest logit).
            is_filtered, slopes, inverse_norms: of `logits`.
            sum_exps: (M,), over all classes.
            units, weight, target_rows: those of `logits`.
        """
        # The gradient of the logits, then of the cosines, then of the products, each times the sample's sum of exps.
        inverse_sums = 1 / sum_exps.reshape(-1, 1)
        grad_targets = (target_logits(exps, target_rows) - sum_exps) * slopes
        grad = exps if is_filtered is None else self.fill_zeros(exps, is_filtered)
        grad = scatter_targets(grad, target_rows, grad_targets)
        if self.product_dtype is None:
            grad = grad * self.expand((inverse_norms * self.numbers.scale).reshape(1, -1), grad)
            grad_units = ops.matmul(grad, weight) * inverse_sums
            grad_weight = self.matmul_tn(grad, units * inverse_sums)
        else:
            factor = GRADIENT_SCALE / units.shape[0]
            grad = grad * self.expand(inverse_sums * factor, grad)
            factor = self.numbers.scale / factor
            unit_weight = weight * self.expand(inverse_norms.reshape(-1, 1), weight)
            grad_units = self.product(ops.matmul, grad, unit_weight) * factor
            grad_weight = self.product(self.matmul_tn, grad, units)
            grad_weight = grad_weight * self.expand((inverse_norms * factor).reshape(-1, 1), grad_weight)
        radial = (grad_weight * weight).sum(1)
        radial = self.expand((radial * inverse_norms * inverse_norms).reshape(-1, 1), weight)
        return grad_units, grad_weight - weight * radial

    def product(self, matmul: Any, a: Tensor, b: Tensor) -> Tensor:
        """Return the product of operands rounded to 16 bits in fp32."""
        a, b = a.astype(self.product_dtype), b.astype(self.product_dtype)
        if self.on_cpu:
            a, b = a.astype(mstype.float32), b.astype(mstype.float32)
        return matmul(a, b).astype(mstype.float32)

    def expand(self, x: Tensor, like: Tensor) -> Tensor:
        """Repeat a row or a column to the shape of a matrix; only on CPUs, where broadcasting needs four times that."""
        return ops.tile(x, (like.shape[0] // x.shape[0], like.shape[1] // x.shape[1])) if self.on_cpu else x

    def fill_zeros(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return x with zeros where the mask is set."""
        if self.dtype == mstype.float32:
            return ops.masked_fill(x, mask, 0.0)
        return ops.select(mask, ops.zeros_like(x), x)  # masked_fill rounds to fp32


def margin(cosine: Tensor, settings: face.Margin, numbers: Numbers) -> tuple[Tensor, Tensor]:
    """Return the target's cosine with its margin, and the derivative.

    The derivative stays finite where that of the angle is not.
    """
    value, slope = cosine, ops.ones_like(cosine)
    if (settings.m1, settings.m2) != (1.0, 0.0):
        sine = ops.sqrt((1 - cosine) * (1 + cosine))
        angle = numbers.m1 * ops.atan2(sine, cosine) + numbers.m2
        value, slope = ops.cos(angle), numbers.m1 * ops.sin(angle) / ops.maximum(sine, numbers.min_sine)
    if settings.threshold and settings.m2:
        is_beyond = cosine <= numbers.threshold_cosine
        value = ops.select(is_beyond, cosine - numbers.threshold_offset, value)
        slope = ops.select(is_beyond, ops.ones_like(slope), slope)
    return value - numbers.m3, ops.ones_like(slope) if settings.straight_through else slope


def target_logits(matrix: Tensor, target_rows: Tensor) -> Tensor:
    """Return the element of each sample's target class: (M, K) -> (M,). Undefined where target_rows is -1."""
    return ops.gather_d(matrix, 1, ops.maximum(target_rows, 0).reshape(-1, 1)).reshape(-1)


def own_targets(logits: Tensor, target_rows: Tensor) -> Tensor:
    """Return the logit of each sample's class: (M, K) -> (M,); 0 where target_rows is -1."""
    targets = target_logits(logits, target_rows)
    return ops.select(target_rows >= 0, targets, ops.zeros_like(targets))


def scatter_targets(matrix: Tensor, target_rows: Tensor, values: Tensor) -> Tensor:
    """Return the matrix with values (M,) as the elements of the target classes, where target_rows is not -1."""
    values = ops.select(target_rows >= 0, values, target_logits(matrix, target_rows))
    return ops.tensor_scatter_elements(matrix, ops.maximum(target_rows, 0).reshape(-1, 1), values.reshape(-1, 1), 1)
