"""Descriptions, keys and checks of a trainer's tensors that do not depend on the framework."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.trainer import update
from zoo.trainer.plan import Plan
from zoo.trainer.protocol import Param, Shard

EMA_PREFIX = "ema/"
OBJECTIVE_PREFIX = "objective/"
STATISTICS = (".running_mean", ".running_var")  # ends of the names of tensors that are no parameters
MAX_NAMES = 3  # of each kind of tensors in the report


def describe(name: str, shape: Sequence[int], is_statistic: bool, shard: Shard | None) -> Param:
    """Return the Param of a tensor.

    Args:
        shape: of the tensor on this rank, in canonical layout.
        shard: the rows held here if the tensor is sharded.
    """
    if shard is None:
        return Param(name, tuple(shape), is_statistic)
    return Param(name, (shard.num_rows, *shape[1:]), is_statistic, (shard.first, shard.last))


def slot_key(slot: str, name: str) -> str:
    """Return the key of a parameter's slot of the optimizer in a state dict."""
    return f"optimizer/{slot}/{name}"


def ema_key(name: str) -> str:
    """Return the key of a tensor's moving average in a state dict."""
    return f"{EMA_PREFIX}{name}"


def statistic_key(name: str) -> str:
    """Return the key of a running statistic of the objective in a state dict."""
    return f"{OBJECTIVE_PREFIX}{name}"


def with_averages(tensors: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """Return weights and running statistics, and if the plan has a moving average themselves as its first values."""
    averages = {ema_key(name): tensor for name, tensor in tensors.items() if plan.ema}
    return {**tensors, **averages}


def shapes(params: Iterable[Param], plan: Plan, statistics: Iterable[Param] = ()) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a trainer's state dict, without its tensors."""
    found: dict[str, tuple[int, ...]] = dict.fromkeys(update.KEYS, ())
    found.update((statistic_key(statistic.name), statistic.shape) for statistic in statistics)
    for param in params:
        first, last = param.rows or (0, 0)
        found[param.name] = (last - first, *param.shape[1:]) if param.rows else param.shape
        if param.rows or not (param.is_statistic or plan.is_frozen(param.name)):
            found.update((slot_key(slot, param.name), found[param.name]) for slot in plan.optimizer.slots)
        if plan.ema:
            found[ema_key(param.name)] = found[param.name]
    return found


def sharded_keys(shards: Mapping[str, Shard], slots: Iterable[str]) -> set[str]:
    """Return the keys of a state dict that hold this rank's rows only."""
    return {key for name in shards for key in (name, ema_key(name), *(slot_key(slot, name) for slot in slots))}


def nonfinite_report(
    params: Iterable[Param], tensors: Mapping[str, Any], gradients: Mapping[str, Any], is_finite: Callable[[Any], bool]
) -> str:
    """List the tensors that are not finite.

    Args:
        params: parameters and running statistics.
        gradients: of the last step, by name; None where there is none.
        is_finite: returns whether all elements of a tensor are finite.
    """
    nonfinite = [param for param in params if not is_finite(tensors[param.name])]
    kinds = {
        "weights": [param.name for param in nonfinite if not param.is_statistic],
        "running statistics": [param.name for param in nonfinite if param.is_statistic],
        "gradients of": [name for name, grad in gradients.items() if grad is not None and not is_finite(grad)],
    }
    parts = [f"{kind} {shortened(names)}" for kind, names in kinds.items() if names]
    return f"not finite: {'; '.join(parts)}" if parts else "all finite"


def not_finite(tensors: Mapping[str, np.ndarray]) -> list[str]:
    """Return the keys of a state dict whose tensors are not finite."""
    extremes = {key: (array.min(initial=0), array.max(initial=0)) for key, array in tensors.items()}  # NaN if one is
    return [key for key, numbers in extremes.items() if not np.isfinite(numbers).all()]


def shortened(names: Sequence[str]) -> str:
    """Return some names, the first ones of many."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
