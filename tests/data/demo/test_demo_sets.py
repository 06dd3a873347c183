"""All demo sets: the same bytes every time, generated once and quickly, and never mixed up with other data."""

import hashlib

import pytest

from zoo import data
from zoo.data.errors import UserError
from zoo.data.stream import open_evaluation, open_training

NAMES = ["motion", "shapes", "streets", "portraits"]
# OpenCV, Pillow and their PNG and JPEG libraries are pinned. H.264 encoders differ between processors.
RECORDED = {
    "shapes": "068c64bf92bf984cbd6168764df3e23d",
    "streets": "14fde9faad9bc7a4c8b917e36d7f3bc3",
    "portraits": "60d75f8f8349ace4b3ed6132e9f9be0d",
}


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_recorded_bytes(name, demo_set, read_files):
    files = read_files(demo_set(name).root)
    assert hashlib.md5(b"".join(path.encode() + files[path] for path in sorted(files))).hexdigest() == RECORDED[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_set_is_generated_once_and_always_with_the_same_bytes(
    name, demo_set, read_files, tmp_path, monkeypatch, capsys
):
    first, module = demo_set(name), data.find(name)
    splits = first.load(tmp_path / "deep" / "set")
    assert "making the demo set" in capsys.readouterr().out
    monkeypatch.setattr(module, "make", lambda *_: pytest.fail("generated again"))
    again = first.load(tmp_path / "deep" / "set")
    assert (
        module.describe(*splits).checksum == module.describe(*again).checksum == module.describe(*first.load()).checksum
    )
    assert read_files(tmp_path / "deep" / "set") == read_files(first.root)


@pytest.mark.parametrize(
    "name, samples, default_samples",
    [("motion", 48, 800), ("shapes", 48, 1440), ("streets", 9, 460), ("portraits", 18, 4200)],
)
def test_generating_the_default_set_takes_less_than_two_minutes(name, samples, default_samples, demo_set):
    assert demo_set(name).seconds < 2 + 120 * samples / default_samples  # 2 s for imports and thread start


@pytest.mark.parametrize("name", NAMES)
def test_streams_contain_every_sample(name, demo_set):
    train, val = demo_set(name).load()
    half = len(train) // 2
    batches = [batch for batch, unreadable in open_training(train, 1, half, 0, 2) if not unreadable]
    assert all(set(batch) == {field.name for field in train.fields} | {"valid"} for batch in batches)
    assert sum(len(batch["label"]) for batch in batches) == len(train)
    assert sum(int(batch["valid"].sum()) for batch, _ in open_evaluation(val, 1, 5)) == len(val)


@pytest.mark.parametrize("name", NAMES)
def test_no_file_occurs_twice(name, demo_set, read_files):
    files = [content for path, content in read_files(demo_set(name).root).items() if "labelIds" not in path]
    assert len(set(files)) == len(files)


@pytest.mark.parametrize("name", NAMES)
def test_other_folders_are_refused(name, demo_set, tmp_path):
    with pytest.raises(UserError, match=f"not a demo set.*{name}.json.*data.root"):
        demo_set(name).load(tmp_path)


@pytest.mark.parametrize(
    "name, key, value",
    [
        ("motion", "train_clips", 8),
        ("motion", "val_clips", 8),
        ("shapes", "val_images", 8),
        ("streets", "val_images", 4),
        ("portraits", "variation", 0.5),
        ("portraits", "size", 32),
        ("portraits", "val_pairs", 10),
        ("portraits", "shots", 3),
    ],
)
def test_a_set_with_other_settings_is_refused(name, key, value, demo_set):
    with pytest.raises(UserError, match="other settings.*data.root"):
        demo_set(name).load(**{key: value})
