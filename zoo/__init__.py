"""A multi-framework vision model zoo. Importing this package imports no framework."""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.api import (
        Classification,
        Face,
        Labels,
        Loaded,
        Result,
        Run,
        Segmentation,
        create_model,
        list_models,
        load,
        numpy_weights,
    )
    from zoo.data.errors import UserError
    from zoo.frameworks import FRAMEWORKS
    from zoo.stream import Batches, batches

__all__ = [
    "FRAMEWORKS",
    "Batches",
    "Classification",
    "Face",
    "Labels",
    "Loaded",
    "Result",
    "Run",
    "Segmentation",
    "UserError",
    "__version__",
    "batches",
    "create_model",
    "list_models",
    "load",
    "numpy_weights",
]
__version__ = "0.2.0"


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Import a name of the Python API when it is used: every process that reads data imports this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    from zoo import api

    return getattr(api, name)
