"""What the files of a submission say of each other: machine and logs, and the logs of several scales."""

import filecmp
import json
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from zoo.bench.submission import rules
from zoo.bench.submission.submitted import Model, ModelLog

OTHER_SYSTEM = {"linux": r"windows", "windows": r"linux|ubuntu|centos|debian"}
MAX_PREPARATION = 7 * 86400  # seconds from load_data to test_begin


def system_problems(folder: Path, fields: dict[str, Any], models: list[Model]) -> list[str]:
    """List what system_information.json says that the folder or the logs contradict.

    Args:
        folder: of the system.
        fields: of the file, which is right in form.
        models: of the folder.
    """
    lines = []
    other = OTHER_SYSTEM.get(folder.name.lower())
    if other and re.search(other, fields["operating_system"], re.IGNORECASE):
        lines.append(f"field operating_system is {json.dumps(fields['operating_system'], ensure_ascii=False)[:80]}")
    cards = max((log.cards for model in models for log in model.logs if log.cards in rules.CARDS), default=0)
    per_node, present = fields["accelerators_per_node"], fields["accelerators_per_node"] * fields["number_of_nodes"]
    # Published files describe one machine beside the logs of 32 cards.
    needed = min(cards, rules.MAX_CARDS_PER_NODE)
    if present < needed:
        lines.append(f"{present} accelerators, but a log of {rules.log_name(cards)}")
    if per_node and fields["accelerator_name"] == "none":
        lines.append(f"{per_node} accelerators of the name none")
    return lines


def system_notes(folder: Path, fields: dict[str, Any]) -> list[str]:
    """List what a reader should know of system_information.json: another submitter than the folder is named after."""
    owner, name = folder.parent.name, fields["submitter"]
    return [] if owner.casefold() == name.casefold() else [f"field submitter is {name[:80]}, its folder {owner}"]


def log_problems(model: Model) -> list[str]:
    """List the logs of a model that are copies of each other."""
    return [
        f"log/{second.path.name}: the same file as {first.path.name}"
        for first, second in combinations(model.logs, 2)
        if first.cards != second.cards and _is_copy(first.path, second.path)
    ]


def log_notes(model: Model) -> list[str]:
    """List what a reader should know of the logs of a model."""
    lines = [f"log/{name}: not read, its name does not end in .log" for name in model.ignored]
    for entry in model.logs:
        load, begin = entry.log.first("load_data"), entry.log.first("test_begin")
        if load and begin and begin.time - load.time > MAX_PREPARATION:
            days = round((begin.time - load.time) / 86400)
            lines.append(f"log/{entry.path.name}: load_data is {days} days before test_begin")
    speeds = [(entry, speed) for entry in model.logs if (speed := _speed(entry)) is not None]
    for (few, slow), (many, fast) in pairwise(speeds):
        if few.cards < many.cards and fast < slow:
            lines.append(f"log/{many.path.name}: avg_ips is below that of {few.path.name}")
    return lines


def _is_copy(first: Path, second: Path) -> bool:
    try:
        return filecmp.cmp(first, second, shallow=False)
    except OSError:
        return False


def _speed(entry: ModelLog) -> Any:
    event = entry.log.first("avg_ips")
    return event.value if event else None
