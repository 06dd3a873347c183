"""The recipe of a run: from a file, a run or weights, with the changes of a command line."""

import os
from dataclasses import replace

from zoo.config import loader
from zoo.config.loader import Entry
from zoo.config.schema import Optim
from zoo.data.errors import Option, UserError, natural
from zoo.run import folder, recorded_recipe
from zoo.run.checkpoint import latest, load_record
from zoo.run.request import FIND, NEWEST, Options, Request
from zoo.weights.files import is_onnx


def resolve_recipe(options: Options) -> Request:
    weights = _made_ready(options.weights) if options.weights else None
    recipe, entries = _read_recipe(options.config, weights, options.resume)
    entries = loader.merge(entries, _changes(options))
    run = _run_to_resume(options.resume, options.out, entries, recipe)
    if run:
        entries["out"] = Entry(run, Option("--resume"))
    if options.global_batch is not None:
        samples = _global_batch(options.global_batch, entries, run)
        entries["train.global_batch"] = Entry(samples, Option("--global-batch"))
    began = _recorded_recipe(run) if run else {}
    named = entries["weights"].value if "weights" in entries else None
    if named != options.weights:  # a run that goes on has its weights in its checkpoint
        weights = _made_ready(str(named)) if named and not (run and latest(run)) else named
    taken = recorded_recipe.recorded_settings(entries, began, weights, options.eval_only and run is None)
    settings, resolved = loader.build({**entries, **taken}, FIND)
    settings = replace(settings, weights=weights)  # `resolved` has what the user has named, which any host can read
    if is_onnx(weights):
        from zoo.run import exported  # as listeners, which most runs do without

        exported.check_settings(weights, resolved)
    if settings.listeners:
        from zoo.logs import listeners

        listeners.check_names(settings.listeners)
    changed = folder.check_same(began, resolved) if began else []
    notes = recorded_recipe.taken_note(taken, entries, settings)
    return Request(settings, resolved, recipe, run, changed, notes, options.eval_only)


def _made_ready(weights: str) -> str:
    """Return the path of weights, which may be a name or an address."""
    from zoo.run import hub  # which runs from random weights do without

    return hub.resolve(weights)


def _changes(options: Options) -> loader.Entries:
    if options.amp and options.exact:
        raise UserError("--exact: computes in fp64, and --amp in 16 bits; leave one of them out")
    given = {key: getattr(options, key) for key in ("framework", "device", "seed", "out", "weights")}
    changes = {key: Entry(value, Option(f"--{key}")) for key, value in given.items() if value is not None}
    for name, key, value in (
        ("amp", "train.precision", "amp"),
        ("exact", "train.precision", "exact"),
        ("deterministic", "train.deterministic", True),
    ):
        if getattr(options, name):
            changes[key] = Entry(value, Option(f"--{name}", True))
    return {**changes, **loader.overrides(options.overrides)}


def _read_recipe(config: str | None, weights: str | None, resume: str | None) -> tuple[str, loader.Entries]:
    """Return name and entries of a recipe: a file, or that of the run to resume or of the checkpoint to start from."""
    if config:
        return os.path.splitext(os.path.basename(config))[0], loader.read(config)
    if resume and resume != NEWEST:
        run = folder.existing(resume, "")
        if not (entries := _recorded_recipe(run)):
            raise UserError(f"{run}: has no {folder.RECIPE} and no checkpoint; name the recipe of the run with -c")
        return os.path.splitext(folder.RECIPE)[0], entries
    if weights:
        return recorded_recipe.repeat(weights)
    raise UserError("no recipe: name one with -c, for example -c configs/tsm_demo.yaml")


def _recorded_recipe(run: str) -> loader.Entries:
    """Return the recipe of a run, or else that of its newest checkpoint; empty without either."""
    path = os.path.join(run, folder.RECIPE)
    if os.path.exists(path):
        return loader.read(path)
    newest = latest(run)
    return recorded_recipe.read_recipe(newest)[1] if newest else {}


def _global_batch(requested: str, entries: loader.Entries, resume: str | None) -> int:
    if requested != "keep":
        samples = natural(requested)
        if not samples:
            raise UserError(f"--global-batch: expected a number of samples or `keep`, got {requested}")
        return samples
    path = latest(resume) if resume else None
    if path:
        return load_record(path)["global_batch"]
    base_batch = entries["optim.base_batch"].value if "optim.base_batch" in entries else Optim.base_batch
    if base_batch is None:
        raise UserError("--global-batch: keep: the recipe has no optim.base_batch; give a number of samples")
    return base_batch


def _run_to_resume(resume: str | None, out: str | None, entries: loader.Entries, recipe: str) -> str | None:
    """Return the folder of the run to continue, None to start a new one."""
    if resume is None:
        return None
    named = entries["out"].value if "out" in entries else None
    if resume != NEWEST:
        if out and os.path.realpath(out) != os.path.realpath(resume):
            raise UserError(Option("--resume", "DIR"), " continues in DIR; leave out ", Option("--out"))
        return folder.existing(resume, recipe)
    if named:
        return named if folder.is_run(named) else None
    return folder.existing(None, recipe)
