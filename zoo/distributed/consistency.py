"""That all processes of a run do the same: what must be equal on every rank, and who they are."""

import hashlib
import json
import socket
from pathlib import Path
from typing import Any

from data.errors import UserError
from zoo.config import loader
from zoo.distributed.control_group import Group
from zoo.trainer.protocol import Trainer

ROOT = Path(__file__).resolve().parents[2]
OWN = ("device", "out")  # keys of a recipe that may differ from rank to rank


def assert_same(group: Group, what: str, value: Any) -> None:
    """Raises UserError on every rank, naming the ranks whose value is not that of rank 0."""
    values = group.all_gather([value, socket.gethostname()])
    others = [f"rank {rank} ({host}): {other}" for rank, (other, host) in enumerate(values) if other != values[0][0]]
    if others:
        raise UserError(
            f"{what} is not the same on all processes.\n  rank 0 ({values[0][1]}): {values[0][0]}\n  "
            + "\n  ".join(others)
        )


def assert_same_recipe(group: Group, resolved: loader.Entries) -> None:
    """Raises UserError naming the keys that differ."""
    mine = {key: str(entry.value) for key, entry in resolved.items() if key not in OWN}
    recipes = group.all_gather(mine)
    for rank, other in enumerate(recipes):
        differing = sorted(key for key in {*recipes[0], *other} if recipes[0].get(key) != other.get(key))
        if differing:
            lines = [f"{key}: {recipes[0].get(key)} on rank 0, {other.get(key)} on rank {rank}" for key in differing]
            raise UserError("the recipe is not the same on all processes:\n  " + "\n  ".join(lines))


def code_version() -> str:
    """A digest over the sources, to tell two copies of this project apart."""
    digest = hashlib.md5()
    for path in sorted([ROOT / "train.py", *(ROOT / "zoo").rglob("*.py"), *(ROOT / "data").rglob("*.py")]):
        digest.update(json.dumps([path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")]).encode())
    return digest.hexdigest()


def describe_ranks(group: Group, device: str, framework: str) -> list[dict[str, str]]:
    """host, device and framework of every rank."""
    return group.all_gather({"host": socket.gethostname(), "device": device, "framework": framework})


def nonfinite_report(group: Group, trainer: Trainer) -> str:
    """What is not finite on any rank, for a person."""
    found = sorted(set(group.all_gather(trainer.nonfinite_report())))
    return "; ".join(text for text in found if text != "all finite") or "all finite"
