"""Renamed keys: refused in recipes of the user, translated in the recipes that runs and checkpoints have recorded."""

import re
import shutil
import sys

import pytest
import yaml

from tests.helpers.paths import GOLDEN, ROOT
from tests.helpers.training import TRAIN, events, run
from zoo.commands import train
from zoo.config import loader
from zoo.config.loader import RENAMED_KEYS
from zoo.data.demo import portraits
from zoo.data.errors import UserError
from zoo.run.recipe import resolve_recipe
from zoo.run.request import FIND, Options

OLD_RUN = GOLDEN / "old_run"
RECIPE = str(ROOT / "configs" / "arcface_demo.yaml")


@pytest.fixture
def old_run(tmp_path):
    """Copy of a run of version 0.1.0, without checkpoints."""
    return shutil.copytree(OLD_RUN, tmp_path / "run")


@pytest.mark.parametrize("old, new", RENAMED_KEYS.items())
def test_an_old_key_in_a_recipe_is_refused_with_its_line(tmp_path, old, new):
    section, key = old.split(".")
    path = tmp_path / "r.yaml"
    path.write_text(f"base: {RECIPE}\n{section}:\n  {key}: 1\n")
    message = f"{path}:3: {old} was renamed to {new}"
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        train.read(train.parse(["-c", str(path)]))


@pytest.mark.parametrize("old, new", RENAMED_KEYS.items())
def test_an_old_key_in_an_override_is_refused(old, new):
    with pytest.raises(UserError, match=f"^-o {re.escape(f'{old}: {old} was renamed to {new}')}$"):
        train.read(train.parse(["-c", RECIPE, "-o", f"{old}=1"]))


def test_an_old_key_in_an_override_is_refused_when_resuming(old_run):
    with pytest.raises(UserError, match="train.keep was renamed to train.keep_checkpoints"):
        train.read(train.parse(["--resume", str(old_run), "-o", "train.keep=5"]))


def test_the_old_run_has_all_old_keys():
    recorded = yaml.safe_load((OLD_RUN / "config.yaml").read_text())
    assert [key for key in RENAMED_KEYS if key.split(".")[1] not in recorded[key.split(".")[0]]] == []


def test_a_recorded_recipe_is_translated(old_run):
    path = str(old_run / "config.yaml")
    values = {key: entry.value for key, entry in loader.read(path, recorded=True).items()}
    assert not values.keys() & RENAMED_KEYS.keys()
    assert [values[key] for key in RENAMED_KEYS.values()] == [300, 50, False, 3, True, 0.05]
    with pytest.raises(UserError, match="was renamed to"):
        loader.build(loader.read(path), FIND)


@pytest.mark.parametrize("recipe", [[], ["-c", RECIPE]])
def test_an_old_run_resumes_unchanged(old_run, recipe):
    """With its own recipe, or with that of the zoo, which must still be the same one."""
    request = train.read(train.parse([*recipe, "--resume", str(old_run)]))
    assert request.changed == [] and request.resume == str(old_run)
    assert request.config.train.keep_checkpoints == 3


def test_the_recipe_of_an_old_checkpoint(old_run):
    """checkpoint.json holds the text of config.yaml."""
    entries = loader.parse_recorded((old_run / "config.yaml").read_text(), "checkpoint.json")
    config, _ = loader.build(entries, FIND)
    assert config.optim.clip_sharded is True and config.data.val_fraction == 0.05


@pytest.mark.slow
def test_an_old_run_trains_on(old_run, tmp_path):
    sizes = {"identities": 16, "shots": 4, "val_identities": 4, "val_shots": 3, "val_pairs": 10}
    root = str(tmp_path / "portraits")
    portraits.make(portraits.Settings(root=root, size=48, **sizes))
    settings = {"data.root": root, **{f"data.{key}": value for key, value in sizes.items()}}
    settings |= {"train.log_every": 1, "train.global_batch": 64, "train.batch": 16}
    overrides = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    done = run([sys.executable, TRAIN, "--resume", str(old_run), "--max-steps", "2", *overrides])
    assert done.returncode == 0, done.stderr
    assert "changed since the run began: train.global_batch: None -> 64" in done.stdout
    last_train = [event for event in events(old_run) if event["event"] == "train"][-1]
    assert last_train["step"] == 2 and {"consecutive_skips", "data_wait_fraction"} <= last_train.keys()
    recorded = yaml.safe_load((old_run / "config.yaml").read_text())
    assert recorded["train"]["keep_checkpoints"] == 3 and "keep" not in recorded["train"]


def test_a_removed_key_is_refused_and_left_out_of_an_older_run():
    entries = {"data.worker_memory_gb": loader.Entry(8.0, "-o data.worker_memory_gb")}
    assert loader.translate(entries) == {}
    with pytest.raises(UserError, match="data.worker_memory_gb was removed"):
        resolve_recipe(Options("configs/tsm_demo.yaml", ["data.worker_memory_gb=8"]))


def test_older_runs_keep_the_resize_that_they_began_with():
    """Recipes that were recorded before data.resample existed have data.antialias alone."""
    before = {"data.antialias": loader.Entry(True, "recipe.yaml:3")}
    assert loader.translate(before)["data.resample"] == loader.Entry("exact", "recipe.yaml:3")
    chosen = {**before, "data.resample": loader.Entry("fast", "recipe.yaml:4")}
    assert loader.translate(chosen) == chosen and loader.translate({}) == {}
