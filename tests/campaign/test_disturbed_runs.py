"""Campaigns against training runs and of long reading: short parts of them, and faults that they notice."""

from pathlib import Path

import pytest

from tests.campaign import kills, power_cut, soak
from tests.campaign.cut_at import LOST, MIXED

SAVING = kills.KINDS.index("PyTorch, saving")
READS_FROM_THE_START = (
    "import zoo.run.session as session; original = session.open_training; session.open_training = "
    "lambda data, seed, batch, first, *more: original(data, seed, batch, 0, *more)"
)
FOLLOWS_LINKS = (
    "import os; from zoo.data import durable; durable.fresh = lambda path, flags: os.open(path, flags, 0o666)"
)
KEEPS_DESCRIPTORS = (
    "import zoo.data.stream as stream; original, kept = stream.Stream.close, []; stream.Stream.close = "
    "lambda self: (kept.append(open('/dev/null')), original(self))[1]"
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
def test_a_link_that_is_written_through_is_noticed(folder: Path) -> None:
    trial = kills.trial(SAVING, folder, kills=1, fault=FOLLOWS_LINKS)
    assert any("a link in the folder of the run was written through" in line for line in trial.failures)


@pytest.mark.slow
def test_a_resume_that_reads_other_samples_is_noticed(folder: Path) -> None:
    trial = kills.trial(SAVING, folder, kills=3, fault=READS_FROM_THE_START)
    assert any("update.safetensors differs" in line for line in trial.failures)


@pytest.mark.slow
def test_a_run_goes_on_after_power_cuts(folder: Path) -> None:
    trial = power_cut.trial(power_cut.KINDS.index(MIXED), folder, cuts=2)
    assert (trial.count, trial.failures) == (2, [])


@pytest.mark.slow
def test_what_is_not_synced_is_noticed(folder: Path) -> None:
    fault = "from zoo.data import durable; durable.sync_folder = lambda folder: None"
    trial = power_cut.trial(power_cut.KINDS.index(LOST), folder, cuts=20, fault=fault, resumes=False)
    assert any("the newest whole checkpoint is that" in line for line in trial.failures)


@pytest.mark.slow
@pytest.mark.parametrize("kind, count", [(soak.IMAGES, 800), (soak.CYCLES, 3)])
def test_reading_leaves_nothing_behind(folder: Path, kind: str, count: int) -> None:
    assert soak.trial(soak.KINDS.index(kind), folder, count).failures == []


@pytest.mark.slow
def test_what_reading_keeps_is_noticed(folder: Path) -> None:
    trial = soak.trial(soak.KINDS.index(soak.CYCLES), folder, 6, workers=0, fault=KEEPS_DESCRIPTORS)
    assert any("descriptors" in line for line in trial.failures)
