"""Weights by name, and checkpoints on the Hugging Face Hub: pulled, or pushed with a card made from the journal."""

import hashlib
import importlib
import json
import os
import re
import shutil
import tempfile
from typing import Any

from zoo.config import loader
from zoo.data import durable, extras
from zoo.data.errors import UserError, parsing, similar_name
from zoo.data.host import home
from zoo.logs import journal
from zoo.run.recorded_recipe import read_recipe
from zoo.run.request import FIND
from zoo.table import table
from zoo.weights import files, recorded
from zoo.weights.files import RECORD
from zoo.weights.recorded import AVERAGE, MODEL

SCHEME = "hf://"
ADDRESS = re.compile(rf"{SCHEME}([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
REMEDY = "check the address, the network and, for what is private or yours, `hf auth login`"
CARD = """\
---
library_name: vision-zoo
license: {license}
tags: [{model}, {task}]
---
# {name}

A {model}, trained in {framework} by the recipe {recipe} of vision-zoo to step {step}.

{metrics}

```
zoo predict FILE --weights {address}
```

License of the code: Apache-2.0. License of the weights: {license}. The data ({data}) have that of their publisher.

## Recipe

```yaml
{text}```
"""


def resolve(name: str) -> str:
    """Return the path of weights: the given one, or that of a name of published ones or an address, made ready."""
    if name.startswith(SCHEME):
        return pull(name)
    if os.path.lexists(name) or os.sep in name:
        return name
    from zoo.weights import registry  # which most runs do without

    if name in registry.table() or similar_name(name, registry.table()):
        return registry.prepare(registry.find(name))
    return name


def pull(address: str) -> str:
    """Return the folder of a checkpoint, of which the library downloads what its cache lacks."""
    repository, revision = _parse(address)
    with parsing(f"{address} cannot be read", REMEDY):
        path = _library().snapshot_download(repository, revision=revision, allow_patterns=[MODEL, AVERAGE, RECORD])
    missing = [name for name in (MODEL, RECORD) if not os.path.isfile(os.path.join(path, name))]
    if missing:
        raise UserError(f"{address} is no checkpoint that zoo weights push has written: it lacks {', '.join(missing)}")
    record, entries = read_recipe(path)
    kept = loader.without_paths(entries, FIND)
    return path if kept == entries else _copy(path, {**record, "recipe": loader.render(kept)})


def _copy(path: str, record: dict[str, Any]) -> str:
    """Return a folder of links to the weights in a folder, with another record."""
    text = json.dumps(record, indent=1)
    source = os.path.abspath(path)
    folder = home("weights", "hub", hashlib.sha256(f"{source}\n{text}".encode()).hexdigest()[:32])
    if os.path.isdir(folder):
        return folder
    with parsing(f"{folder} cannot be written", "set ZOO_HOME to another folder"):
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        made = tempfile.mkdtemp(dir=os.path.dirname(folder))
        for name in set(os.listdir(source)) & {MODEL, AVERAGE}:
            os.symlink(os.path.join(source, name), os.path.join(made, name))
        durable.write(os.path.join(made, RECORD), text.encode())
        try:
            os.rename(made, folder)
        except OSError:
            shutil.rmtree(made)
            if not os.path.isdir(folder):  # which another process has made
                raise
    return folder


def push(run: str, address: str, license_id: str, private: bool) -> str:
    """Copy a checkpoint, or the best one of a run, with a card to a repository, which is made if it is missing.

    Returns:
        The card.
    """
    repository, revision = _parse(address)
    path = os.path.realpath(recorded.resolve_pointer(run))
    if files.is_onnx(path):
        raise UserError(f"{run} is an exported model; push the checkpoint that it was exported from")
    record, entries = read_recipe(path)
    kept = {key: loader.Entry(entry.value, "recorded") for key, entry in loader.without_paths(entries, FIND).items()}
    names = [name for name in (MODEL, AVERAGE) if os.path.exists(os.path.join(path, name))]
    sizes, digests = (
        {name: value for name, value in record.get(key, {}).items() if name in names}
        for key in ("files", files.DIGEST_KEY)
    )
    pushed = {"step": record["step"], "classes": record["classes"], "recipe": loader.render(kept)}
    pushed |= {"files": sizes, files.DIGEST_KEY: digests}
    text = card(path, pushed, address, license_id)
    contents: dict[str, Any] = {name: os.path.join(path, name) for name in names}
    contents |= {RECORD: json.dumps(pushed, indent=1).encode(), "README.md": text.encode()}
    with parsing(f"{address} cannot be written", REMEDY):
        library = _library()
        added = [library.CommitOperationAdd(name, content) for name, content in contents.items()]
        hub = library.HfApi()
        hub.create_repo(repository, private=private, exist_ok=True)
        hub.create_commit(repository, added, commit_message=f"Step {record['step']}", revision=revision)
    return text


def card(path: str, record: dict[str, Any], address: str, license_id: str) -> str:
    """Return the card of a checkpoint, with the evaluation of its step from the journal of its run."""
    events = journal.history(os.path.dirname(os.path.dirname(path)))
    begin = journal.first(events, "begin") or {}
    found = [event for event in journal.named(events, "eval") if event["step"] == record["step"]]
    values = {key: value for key, value in (found[-1] if found else {}).items() if isinstance(value, float)}
    rows = [(key, f"{values[key]:.4f}", begin["protocol"]) for key in (begin.get("metric"), "loss") if key in values]
    entries = loader.parse_recorded(record["recipe"], RECORD)
    return CARD.format(
        name=_parse(address)[0].partition("/")[2],
        metrics="\n".join(table(rows, ("metric", "value", "protocol"), markdown=True)) if rows else "Not evaluated.",
        model=entries["model.name"].value,
        task=begin.get("task", "vision"),
        framework=entries["framework"].value,
        recipe=begin.get("recipe", "below"),
        step=record["step"],
        data=entries["data.name"].value,
        address=address,
        license=license_id,
        text=record["recipe"],
    )


def _parse(address: str) -> tuple[str, str | None]:
    """Return repository and revision of an address. Raises UserError if it is none."""
    found = ADDRESS.fullmatch(address)
    if not found:
        raise UserError(f"{address}: expected {SCHEME}OWNER/NAME, perhaps with @REVISION")
    return found[1], found[2]


def _library() -> Any:
    with extras.named():
        return importlib.import_module("huggingface_hub")
