"""Models: a folder zoo/models/<name>/ each, with a neutral spec.py and one file per framework."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from data.batch import Field
from data.errors import UserError
from zoo.frameworks import FRAMEWORKS, import_for

FOLDER = Path(__file__).parent
SPEC_NAMES = (
    "TASK",
    "Arch",
    "shapes",
    "resolve",
    "min_batch_size",
    "dropout_masks",
    "initializer",
    "lr_and_decay_scale",
    "is_head",
    "not_pretrained",
    "SHARDED_PARAMETERS",
    "FP32_MODULES",
)


def list_models() -> list[str]:
    """List the names of all models."""
    return sorted(path.parent.name for path in FOLDER.glob("*/spec.py"))


def load_spec(model: str) -> ModuleType:
    """Return the module zoo/models/<model>/spec.py.

    Raises:
        UserError: there is no such model, or its spec lacks a name of SPEC_NAMES.
    """
    if model not in list_models():
        raise UserError(f"there is no model {model!r}; there are: {', '.join(list_models())}")
    spec = importlib.import_module(f"zoo.models.{model}.spec")
    missing = [name for name in SPEC_NAMES if not hasattr(spec, name)]
    if missing:
        raise UserError(f"zoo/models/{model}/spec.py lacks {', '.join(missing)}; see docs/extending.md")
    return spec


def resolve_arch(spec: ModuleType, arch: Any, fields: Sequence[Field], num_classes: int) -> Any:
    """Complete an architecture by what the data says: the number of classes, frames, the image size.

    Args:
        spec: the model's spec module.
        arch: a spec.Arch whose fields may be None.
        fields: the fields of a batch of the data set; the first is the model's input.
        num_classes: classes of the data set.

    Raises:
        UserError: the architecture contradicts the data; the message names the config key.
    """
    if arch.num_classes is not None and arch.num_classes < num_classes:
        raise UserError(
            f"model.num_classes: the model has {arch.num_classes} outputs, but the data has {num_classes} classes; "
            "leave it out to follow the data"
        )
    try:
        return spec.resolve(arch, fields, num_classes)
    except ValueError as error:
        raise UserError(f"model.{error}") from None


def load_model_class(model: str, framework: str) -> type:
    """Return the class Model(arch) of a model; imports the framework.

    Raises:
        UserError: the model is not written for this framework, or the framework is not installed.
    """
    available = [name for name in FRAMEWORKS if (FOLDER / model / f"{name}.py").exists()]
    module = import_for(framework, f"zoo.models.{model}.{framework}", available, f"the model {model}")
    return module.Model
