"""Short parts of the campaign of long reading, and faults that it notices."""

from pathlib import Path

import pytest

from tests.campaign import soak

KEEPS_BATCHES = (
    "import zoo.data.stream as stream; original, kept = stream.Stream.__next__, []; stream.Stream.__next__ = "
    "lambda self: (kept.append(bytearray(100_000)), original(self))[1]"
)
KEEPS_DESCRIPTORS = (
    "import zoo.data.stream as stream; original, kept = stream.Stream.close, []; stream.Stream.close = "
    "lambda self: (kept.append(open('/dev/null')), original(self))[1]"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a trial."""
    path = tmp_path / "trial"
    path.mkdir()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind, count", [(soak.IMAGES, 1600), (soak.CYCLES, 3)])
def test_reading_leaves_nothing_behind(folder: Path, kind: str, count: int) -> None:
    assert soak.trial(soak.KINDS.index(kind), folder, count).failures == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, count, fault, harm",
    [
        (soak.IMAGES, 8000, KEEPS_BATCHES, "growth of the parent (%)"),
        (soak.CYCLES, 6, KEEPS_DESCRIPTORS, "descriptors"),
    ],
)
def test_what_is_kept_is_noticed(folder: Path, kind: str, count: int, fault: str, harm: str) -> None:
    trial = soak.trial(soak.KINDS.index(kind), folder, count, workers=0, fault=fault)
    assert any(harm in line for line in trial.failures)
