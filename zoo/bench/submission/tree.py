"""The tree of a submission, from its runs: submitter/linux/{system_information.json, <model>/{code, data, log}}."""

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from zoo.bench.submission import rules, runs
from zoo.bench.submission.rules import Listed
from zoo.bench.submission.runs import PATH_KEYS, Run
from zoo.data.errors import UserError
from zoo.table import table
from zoo.templates import render

DEMO_FILE, DEMO_TITLE = "DEMO.md", "# A demo, not a submission"
SYSTEM = "linux"
FOLDER = Path(__file__).parent
SOURCES = {  # data.name -> where it is from, and its layout
    "kinetics": "Kinetics-400: https://github.com/cvdfoundation/kinetics-dataset. The folder `data.root` holds "
    "`train.list` and `val.list` with lines `relative/path.mp4 label`, or `train/<class>/*.mp4` and "
    "`val/<class>/*.mp4`.",
    "imagenet": "ImageNet (ILSVRC 2012): https://image-net.org/challenges/LSVRC/2012/. The folder `data.root` holds "
    "`train/<class>/*.JPEG` and `val/<class>/*.JPEG`.",
    "cityscapes": "Cityscapes: https://www.cityscapes-dataset.com, packages leftImg8bit_trainvaltest and "
    "gtFine_trainvaltest, unpacked to the folder `data.root`.",
    "faces": "Aligned face images of 112 x 112 pixels in the folder `data.root`: "
    "https://github.com/deepinsight/insightface/tree/master/recognition/_datasets_.",
}
FOLDER_OPTIONS = ("--out", "--resume")
# An absolute path, wherever a text has one; a slash within a word or of a URL begins none.
ABSOLUTE = re.compile(r"(?<![\w.~:/-])~?/[^\s/,\[\]()'\"][^,\[\]()'\"]*")
GLUED = re.compile(r"(-[a-z])(?=[^-=])(.+)", re.DOTALL)  # an option of one letter and its value
PATH, RECIPE = "PATH", "code/recipe.yaml"


class Plan(NamedTuple):
    files: dict[str, str]  # path in the tree -> text
    missing: list[str]  # what the runs lack to be submitted


def plan(scales: Mapping[int, Run], given: Mapping[str, Any]) -> Plan:
    """Make the files of a submission of runs of one model, by their number of cards.

    Args:
        given: fields of system_information.json from the command line, with `submitter`.
    """
    submitter = str(given["submitter"])
    if not re.fullmatch(r"[^/\\\0]+", submitter) or submitter.strip(". ") == "":
        raise UserError(f"--submitter: {submitter!r} cannot be the name of a folder")
    ordered = dict(sorted(scales.items()))
    first, last = next(iter(ordered.values())), list(ordered.values())[-1]
    model = first.begin["model"]
    listed = rules.LISTED.get(model)
    fields = rules.describe(last.begin, given)
    unknown = [name for name in rules.FIELDS if fields[name] is None]
    missing = [f"{rules.SYSTEM_FILE}: no {name}; give --{name.replace('_', '-')}" for name in unknown]
    for name in unknown:  # the values of a demo
        is_number = isinstance(rules.FIELDS[name], int)
        fields[name] = rules.NO_SIZE if name.endswith("_capacity") else 1 if is_number else rules.NOT_RECORDED
    missing += [f"{rules.SYSTEM_FILE}: {text}" for text in rules.problems(fields, bool(unknown))]
    if listed is None:
        titles = ", ".join(one.title for one in rules.LISTED.values())
        missing.append(f"AI-Rank lists no model {model}, but {titles}")
    missing += runs.missing(ordered, listed)
    base = f"{submitter}/{SYSTEM}"
    inside = f"{base}/{listed.folder if listed else model}"
    files = {
        f"{base}/{rules.SYSTEM_FILE}": rules.render(fields),
        f"{inside}/code/{rules.README}": readme(ordered, listed, missing),
        f"{inside}/code/recipe.yaml": recipe(first),
        f"{inside}/data/{rules.README}": data_note(first),
    }
    target = listed.target if listed and not missing else None
    for cards, run in ordered.items():
        files[f"{inside}/log/{rules.log_name(cards)}"] = "".join(f"{line}\n" for line in run.log(target))
    if missing:
        files[DEMO_FILE] = f"{DEMO_TITLE}\n\nIt lacks:\n\n" + "".join(f"- {line}\n" for line in missing)
    return Plan(files, missing)


def write(tree: str, files: Mapping[str, str]) -> None:
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
        if key not in PATH_KEYS:
            (sections.setdefault(section, {}) if section else sections)[name] = public(value)
    return yaml.safe_dump(sections, sort_keys=False, default_flow_style=None, allow_unicode=True)


def readme(runs: Mapping[int, Run], listed: Listed | None, incomplete: Iterable[str]) -> str:
    """Return code/README.md of runs with one recipe; incomplete: what a demo lacks to be a submission."""
    run = next(iter(runs.values()))
    begin, host = run.begin, run.begin["hosts"][0]
    framework = rules.FRAMEWORKS.get(begin["framework"], begin["framework"])
    versions = {framework: begin["framework_version"], "Python": host.get("python"), **(host.get("libraries") or {})}
    return render(
        FOLDER / "readme.md.jinja",
        title=listed.title if listed else begin["model"],
        framework=framework,
        incomplete=list(incomplete),
        source=_source(begin["data"]),
        settings=lambda section: _settings(run.recipe, section),
        begin=begin,
        recipe=run.recipe,
        weights=public(begin["weights"]),
        table=_table,
        target=listed and listed.target,
        commit=(begin.get("git") or {}).get("commit") or "unknown",
        versions=[(name, version) for name, version in versions.items() if version],
        variables=list((host.get("environment") or {}).items()),
        commands={cards: command(one) for cards, one in runs.items()},
        scales=[_scale(cards, one.begin) for cards, one in runs.items()],
    )


def data_note(run: Run) -> str:
    """Return the note on the data: where it is from, its size, and its checksum."""
    how = run.recipe.get("data.checksum", "as the program does by default")
    origin = _source(run.begin["data"])
    return render(FOLDER / "data.md.jinja", source=origin, begin=run.begin, checksum=run.checksum, how=how)


def _source(data: str) -> str:
    return SOURCES.get(data, f"The data set `{data}` is generated by the program on first use; nothing is downloaded.")


def command(run: Run) -> str:
    """Return the command that repeats a run: its arguments, through `zoo launch` where it had several processes."""
    arguments: list[str] = []
    before = ""
    for word in _train_arguments(list(map(str, run.begin["command"]))):
        is_value = before in FOLDER_OPTIONS and not word.startswith("-")
        if not is_value and word.split("=")[0] not in FOLDER_OPTIONS:
            arguments.append(_public_word(word))
        before = word
    hosts = run.begin["hosts"]
    if run.cards == 1:
        return f"zoo train {shlex.join(arguments)}"
    names = f" --hosts {','.join(f'n{i + 1}' for i in range(len(hosts)))}" if len(hosts) > 1 else ""
    return f"zoo launch {len(hosts)}x{run.cards // len(hosts)}{names} {shlex.join(arguments)}"


def _train_arguments(words: list[str]) -> list[str]:
    """Return what followed `zoo train`, `train.py` or, in a process of `zoo launch`, its own words."""
    match words:
        case [_, "train", *arguments] | [_, "launch", "--exec-rank", _, *arguments] | [_, *arguments]:
            return arguments
    return []


def _scale(cards: int, begin: Mapping[str, Any]) -> tuple[str, ...]:
    split = f"{begin['ranks']} x {begin['accumulate']} x {begin['batch']} = {begin['global_batch']}"
    return rules.log_name(cards), split, f"{begin['optimizer']['peak_lr']:.6g}", begin["compute"]


def _settings(recipe: Mapping[str, Any], section: str) -> str:
    prefix = section + "."
    names = [key for key in recipe if key.startswith(prefix) and key not in PATH_KEYS]
    pairs = [(key, public(recipe[key])) for key in names]
    return _table(("setting", "value"), pairs) if pairs else f"No settings of `{section}` are recorded."


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    return "\n".join(table([tuple(row) for row in rows], tuple(head), markdown=True))


def public(found: Any) -> Any:
    """Return a value of a recipe with PATH in place of absolute paths, in lists too."""
    if isinstance(found, list):
        return [public(entry) for entry in found]
    return ABSOLUTE.sub(PATH, found) if isinstance(found, str) else found


def _public_word(text: str) -> str:
    """Return a word of a command without the paths of its machine.

    A recipe of the folder configs/ is named in it, another one by its copy in the submission.
    """
    glued = GLUED.fullmatch(text)
    option, rest = glued.groups() if glued else ("", text)
    key, equals, value = rest.partition("=")
    if equals and key in PATH_KEYS:
        return f"{option}{key}=FOLDER"
    path = value if key.startswith("--") else rest
    if path.endswith((".yaml", ".yml")):
        _, folder, name = f"/{path}".rpartition("/configs/")
        return text.removesuffix(path) + (f"configs/{name}" if folder else RECIPE)
    return option + ABSOLUTE.sub(PATH, rest)
