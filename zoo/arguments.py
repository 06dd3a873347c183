"""Checks of the arguments of the Python API."""

import json
import os
import typing
from collections.abc import Mapping
from typing import Any

from zoo.config.convert import convert
from zoo.data.errors import UserError
from zoo.frameworks import FRAMEWORKS
from zoo.models import Spec, load_spec
from zoo.models.named import NAMED_MODELS, NamedModel


def check(name: str, spec: Spec, num_classes: Any, pretrained: Any, seed: Any) -> None:
    """Raise UserError for a value of another type or range."""
    if num_classes is not None and (not _is_int(num_classes) or num_classes < 1):
        raise UserError(f"num_classes: expected a whole number from 1 on, got {num_classes!r}")
    if num_classes is not None and spec.SHARDED_PARAMETERS:
        raise UserError(f"num_classes: {name} gives embeddings; the class matrix belongs to its loss. Leave it out")
    if not _is_int(seed) or seed < 0:
        raise UserError(f"seed: expected a whole number from 0 on, got {seed!r}")
    if pretrained is not None and not isinstance(pretrained, str | os.PathLike):
        raise UserError(f"pretrained: expected a path or 'imagenet', got {pretrained!r}")


def check_weights(weights: Any, framework: Any) -> str:
    """Return the path of a checkpoint or an exported model.

    Raises:
        UserError: it is no path, or the framework is unknown.
    """
    if framework not in (None, *FRAMEWORKS):
        raise UserError(f"framework: expected one of {', '.join(FRAMEWORKS)}, got {framework!r}")
    if not isinstance(weights, str | os.PathLike):
        raise UserError(f"weights: expected the path of a folder or an .onnx file, got {weights!r}")
    return str(os.fspath(weights))


def override_pairs(overrides: Any) -> list[str]:
    """Return values by dotted key as the words of train.py's -o; JSON is YAML. Raises UserError for anything else."""
    if not isinstance(overrides, Mapping | None):
        raise UserError(f'overrides: expected values by key, such as {{"optim.lr": 0.01}}, got {overrides!r}')
    return [f"{key}={json.dumps(value, default=str)}" for key, value in (overrides or {}).items()]


def convert_options(named: NamedModel, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of an architecture with the declared types.

    Raises:
        UserError: an option is unknown, part of the model's name, or has a value of another type.
    """
    hints = typing.get_type_hints(load_spec(named.model).Arch)
    converted = {}
    for key, value in options.items():
        if key not in hints:
            raise UserError(f"{key}: {named.model} has no such option; there are: {', '.join(hints)}")
        if key in named.options and value != named.options[key]:
            names = [name for name, other in NAMED_MODELS.items() if other.model == named.model]
            raise UserError(f"{key}: is part of the model's name; choose one of: {', '.join(names)}")
        try:
            converted[key] = convert(value, hints[key])
        except ValueError as error:
            raise UserError(f"{key}: {error}") from None
    return converted


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
