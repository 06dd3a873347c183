"""A planted fault: a slip that a person may make in porting a model, as a replacement in one place of one file."""

from pathlib import Path
from typing import NamedTuple

SHARED = "shared"  # code that all frameworks run


class Fault(NamedTuple):
    """One replacement of text.

    Attributes:
        framework: whose code it changes; SHARED for code of all frameworks.
        name: what goes wrong; unique within the framework.
        file: the file that it changes, relative to the repository.
        old: text that occurs in the file exactly once.
        new: what stands there instead.
        killer: the fastest test that fails then: the id of a pytest test, or of a case (case_...) that
            tests/helpers/frameworks.py runs in every framework.
        recipe: a demo recipe whose mathematics it changes; "" for none.
        options: settings of the recipe without which it changes nothing.
    """

    framework: str
    name: str
    file: str
    old: str
    new: str
    killer: str
    recipe: str = ""
    options: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.framework}: {self.name}"


def mutated(text: str, fault: Fault) -> str:
    """Return the text of a fault's file with the fault.

    Raises:
        ValueError: the old text does not occur exactly once, or the new one is the same.
    """
    count = text.count(fault.old)
    if count != 1 or fault.old == fault.new:
        raise ValueError(f"{fault.key}: the old text occurs {count} times in {fault.file}, not once")
    return text.replace(fault.old, fault.new)


def plant(fault: Fault, tree: Path) -> None:
    """Write a fault into its file below `tree`.

    Raises:
        ValueError: see mutated.
    """
    path = tree / fault.file
    path.write_text(mutated(path.read_text(encoding="utf-8"), fault), encoding="utf-8")
