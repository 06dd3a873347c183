"""The frameworks and how their files are imported: by name, and only when one is needed."""

import importlib
from collections.abc import Sequence
from types import ModuleType

from data.errors import UserError

FRAMEWORKS = ("torch", "paddle", "mindspore")  # the names of their Python packages


def import_for(framework: str, module: str, available: Sequence[str], what: str) -> ModuleType:
    """Import a module of ours that imports a framework.

    Args:
        framework: one of FRAMEWORKS.
        module: dotted name of the module.
        available: the frameworks that `what` is written for.
        what: the subject of the error message, such as "the model resnet".

    Raises:
        UserError: it is not written for this framework, or the framework is not installed.
    """
    if framework not in available:
        raise UserError(f"framework: {what} is not written for {framework!r}; it is for: {', '.join(available)}")
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != framework:
            raise
        raise UserError(f"{framework} is not installed here: pip install 'vision-zoo[{framework}]'") from None
