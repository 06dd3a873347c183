"""The table of all faults in docs/mutants.md."""

from collections.abc import Sequence

from tests.mutants.fault import SHARED, Fault
from tests.mutants.jobs import FRAMEWORKS, Result
from tests.mutants.proofs import NO_RESULT, key_of, misses

PAGE = "docs/mutants.md"
TITLES = {"torch": "PyTorch", "paddle": "PaddlePaddle", "mindspore": "MindSpore", SHARED: "Shared code"}
INTRODUCTION = """# Planted faults: what the tests and `tools/compare.py` notice

Each row is a slip that a person may make in porting a model: a replacement in one place of one file, planted in a copy
of the repository. `tests/mutants` holds the list. The unit test of the row must fail then, and pass without the fault.
Where the mathematics of one framework changes, the last column says what the comparison reports first:

```
python -m tests.mutants.run              # plants every fault and runs its unit test: about three minutes
python -m tests.mutants.run --compare    # compares the proofs with and without each fault: half an hour
python -m tests.mutants.run --table      # writes this page from the results
```

Both continue where an interrupted run stopped. Faults in shared code are the same in all frameworks: a comparison
cannot notice them, so the unit tests must. "no" in the last column: neither can it notice what only happens with
several processes, with overflows or in predictions with options.
"""


def page(faults: Sequence[Fault], results: dict[str, Result]) -> str:
    """Return the page.

    Args:
        faults: all of them.
        results: of the comparison, by proofs.key_of; a fault without one has an empty cell.
    """
    compared = [fault for fault in faults if key_of(fault) in results]
    silent, unnamed, _ = misses(compared, results)
    summary = (
        f"{len(faults)} faults. Of the {len(compared)} that were compared, {len(compared) - len(silent)} are reported, "
        f"and of {len(compared) - len(silent) - len(unnamed)} the file is named.\n"
    )
    sections = [section(name, [fault for fault in faults if fault.framework == name], results) for name in FRAMEWORKS]
    return "\n".join([INTRODUCTION, summary, *sections])


def section(framework: str, faults: Sequence[Fault], results: dict[str, Result]) -> str:
    is_compared = framework != SHARED
    head = ["fault", "file", "unit test"] + ["the comparison's first finding"] * is_compared
    rows = [head, ["---"] * len(head)]
    rows += [row(fault) + [cell(fault, results)] * is_compared for fault in faults]
    return "\n".join([f"## {TITLES[framework]}", "", *("| " + " | ".join(cells) + " |" for cells in rows), ""])


def row(fault: Fault) -> list[str]:
    path, _, name = fault.killer.partition("::")
    return [fault.name, f"`{fault.file}`", f"`{name}` in `{path}`" if name else f"`{path}`"]


def cell(fault: Fault, results: dict[str, Result]) -> str:
    if not fault.recipe:
        return "no"
    result = results.get(key_of(fault), NO_RESULT)
    if result["outcome"] == "error":
        return f"the framework stops: {escaped(result['message'])}"
    if result["outcome"] != "reported":
        return {"silent": "**not reported**"}.get(result["outcome"], "")
    where = "" if result["named"] else " (another file)"
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
        elif line.startswith("| ") and not line.startswith(("| fault |", "| --- |")):
            keys.append(f"{framework}: {line.split(' | ')[0][2:]}")
    return keys
