"""List of the calls of a forward pass, module by module, and where their code is."""

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from zoo.parity.record import Call

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TRAINERS = os.path.join(ROOT, "zoo", "trainer")
NOT_MODELS = (
    TRAINERS + os.sep,
    *(
        os.path.join(ROOT, name)
        for name in (
            "zoo/bench/",
            "zoo/commands/",
            "zoo/compare/",
            "zoo/parity/",
            "tools/",
            "tests/",
            "train.py",
            "zoo/cli.py",
        )
    ),
)

# Gets a tensor's key, <title>/<number of the call>/in0 and so on, and its values; may return what replaces them.
Keep = Callable[[str, np.ndarray], Any]


class Entry(NamedTuple):
    """Number of a call, and what its inputs or outputs are replaced by; None leaves one as it is."""

    number: int
    values: list[Any]


class Recorder:
    """List of the calls of a forward pass, in the order in which the modules were entered.

    Args:
        modules: those of the model, by attribute path; "" is the model.
        title: of the pass, the first part of the keys of its tensors.
        keep: gets every tensor; together, all activations need much memory.
    """

    def __init__(self, modules: Mapping[str, Any], title: str, keep: Keep):
        self.title, self.keep = title, keep
        self.outputs: tuple[np.ndarray, ...] = ()  # of the model
        self.files = {name: source_files(modules, name) for name in modules}
        self.calls: list[Call] = []
        self.seen: dict[str, int] = {}
        self.open: list[int] = []  # indices of the calls that have not returned
        self.position = 0

    def enter(self, name: str, module: Any, inputs: Sequence[np.ndarray]) -> Entry:
        """Note that a module is called; to be used by a hook in front of it."""
        occurrence = self.seen[name] = self.seen.get(name, -1) + 1
        number, kind, span = len(self.calls), type(module).__name__, (self._tick(), -1)
        self.open.append(number)
        key, sites = f"{self.title}/{number}", call_sites()
        self.calls.append(Call(key, name, occurrence, kind, self.files[name], sites, len(inputs), 0, span))
        return Entry(number, [self.keep(f"{key}/in{index}", array) for index, array in enumerate(inputs)])

    def leave(self, outputs: Sequence[np.ndarray]) -> Entry:
        """Note the result of the module entered last."""
        number = self.open.pop()
        call = self.calls[number]
        self.calls[number] = call._replace(outputs=len(outputs), span=(call.span[0], self._tick()))
        if not call.name:
            self.outputs = tuple(outputs)
        return Entry(number, [self.keep(f"{call.key}/out{index}", array) for index, array in enumerate(outputs)])

    def _tick(self) -> int:
        self.position += 1
        return self.position


def call_sites() -> tuple[str, ...]:
    """Return file and line of the calls that led here, outside of installed packages, zoo.trainer and the tools."""
    lines: dict[str, int] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        is_program = frame.f_globals.get("__name__") == "__main__"
        if is_own_code(path) and not is_program and not os.path.abspath(path).startswith(NOT_MODELS):
            lines.setdefault(relative(path), frame.f_lineno)
        frame = frame.f_back
    return tuple(f"{path}:{line}" for path, line in lines.items())


def source_files(modules: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the files that a module's behavior comes from; see Call."""
    own, owner = class_file(modules[name]), ""
    while name and (not owner or owner.startswith(relative(TRAINERS))):
        name = name.rpartition(".")[0]
        owner = class_file(modules[name]) if name in modules else ""
    return tuple(dict.fromkeys(file for file in (owner, own) if file))


def class_file(value: Any) -> str:
    """Return the source file of an object's class, "" if it belongs to an installed package."""
    return _source_file(type(value))


def class_files(value: Any) -> list[str]:
    """Return the source files of an object's class and its bases, but for those of installed packages."""
    return list(dict.fromkeys(filter(None, map(_source_file, type(value).__mro__))))


def _source_file(cls: type) -> str:
    try:
        path = inspect.getsourcefile(cls) or ""
    except (TypeError, OSError):
        return ""
    return relative(path) if is_own_code(path) else ""


def is_own_code(path: str) -> bool:
    """Return whether a file is neither of an installed package nor of Python itself."""
    return os.path.isfile(path) and "site-packages" not in path and not path.startswith((sys.base_prefix, "<"))


def relative(path: str) -> str:
    """Return a path relative to the project, or else to the current folder, if the file lies in it."""
    path = os.path.abspath(path)
    folder = next((each for each in (ROOT, os.getcwd()) if path.startswith(each + os.sep)), None)
    return path if folder is None else os.path.relpath(path, folder)
