"""Campaigns against training runs: short parts of them, and faults that they notice."""

import json
import shutil
from pathlib import Path

import pytest

from tests.campaign import kills, power_cut
from tests.campaign.training import tiny
from tests.campaign.training.comparison import differences
from tests.campaign.training.power import LOST, MIXED
from tests.campaign.training.tiny import Setup

SAVING = kills.KINDS.index("PyTorch, saving")
READS_FROM_THE_START = (
    "import zoo.run.session as session; original = session.open_training; session.open_training = "
    "lambda data, seed, batch, first, *more: original(data, seed, batch, 0, *more)"
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what trials share."""
    return tmp_path_factory.mktemp("campaign")


@pytest.fixture
def folder(kept: Path) -> Path:
    path = kept / f"trial-{len(list(kept.iterdir()))}"
    path.mkdir()
    return path


@pytest.mark.slow
def test_a_killed_run_ends_like_an_undisturbed_one(folder: Path) -> None:
    trial = kills.trial(SAVING, folder, kills=2)
    assert (trial.count, trial.failures) == (2, [])


@pytest.mark.slow
def test_a_resume_that_reads_other_samples_is_noticed(folder: Path) -> None:
    trial = kills.trial(SAVING, folder, kills=1, fault=READS_FROM_THE_START)
    assert trial.count == 1 and any("update.safetensors differs" in line for line in trial.failures)


@pytest.mark.slow
def test_a_run_goes_on_after_power_cuts(folder: Path) -> None:
    trial = power_cut.trial(power_cut.KINDS.index(MIXED), folder, cuts=2)
    assert (trial.count, trial.failures) == (2, [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault, harm",
    [
        ("from data import durable; durable.sync_folder = lambda folder: None", "the newest whole checkpoint is that"),
        ("from zoo.logs.journal import Journal; Journal.sync = lambda journal: None", "the losses of steps"),
    ],
)
def test_what_is_not_synced_is_noticed(folder: Path, fault: str, harm: str) -> None:
    trial = power_cut.trial(power_cut.KINDS.index(LOST), folder, cuts=20, fault=fault, resumes=False)
    assert any(harm in line for line in trial.failures)


@pytest.mark.slow
def test_every_difference_is_named(kept: Path, folder: Path) -> None:
    undisturbed = tiny.reference(Setup("torch"), kept).folder
    run = folder / "run"
    shutil.copytree(undisturbed, run, symlinks=True)
    assert differences(run, undisturbed) == []
    lines = (run / "events.jsonl").read_text().splitlines()
    doubled, lost = (next(line for line in lines if json.loads(line)["event"] == name) for name in ("save", "eval"))
    (run / "events.jsonl").write_text("\n".join(line for line in [doubled, *lines] if line != lost) + "\n")
    (run / "checkpoints/.writing-00000013").mkdir()
    (run / "checkpoints/last").unlink()
    (run / "checkpoints/last").symlink_to("step-00000011")
    file = run / "checkpoints/step-00000012/update.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    (run / "airank.log").unlink()
    found = differences(run, undisturbed)
    assert [line.split(":")[0] for line in found] == [
        "lost",
        "added",
        "left over",
        "missing",
        "last is step-00000011 instead of step-00000012",
        "checkpoints/step-00000012/update.safetensors differs",
        "airank.log",
    ]
