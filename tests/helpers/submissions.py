"""Runs of TSM with 1, 8 and 32 cards that never took place, which AI-Rank would accept."""

from pathlib import Path

from tests.helpers.journals import full_begin, full_load, write_journal
from tests.helpers.paths import ROOT
from zoo.config import loader
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options

TRAIN, VAL = 234_619, 19_761
SECONDS = {1: 8000.0, 8: 1000.0, 32: 260.0}  # per epoch
ACCURACIES = (0.6, 0.7123, 0.7090)  # the second epoch reaches the target
GIVEN = {
    "submitter": "ACME",
    "hardware_type": "datacenter",
    "host_storage_type": "SSD",
}


def events(cards, accuracies=ACCURACIES, changes=None, seconds=None):
    """Return a journal: three epochs, each of SECONDS, and the end a quarter of a second later."""
    sizes = {"train_samples": TRAIN, "val_samples": VAL}
    begin = full_begin(cards=cards, nodes=-(-cards // 8), batch=16, **sizes, **(changes or {}))
    per_epoch = seconds or SECONDS[cards]
    evals = [
        {
            "event": "eval",
            "time": 100 + per_epoch * epoch,
            "step": 1000 * epoch,
            "epoch": float(epoch),
            "accuracy": accuracy,
            "seconds": 10.0,
        }
        for epoch, accuracy in enumerate(accuracies, 1)
    ]
    last = {"event": "end", "time": 100.25 + per_epoch * len(evals), "step": 3000, "epoch": float(len(evals))}
    # An AI-Rank log has stamps of ten digits.
    return shifted([full_load(train_samples=TRAIN), begin, *evals, last])


def shifted(found, by=1_700_000_000.0):
    return [
        {**event, "time": event["time"] + by, **({"at": event["at"] + by} if "at" in event else {})} for event in found
    ]


def write_run(folder, found, recipe="configs/tsm_k400.yaml", overrides=()):
    """Write a run: its journal and its resolved recipe."""
    path = write_journal(Path(folder), found)
    (Path(folder) / "config.yaml").write_text(recipe_text(recipe, overrides, path), encoding="utf-8")
    return path


def recipe_text(recipe, overrides, out):
    return loader.render(
        resolve_recipe(Options(str(ROOT / recipe), [*overrides, f"out={out}", "data.root=/data/k400"])).resolved
    )


def write_scales(folder, cards=(1, 8, 32), **changes):
    """Write a run for every number of cards; return cards -> folder."""
    return {count: write_run(Path(folder) / f"run{count}", events(count, **changes)) for count in cards}
