"""Keys of recipes that have been renamed: refused in recipes of the user, translated in recipes of older runs."""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")

RENAMED_KEYS = {  # old -> new
    "train.patience": "train.straggler_timeout",
    "train.max_stuck": "train.max_consecutive_skips",
    "train.compress": "train.fp16_allreduce",
    "train.keep": "train.keep_checkpoints",
    "optim.clip_split": "optim.clip_sharded",
    "data.val_share": "data.val_fraction",
}


def translate(entries: Mapping[str, T]) -> dict[str, T]:
    """Return the entries of a recorded recipe under the present names of their keys."""
    return {RENAMED_KEYS.get(key, key): entry for key, entry in entries.items()}
