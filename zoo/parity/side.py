"""A side of a comparison: where its model comes from, the Python, device and precision that run it, what it records."""

import ast
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from zoo.data.errors import UserError, known_names
from zoo.parity.record import Identity

FRAMEWORKS = ("torch", "paddle", "mindspore", "jax", "onnx", "numpy")
PRECISIONS = ("fp64", "fp32", "fp16", "bf16")
COMPILE = "compile"
# Files of a side, or beside all of them
WEIGHTS, OUTLINE, MATCH, INPUTS = "weights.safetensors", "outline.safetensors", "match.json", "inputs.safetensors"
NAMES = "names"  # metadata of the inputs: their order, which the file does not keep
SPEC = re.compile(r"(?P<place>.+?):(?P<name>[A-Za-z_][\w.]*)(?:\((?P<arguments>.*)\))?", re.DOTALL)


class Side(NamedTuple):
    """One of the programs that are compared.

    Attributes:
        title: as in the report, such as torch, torch@2.11 or torch:cuda.
        model: FILE.py:FUNCTION or MODULE:FUNCTION, perhaps with (ARGUMENTS), which returns the model; or an .onnx file.
        python: the interpreter that has the framework; None for this one.
        precision: of passes that are compared; None for fp64, and fp32 for its rounding.
        optimizer, loss: FILE.py:FUNCTION; see zoo/parity/recorders.
    """

    title: str
    framework: str
    model: str
    device: str = "cpu"
    precision: str | None = None
    compile: bool = False
    python: str | None = None
    optimizer: str | None = None
    loss: str | None = None
    channels_last: bool = False


class Order(NamedTuple):
    """A request for a record.

    Attributes:
        name: of the record, a file in the side's folder.
        partner: folder of the reference; None for the reference itself.
        reference: name of the reference's record.
        forced: the reference's calls whose tensors replace those of the model.
        loss: name of one of zoo/parity/losses.py; None for random weights of the outputs, or the side's own.
        optimizer: name of one of zoo/parity/updates.py with its settings; None for none, or the side's own.
        trains: whether a pass with gradients follows that in evaluation mode.
        keeps: whether the reference keeps whole tensors, which others are compared with.
    """

    name: str
    precision: str
    partner: str | None = None
    reference: str = ""
    forced: tuple[Identity, ...] = ()
    loss: str | None = None
    optimizer: str | None = None
    updates: int = 0
    trains: bool = True
    keeps: bool = True


def parse(title: str, model: str) -> Side:
    """Return the side of a title, FRAMEWORK[@LABEL][:DEVICE][:PRECISION][:compile].

    Raises:
        UserError: a framework is unknown.
    """
    name, *options = title.split(":")
    framework = name.partition("@")[0]
    if framework not in FRAMEWORKS:
        raise UserError(f"{title}: {framework!r} is no framework{known_names(framework, FRAMEWORKS)}")
    precisions = [option for option in options if option in PRECISIONS]
    devices = [option for option in options if option not in (*PRECISIONS, COMPILE)]
    if len(devices) > 1 or len(precisions) > 1 or "" in devices:
        raise UserError(f"{title}: one device and one precision at most; precisions: {', '.join(PRECISIONS)}")
    device, precision = devices[0] if devices else "cpu", precisions[0] if precisions else None
    return Side(title, framework, model, device, precision, COMPILE in options)


def spec_of(value: str | Callable[..., Any]) -> str:
    """Return FILE:FUNCTION of a function, which the process of a side imports.

    Raises:
        UserError: it is not a function of a file.
    """
    if isinstance(value, str):
        return value
    name, file = getattr(value, "__qualname__", ""), None
    if callable(value):
        with suppress(TypeError):
            file = inspect.getsourcefile(value)
    if not file or not os.path.isfile(file) or not name.replace(".", "").isidentifier():
        raise UserError(
            f"{value!r}: a side runs in a process of its own, so its model comes from a function in a file; "
            "define a function that returns it, and give that, or FILE.py:FUNCTION"
        )
    return f"{os.path.abspath(file)}:{name}"


def load(spec: str) -> Callable[..., Any]:
    """Return the function of FILE.py:FUNCTION or MODULE:FUNCTION, with its arguments if the text has some.

    Raises:
        UserError: there is none.
    """
    found = SPEC.fullmatch(spec)
    if not found:
        raise UserError(f"{spec}: write FILE.py:FUNCTION or MODULE:FUNCTION, which returns the model")
    value: Any = _module(found["place"])
    for part in found["name"].split("."):
        if not hasattr(value, part):
            names = [name for name in vars(value) if not name.startswith("_") and callable(getattr(value, name))]
            raise UserError(f"{spec}: {found['place']} has no {part}{known_names(part, names[:50])}")
        value = getattr(value, part)
    if not callable(value):
        raise UserError(f"{spec}: {found['name']} is no function, but {type(value).__name__}; wrap it in one")
    arguments, keywords = _arguments(spec, found["arguments"] or "")
    return partial(value, *arguments, **keywords) if arguments or keywords else value


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise UserError(f"{place}: {error}; for a file, write its path with .py") from None
    path = Path(place).resolve()
    if not path.is_file():
        raise UserError(f"{place}: no such file")
    sys.path.insert(0, str(path.parent))  # for the files beside it
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _arguments(spec: str, text: str) -> tuple[list[Any], Mapping[str, Any]]:
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        keywords = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        return [ast.literal_eval(value) for value in call.args], keywords
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{spec}: the arguments are numbers, strings and lists of them: {error}") from None
