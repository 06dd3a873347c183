"""The tree of a submission: submitter/linux/{system_information.json, <model>/{code, data, log}}."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from zoo.bench.submission import readme, rules, runs
from zoo.bench.submission.runs import Run
from zoo.data.errors import UserError

DEMO_FILE, DEMO_TITLE = "DEMO.md", "# A demo, not a submission"
SYSTEM = "linux"


class Plan(NamedTuple):
    """Files to write.

    Attributes:
        files: path in the tree -> text.
        missing: what the runs lack to be submitted.
    """

    files: dict[str, str]
    missing: list[str]


def plan(scales: Mapping[int, Run], given: Mapping[str, Any], folder: str | None) -> Plan:
    """Make the files of a submission.

    Args:
        scales: number of cards -> run, of one model.
        given: fields of system_information.json from the command line, with `submitter`.
        folder: name of the model's folder; None for the model's own name.

    Raises:
        UserError: a name cannot be that of a folder.
    """
    ordered = dict(sorted(scales.items()))
    first, last = next(iter(ordered.values())), list(ordered.values())[-1]
    model = first.begin["model"]
    listed = rules.LISTED.get(model)
    fields = rules.describe(last.begin, given)
    unknown = [name for name in rules.FIELDS if fields[name] is None]
    missing = [f"{rules.SYSTEM_FILE}: no {name}; give --{name.replace('_', '-')}" for name in unknown]
    fields.update({name: _stand_in(name) for name in unknown})
    missing += [f"{rules.SYSTEM_FILE}: {text}" for text in rules.problems(fields, bool(unknown))]
    if listed is None:
        titles = ", ".join(one.title for one in rules.LISTED.values())
        missing.append(f"AI-Rank lists no model {model}, but {titles}")
    missing += runs.missing(ordered, listed)
    name = folder or (listed.folder if listed else model)
    if listed and not name.lower().startswith(listed.folder):
        missing.append(f"the folder {name} is not named after the model; begin it with {listed.folder}")
    base = f"{_folder(str(given['submitter']), '--submitter')}/{SYSTEM}"
    inside = f"{base}/{_folder(name, '--model')}"
    files = {
        f"{base}/{rules.SYSTEM_FILE}": rules.render(fields),
        f"{inside}/code/{rules.README}": readme.readme(ordered, listed, missing),
        f"{inside}/code/recipe.yaml": recipe(first),
        f"{inside}/data/{rules.README}": readme.data_note(first),
    }
    target = listed.target if listed and not missing else None
    for cards, run in ordered.items():
        files[f"{inside}/log/{rules.log_name(cards)}"] = "".join(f"{line}\n" for line in run.log(target))
    if missing:
        files[DEMO_FILE] = f"{DEMO_TITLE}\n\nIt lacks:\n\n" + "".join(f"- {line}\n" for line in missing)
    return Plan(files, missing)


def write(tree: str, files: Mapping[str, str]) -> None:
    """Write the files of a new tree.

    Raises:
        UserError: it exists already, or cannot be written.
    """
    try:
        os.makedirs(tree)
        for name, text in files.items():
            path = Path(tree, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except FileExistsError:
        raise UserError(f"--out {tree}: exists; name another folder, nothing is overwritten") from None
    except OSError as error:
        raise UserError(f"--out {tree}: {error.strerror}") from None


def recipe(run: Run) -> str:
    """Return the resolved recipe of a run as YAML, without the paths of its machine."""
    sections: dict[str, Any] = {}
    for key, value in run.recipe.items():
        section, _, name = key.rpartition(".")
        if key not in runs.PATH_KEYS:
            (sections.setdefault(section, {}) if section else sections)[name] = readme.public(value)
    return yaml.safe_dump(sections, sort_keys=False, default_flow_style=None, allow_unicode=True)


def _stand_in(name: str) -> Any:
    """Return the value of a field that is not known, for a demo."""
    if name.endswith("_capacity"):
        return rules.NO_SIZE
    return 1 if isinstance(rules.FIELDS[name], int) else rules.NOT_RECORDED


def _folder(name: str, option: str) -> str:
    if not re.fullmatch(r"[^/\\\0]+", name) or name.strip(". ") == "":
        raise UserError(f"{option}: {name!r} cannot be the name of a folder")
    return name
