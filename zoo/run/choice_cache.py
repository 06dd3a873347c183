"""Measured times of updates, kept in a file of the user's cache directory from one run to the next."""

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def path() -> Path:
    """Return the file: vision-zoo/choices.json in $XDG_CACHE_HOME, or in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vision-zoo" / "choices.json"


def read(facts: Mapping[str, Any], count: int) -> list[float] | None:
    """Return the seconds of an update in each mode; None if they were never measured, or the file is damaged.

    Args:
        facts: what the speed of an update depends on, of types that JSON can represent.
        count: number of modes.
    """
    entry = _entries().get(_key(facts))
    seconds = entry.get("seconds") if isinstance(entry, dict) else None
    if not isinstance(seconds, list) or len(seconds) != count:
        return None
    is_time = all(isinstance(value, float) and 0 < value < math.inf for value in seconds)
    return seconds if is_time else None


def add(facts: Mapping[str, Any], seconds: Sequence[float]) -> str | None:
    """Keep the seconds of an update in each mode; return a message for the user if that is impossible.

    The file is replaced as a whole. Of two runs that do so at the same time, one may lose its entry.
    """
    file = path()
    entries = {**_entries(), _key(facts): {"facts": dict(facts), "seconds": list(seconds)}}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, suffix=".writing", delete=False) as temporary:
            try:
                json.dump(entries, temporary, indent=1)
                temporary.flush()
                os.replace(temporary.name, file)
            except BaseException:
                os.unlink(temporary.name)
                raise
    except OSError as error:
        return f"{file}: {error.strerror}; the measurement is not kept, and the next run measures again"
    return None


def _entries() -> dict[str, Any]:
    """Return everything in the file; nothing if there is none, or if it is damaged."""
    try:
        entries = json.loads(path().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _key(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
