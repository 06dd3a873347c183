"""Defaults of what the spec of a model may leave out: all but Arch, whose field num_classes may be None, and shapes.

Spec in zoo/models/__init__.py says what it is for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from zoo.data.batch import DropoutMask, Field
from zoo.data.fields import Checked, SettingError
from zoo.models.initializers import Initializer, kaiming_normal, uniform, zeros

TASK = "classify"
SHARDED_PARAMETERS: tuple[str, ...] = ()
FP32_MODULES: tuple[str, ...] = ()
VARIANTS: Mapping[str, Mapping[str, Any]] = {}
NUM_CLASSES: int | None = None
INPUT_SHAPE: tuple[int, ...] = (224, 224, 3)
HEADS = ("classifier", "fc", "head")  # names of the module that is the classifier


class Architecture(Checked):
    """Base of an Arch whose number of classes may come from the data."""

    @property
    def outputs(self: Any) -> int:
        """Number of outputs of the classifier. Raises ValueError before the architecture is resolved."""
        if self.num_classes is None:
            raise SettingError("num_classes", "not known yet; set it, or resolve the architecture with a data set")
        return self.num_classes


def resolve(arch: Any, fields: Sequence[Field], num_classes: int) -> Any:
    """Complete the architecture with the number of classes."""
    return replace(arch, num_classes=arch.num_classes or num_classes)


def min_batch_size(arch: Any) -> int:
    """Return 1."""
    return 1


def flops(arch: Any, shape: Sequence[int]) -> int:
    """Return 0: they are not counted."""
    return 0


def checkpointed_modules(arch: Any) -> tuple[str, ...]:
    """Return (): activations are kept."""
    return ()


def dropout_masks(arch: Any) -> tuple[DropoutMask, ...]:
    """Return (): the model draws none outside the framework."""
    return ()


def initializer(arch: Any, name: str, shape: Sequence[int]) -> Initializer:
    """Return He normal for weights, uniform within 1/sqrt(fan-in) for the classifier's, ones and zeros for vectors."""
    if len(shape) > 1:
        return uniform(math.prod(shape[1:]) ** -0.5) if is_head(name) else kaiming_normal(shape)
    return Initializer("ones") if name.endswith((".weight", ".running_var")) else zeros(name)


def lr_and_decay_scale(arch: Any, name: str) -> tuple[float, float]:
    """Return (1, 1): all parameters have the weight decay, as in PyTorch."""
    return 1.0, 1.0


def is_head(name: str) -> bool:
    """Return whether a tensor belongs to a module of HEADS."""
    return name.split(".")[0] in HEADS
