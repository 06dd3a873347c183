"""The table of all faults in docs/parity.md."""

from collections.abc import Sequence

from tests.mutants.fault import SHARED, Fault
from tests.mutants.jobs import FRAMEWORKS, Result
from tests.mutants.proofs import NO_RESULT, key_of

PAGE = "docs/parity.md"
NOT_COMPARED, SILENT, STOPS, ANOTHER_FILE = "no", "**not reported**", "the framework stops", " (another file)"
TITLES = {"torch": "PyTorch", "paddle": "PaddlePaddle", "mindspore": "MindSpore", SHARED: "Shared code"}
INTRODUCTION = """# Planted faults: what the tests and `tools/compare.py` notice

Each row is a slip that a person may make in porting a model: a replacement in one place of one file, planted in a copy
of the repository. `tests/mutants` holds the list. The unit test of the row must fail then, and pass without the fault.
Where the mathematics of one framework changes, the last column says what the comparison reports first:

```
python -m tests.mutants.run              # plants every fault and runs its unit test: about three minutes
python -m tests.mutants.run --compare    # compares the proofs with and without each fault: half an hour
python -m tests.mutants.run --table      # writes the results into this page
```

Both continue where an interrupted run stopped. Faults in shared code are the same in all frameworks: a comparison
cannot notice them, so the unit tests must. "no" in the last column: neither can it notice what only happens with
several processes, with overflows or in predictions with options.
"""


def page(faults: Sequence[Fault], results: dict[str, Result], before: str = "") -> str:
    """Return the page.

    Args:
        faults: all of them.
        results: of the comparison, by proofs.key_of.
        before: the page as it was, whose cells stay where there is no result; empty without one.
    """
    cells = dict(zip(names(before), map(last_cell, rows_of(before))))
    cells = {fault.key: cell(fault, results) or cells.get(fault.key, "") for fault in faults}
    compared = [text for text in cells.values() if text not in ("", NOT_COMPARED)]
    reported = [text for text in compared if text != SILENT]
    unnamed = [text for text in reported if text.startswith(STOPS) or ANOTHER_FILE in text]
    summary = (
        f"{len(faults)} faults. Of the {len(compared)} that were compared, {len(reported)} are reported, "
        f"and of {len(reported) - len(unnamed)} the file is named.\n"
    )
    sections = [section(name, [fault for fault in faults if fault.framework == name], cells) for name in FRAMEWORKS]
    return "\n".join([INTRODUCTION, summary, *sections])


def section(framework: str, faults: Sequence[Fault], cells: dict[str, str]) -> str:
    is_compared = framework != SHARED
    head = ["fault", "file", "unit test"] + ["the comparison's first finding"] * is_compared
    rows = [head, ["---"] * len(head)]
    rows += [row(fault) + [cells[fault.key]] * is_compared for fault in faults]
    return "\n".join([f"## {TITLES[framework]}", "", *("| " + " | ".join(cells) + " |" for cells in rows), ""])


def row(fault: Fault) -> list[str]:
    path, _, name = fault.killer.partition("::")
    return [fault.name, f"`{fault.file}`", f"`{name}` in `{path}`" if name else f"`{path}`"]


def cell(fault: Fault, results: dict[str, Result]) -> str:
    """Return the finding on a fault, "" without a result."""
    if not fault.recipe or fault.framework == SHARED:
        return NOT_COMPARED
    result = results.get(key_of(fault), NO_RESULT)
    if result["outcome"] == "error":
        return f"{STOPS}: {escaped(result['message'])}"
    if result["outcome"] != "reported":
        return {"silent": SILENT}.get(result["outcome"], "")
    where = "" if result["named"] else ANOTHER_FILE
    return escaped(f"{result['what'].partition(' differs by')[0]}{where}; {result['cause']}".rstrip("; "))


def escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


def names(text: str) -> list[str]:
    """Return the names of the faults of a page, by framework and name."""
    keys, framework = [], ""
    by_title = {title: name for name, title in TITLES.items()}
    for line in text.splitlines():
        if line.startswith("## "):
            framework = by_title[line[3:]]
        elif is_row(line):
            keys.append(f"{framework}: {line.split(' | ')[0][2:]}")
    return keys


def rows_of(text: str) -> list[str]:
    """Return the rows of the faults of a page, in the order of their names."""
    return [line for line in text.splitlines() if is_row(line)]


def is_row(line: str) -> bool:
    return line.startswith("| ") and not line.startswith(("| fault |", "| --- |"))


def last_cell(row: str) -> str:
    return row.removesuffix(" |").rpartition(" | ")[2]
