"""A journal after a kill: complete entries stay, the rest is cut off together with its records."""

import json

import pytest

from zoo.data.errors import UserError
from zoo.data.preparing.journal import Journal, count_entries, read_entries


def fill(path, pack, entries):
    journal = Journal(str(path), pack and str(pack))
    for name, records in entries:
        journal.append({"name": name}, records)
    journal.commit()
    journal.close()


def test_entries_and_records(tmp_path):
    path, pack = tmp_path / "a.jsonl", tmp_path / "a.rec"
    fill(path, pack, [("x", [b"123", b"45"]), ("y", [])])
    fill(path, pack, [("z", [b"6"])])
    assert read_entries(str(path)) == [
        {"name": "x", "at": [0, 3], "end": 5},
        {"name": "y", "end": 5},
        {"name": "z", "at": [5], "end": 6},
    ]
    assert pack.read_bytes() == b"123456" and count_entries(str(path)) == 3
    assert count_entries(str(tmp_path / "none")) == 0


def test_without_a_pack(tmp_path):
    fill(tmp_path / "a.jsonl", None, [("x", []), ("y", [])])
    assert read_entries(str(tmp_path / "a.jsonl")) == [{"name": "x"}, {"name": "y"}]


@pytest.mark.parametrize("cut", range(1, 60))
def test_every_cut_of_the_journal(tmp_path, cut):
    path, pack = tmp_path / "a.jsonl", tmp_path / "a.rec"
    fill(path, pack, [("x", [b"12"]), ("y", [b"34"])])
    path.write_bytes(path.read_bytes()[:-cut])
    journal = Journal(str(path), str(pack))
    complete = sum(line.endswith("}\n") for line in path.read_text().splitlines(keepends=True))
    assert (journal.count, journal.end) == (complete, 2 * complete)
    assert pack.read_bytes() == b"1234"[: 2 * complete]
    journal.close()


def test_a_pack_that_is_shorter_than_the_journal_says(tmp_path):
    """Some file systems forget synced data when the power fails."""
    path, pack = tmp_path / "a.jsonl", tmp_path / "a.rec"
    fill(path, pack, [("x", [b"12"]), ("y", [b"34"])])
    pack.write_bytes(b"123")
    fill(path, pack, [("z", [b"9"])])
    assert [entry["name"] for entry in read_entries(str(path))] == ["x", "z"] and pack.read_bytes() == b"129"


def test_lines_that_are_no_entries(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps({"name": "x"}).encode() + b"\n\0\0\0\n{}\n")
    fill(path, None, [("y", [])])
    assert read_entries(str(path)) == [{"name": "x"}, {"name": "y"}]


def test_a_full_disk(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    journal = Journal(str(tmp_path / "a.jsonl"), None)
    monkeypatch.setattr(Journal, "_write", staticmethod(full))
    journal.append({"name": "x"}, [])
    with pytest.raises(UserError, match="a.jsonl: cannot be written .No space left on device.; make room"):
        journal.commit()
