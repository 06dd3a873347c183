"""Demo sets on disk: complete or absent, and never mixed up with other data."""

import json
import os
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from zoo.data.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")
Recipe = dict[str, Any]  # settings that the content of a set depends on, stored in a JSON file inside it


def write(root: str, name: str, recipe: Recipe, content: str, fill: Callable[[str], None]) -> None:
    """Generate a demo set in a temporary folder and rename it, so that `root` is always complete.

    Args:
        name: Name of the set; the recipe is stored in <name>.json.
        content: What is generated, for the message to the user, such as `240 small JPEG files`.
        fill: Writes the files of the set into the folder that it is given.
    """
    print(f"making the demo set in {root}: {content} ...", flush=True)
    temporary = f"{root.rstrip('/')}.making-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary)
    try:
        fill(temporary)
        with open(os.path.join(temporary, f"{name}.json"), "w", encoding="utf-8") as file:
            json.dump(recipe, file)
        os.rename(temporary, root)
    except OSError:
        if not os.path.isdir(root):  # otherwise another process was faster and wrote the same bytes
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def map_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call a function on all items with as many threads as processors, and return the results in order."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def check(root: str, name: str, recipe: Recipe) -> None:
    """Check that a folder contains the set of this recipe.

    Raises:
        UserError: It contains something else.
    """
    try:
        with open(os.path.join(root, f"{name}.json"), encoding="utf-8") as file:
            stored = json.load(file)
    except (OSError, ValueError):
        raise UserError(
            f"{root} is not a demo set of this program (no readable {name}.json); "
            "choose another folder with -o data.root=FOLDER"
        ) from None
    if stored != recipe:
        raise UserError(
            f"{root} contains a demo set with other settings ({stored}, expected {recipe}); "
            "remove it or choose another folder with -o data.root=FOLDER"
        )
