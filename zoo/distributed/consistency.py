"""Checks that all ranks of a run agree, and reports gathered from all of them."""

import hashlib
import json
import socket
from typing import Any

from zoo import program
from zoo.config import loader
from zoo.data.errors import UserError
from zoo.distributed.control_group import Group
from zoo.trainer.protocol import Trainer

RANK_SPECIFIC_KEYS = ("device", "out")  # of a recipe; all others must be the same on all ranks


def assert_same(group: Group, name: str, value: Any) -> None:
    """Check that all ranks have the same value of something.

    Args:
        group: Process group; a collective call.
        name: Name of the value for the message, such as "the data set (its checksum)".
        value: Anything that JSON can represent.

    Raises:
        UserError: On every rank, listing the ranks whose value is not that of rank 0.
    """
    gathered = group.all_gather([value, socket.gethostname()])
    root_value, root_host = gathered[0]
    deviating = [
        f"rank {rank} ({host}): {rank_value}"
        for rank, (rank_value, host) in enumerate(gathered)
        if rank_value != root_value
    ]
    if deviating:
        lines = [f"rank 0 ({root_host}): {root_value}", *deviating]
        raise UserError(f"{name} is not the same on all processes.\n  " + "\n  ".join(lines))


def assert_same_recipe(group: Group, resolved: loader.Entries) -> None:
    """Check that all ranks have the same recipe. Raises UserError listing the keys that differ. A collective call."""
    recipes = group.all_gather(
        {key: str(entry.value) for key, entry in resolved.items() if key not in RANK_SPECIFIC_KEYS}
    )
    root = recipes[0]
    for rank, recipe in enumerate(recipes):
        differing = sorted(key for key in {*root, *recipe} if root.get(key) != recipe.get(key))
        if differing:
            lines = [f"{key}: {root.get(key)} on rank 0, {recipe.get(key)} on rank {rank}" for key in differing]
            raise UserError("the recipe is not the same on all processes:\n  " + "\n  ".join(lines))


def code_version() -> str:
    """Return a digest of the sources, which differs between two versions of this project."""
    digest = hashlib.md5()
    for path in sorted(program.source_files()):
        digest.update(
            json.dumps([path.relative_to(program.PACKAGE).as_posix(), path.read_text(encoding="utf-8")]).encode()
        )
    return digest.hexdigest()


def describe_ranks(group: Group, device: str, framework: str) -> list[dict[str, str]]:
    """Return host, device and framework of every rank. A collective call."""
    return group.all_gather({"host": socket.gethostname(), "device": device, "framework": framework})


def nonfinite_report(group: Group, trainer: Trainer) -> str:
    """Return the non-finite tensors of all ranks as one line for a message. A collective call."""
    reports = sorted(set(group.all_gather(trainer.nonfinite_report())))
    return "; ".join(report for report in reports if report != "all finite") or "all finite"
