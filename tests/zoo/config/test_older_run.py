"""A run of version 0.2.0 (commit 9da31087) resumes: the recipes that it and its checkpoints have recorded are valid."""

import shutil
import sys

import pytest
import yaml

from tests.helpers.paths import GOLDEN, ROOT
from tests.helpers.training import TRAIN, events, run
from zoo.commands import train
from zoo.config import loader
from zoo.data.demo import portraits
from zoo.run.request import FIND

OLD_RUN = GOLDEN / "old_run"
RECIPE = str(ROOT / "configs" / "arcface_demo.yaml")


@pytest.fixture
def old_run(tmp_path):
    """Copy of a run of version 0.2.0, without checkpoints."""
    return shutil.copytree(OLD_RUN, tmp_path / "run")


@pytest.mark.parametrize("recipe, changed", [([], []), (["-c", RECIPE], ["optim.warmup_offset: 0 -> None"])])
def test_an_old_run_resumes_unchanged(old_run, recipe, changed):
    """With its own recipe, or with that of the zoo, which must still be the same but for a default of equal meaning."""
    request = train.read(train.parse([*recipe, "--resume", str(old_run)]))
    assert request.changed == changed and request.resume == str(old_run)
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
    assert yaml.safe_load((old_run / "config.yaml").read_text())["train"]["global_batch"] == 64
