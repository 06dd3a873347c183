"""Texts of a run without the paths of its machine."""

import re
from typing import Any

# An absolute path, wherever a text has one; a slash within a word or of a URL begins none.
ABSOLUTE = re.compile(r"(?<![\w.~:/-])~?/[^\s/,\[\]()'\"][^,\[\]()'\"]*")
GLUED = re.compile(r"(-[a-z])(?=[^-=])(.+)", re.DOTALL)  # an option of one letter and its value
PATH, RECIPE = "PATH", "code/recipe.yaml"


def value(found: Any) -> Any:
    """Return a value of a recipe with PATH in place of absolute paths, in lists too."""
    if isinstance(found, list):
        return [value(entry) for entry in found]
    return ABSOLUTE.sub(PATH, found) if isinstance(found, str) else found


def word(text: str, folders: tuple[str, ...]) -> str:
    """Return a word of a command without the paths of its machine.

    A recipe of the folder configs/ is named in it, another one by its copy in the submission.

    Args:
        text: an option, a value, or both.
        folders: keys of recipes whose value is a folder of the machine, absolute or not.
    """
    glued = GLUED.fullmatch(text)
    option, rest = (glued[1], glued[2]) if glued else ("", text)
    key, equals, _ = rest.partition("=")
    if equals and key in folders:
        return f"{option}{key}=FOLDER"
    return option + ABSOLUTE.sub(_name, rest)


def _name(match: re.Match[str]) -> str:
    path = match[0]
    if not path.endswith((".yaml", ".yml")):
        return PATH
    return f"configs/{path.rpartition('/configs/')[2]}" if "/configs/" in path else RECIPE
