"""Logits of margin softmax in MindSpore, and the gradients of a part of the class matrix; see margin.py."""

from typing import Any

from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from zoo.losses import load_implementation
from zoo.tasks import face
from zoo.trainer.mindspore.losses.types import types
from zoo.trainer.mindspore.precision import DTYPES
from zoo.trainer.plan import Plan

EPS = 1e-12  # smallest norm of a vector
# Probabilities in 16 bits are multiplied by this number, divided by the number of samples: fp16 holds none below 6e-8,
# and a sum over all samples that are of one class must not exceed 65504.
GRADIENT_SCALE = 16384.0


class MarginLogits(nn.Cell):
    """Logits of units (M, d) and rows of the class matrix (K, d), and their gradients.

    In modes of 16 bits, the operands of the products are rounded to the mode's type. On a CPU, the product itself is
    in fp32; elsewhere it is returned in 16 bits, since MindSpore's has no other result for such operands.
    """

    def __init__(self, settings: face.Margin, plan: Plan, on_cpu: bool):
        super().__init__()
        self.settings, self.on_cpu = settings, on_cpu
        self.margin = load_implementation(settings.loss, "mindspore").Loss(settings.loss, plan)
        self.dtype, number = types(plan)
        self.scale: Any = number(settings.scale)
        self.interclass = None if settings.interclass is None else number(settings.interclass)
        self.product_dtype = DTYPES.get(plan.mode.compute)
        self.matmul_nt, self.matmul_tn = ops.MatMul(transpose_b=True), ops.MatMul(transpose_a=True)

    def logits(
        self, units: Tensor, weight: Tensor, target_rows: Tensor, quality: Any
    ) -> tuple[Tensor, Any, Tensor, Tensor]:
        """Return the logits (M, K) and what `gradients` needs: is_filtered, slopes and the rows' inverse norms."""
        inverse_norms = 1 / ops.maximum(ops.sqrt(ops.square(weight).sum(1)), EPS)
        if self.product_dtype is None:
            cosines = self.matmul_nt(units, weight)  # (M, K), after the division by the norms:
            cosines = cosines * self.expand(inverse_norms.reshape(1, -1), cosines)
        else:
            cosines = self.product(self.matmul_nt, units, weight * self.expand(inverse_norms.reshape(-1, 1), weight))
        cosines = ops.clamp(cosines, -1.0, 1.0)
        target_cosines, slopes = self.margin(target_logits(cosines, target_rows), quality)
        if self.settings.straight_through:
            slopes = ops.ones_like(slopes)
        is_filtered = None
        if self.interclass is not None:
            is_filtered = cosines > self.interclass
            cosines = self.fill_zeros(cosines, is_filtered)
        return (
            scatter_targets(cosines, target_rows, target_cosines) * self.scale,
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
            grad = grad * self.expand((inverse_norms * self.scale).reshape(1, -1), grad)
            grad_units = ops.matmul(grad, weight) * inverse_sums
            grad_weight = self.matmul_tn(grad, units * inverse_sums)
        else:
            factor = GRADIENT_SCALE / units.shape[0]
            grad = grad * self.expand(inverse_sums * factor, grad)
            factor = self.scale / factor
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
