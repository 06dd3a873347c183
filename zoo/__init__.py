"""Models. A model is a folder zoo/<name>/ with a neutral spec.py and one file per framework that offers it."""
import importlib
import os
from types import ModuleType
from typing import List, Sequence

from data.batch import Field
from data.errors import UserError

FRAMEWORKS = ("torch", "paddle", "mindspore")  # by the names that Python imports
# What a spec.py holds.
SPEC = ("TASK", "Arch", "shapes", "fit", "least_batch", "noise", "init", "rule", "is_head", "is_new")
_FOLDER = os.path.dirname(__file__)


def find(model: str) -> ModuleType:
    """The spec of a model. Raises UserError with the models there are."""
    if model in models():
        spec = importlib.import_module(f"zoo.{model}.spec")
        lacking = [name for name in SPEC if not hasattr(spec, name)]
        if lacking:
            raise UserError(f"zoo/{model}/spec.py lacks {', '.join(lacking)}; see docs/extending.md")
        return spec
    raise UserError(f"there is no model {model!r}; there are: {', '.join(models())}")


def fit(spec: ModuleType, arch, fields: Sequence[Field], classes: int):
    """The architecture completed by what the data says. Raises UserError naming the key."""
    if arch.num_classes is not None and arch.num_classes < classes:
        raise UserError(f"model.num_classes: the net has {arch.num_classes} outputs, but the data has {classes} "
                        "classes; leave it out to follow the data")
    try:
        return spec.fit(arch, fields, classes)
    except ValueError as error:
        raise UserError(f"model.{error}") from None


def load_net(model: str, framework: str) -> type:
    """The class Net(arch) of a model. Imports the framework. Raises UserError if it is not installed."""
    _offered(framework, [name for name in FRAMEWORKS if _exists(model, f"{name}.py")], f"the model {model}")
    return _import(f"zoo.{model}.{framework}", framework).Net


def load_trainer(framework: str) -> ModuleType:
    """The trainer package of a framework: start(launch, device) -> World and Trainer. Raises UserError."""
    _offered(framework, [name for name in FRAMEWORKS if _exists("trainer", name)], "the trainer")
    return _import(f"zoo.trainer.{framework}", framework)


def models() -> List[str]:
    return sorted(name for name in os.listdir(_FOLDER) if _exists(name, "spec.py"))


def _exists(*path: str) -> bool:
    return os.path.exists(os.path.join(_FOLDER, *path))


def _offered(framework: str, offered: List[str], what: str) -> None:
    if framework not in offered:
        raise UserError(f"framework: {what} is not written in {framework!r}; it is in: {', '.join(offered)}")


def _import(module: str, framework: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != framework:
            raise
        raise UserError(f"{framework} is not installed here: pip install '.[{framework}]'") from None
