"""Files and folders that a power cut does not undo."""

import os
from pathlib import Path

import pytest

from zoo.data import durable


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were synced, in their order."""
    paths: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: paths.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    return paths


def test_a_file_is_synced_before_it_has_its_name_and_the_folder_after(tmp_path: Path, synced: list[str]) -> None:
    durable.replace(str(tmp_path / "file"), b"new", str(tmp_path / ".file"))
    assert (tmp_path / "file").read_bytes() == b"new" and os.listdir(tmp_path) == ["file"]
    assert synced == [str(tmp_path / ".file"), str(tmp_path)]


def test_a_file_that_cannot_be_written_keeps_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        durable.replace(str(tmp_path / "file"), b"new", str(tmp_path / ".file"))
    assert (tmp_path / "file").read_bytes() == b"old"


def test_each_new_folder_is_synced_in_the_one_above(tmp_path: Path, synced: list[str]) -> None:
    durable.make_folders(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").is_dir() and synced == [str(tmp_path), str(tmp_path / "a")]
    durable.make_folders(str(tmp_path / "a"))
    assert len(synced) == 2
