"""Sets that the program makes itself: whole or not there, and never mixed up with anything else."""

import json
import os
import shutil
from collections.abc import Callable
from typing import Any

from data.errors import UserError

Recipe = dict[str, Any]  # what a made set was made by, kept in a JSON file beside it


def write(root: str, name: str, recipe: Recipe, fill: Callable[[str], None]) -> None:
    """Let fill(folder) write the set aside, with the recipe in <name>.json, and rename the folder to `root`."""
    aside = f"{root.rstrip('/')}.making-{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    os.makedirs(aside)
    try:
        fill(aside)
        with open(os.path.join(aside, f"{name}.json"), "w", encoding="utf-8") as file:
            json.dump(recipe, file)
        os.rename(aside, root)
    except OSError:
        if not os.path.isdir(root):  # else another process was faster, with the same bytes
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check(root: str, name: str, recipe: Recipe) -> None:
    """Raises UserError unless the folder holds a set made by this recipe."""
    try:
        with open(os.path.join(root, f"{name}.json"), encoding="utf-8") as file:
            made = json.load(file)
    except (OSError, ValueError):
        raise UserError(
            f"{root} is not a demo set made by this program (no readable {name}.json); "
            "choose another folder with -o data.root=FOLDER"
        ) from None
    if made != recipe:
        raise UserError(
            f"{root} holds a demo set of other settings ({made}, wanted {recipe}); "
            "remove it or choose another folder with -o data.root=FOLDER"
        )
