"""Data sets in parquet and Arrow tables: the samples of the same images in folders, labels, and what is refused."""

import json
import os
import shutil
from types import SimpleNamespace

import fsspec
import numpy as np
import pyarrow
import pytest
from pyarrow import ipc, parquet

from tests.helpers import clips, layouts, packs
from tests.helpers.face_sets import PACK
from tests.helpers.prepared import all_samples, assert_equal_samples
from zoo.data import archives, sources, tables
from zoo.data.errors import BadSample, UserError

NAMES = ["zebra", "ape/monkey", ".cat"]
FOLDERS = ("zebra", "ape_monkey", "_cat")  # of these names
LABELS = {"train": [2, 0, 1, 0], "test": [1, 2]}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(archives, "_opened", {})


def files(contents, path=None):
    return [{"bytes": content, "path": path} for content in contents]


def feature(kind, **words):
    return {"_type": kind, **words}


def table(columns, features=None):
    made = pyarrow.table(columns)
    written = {"huggingface": json.dumps({"info": {"features": features}})} if features else {"pandas": "{}"}
    return made.replace_schema_metadata(written)


def write(path, made):
    """Write a table by its extension, Arrow as a stream like `datasets`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(made, path, row_group_size=3)
    else:
        with ipc.new_stream(str(path), made.schema) as writer:
            writer.write_table(made, max_chunksize=2)


def images(split):
    begin = 0 if split == "train" else 100
    return [packs.encoded_image(begin + 20 * number, 24) for number in range(len(LABELS[split]))]


def write_images(root, name="{}-00000-of-00001.parquet", label=lambda number: number, features=None):
    for split, labels in LABELS.items():
        columns = {"image": files(images(split)), "label": list(map(label, labels)), "text": ["x"] * len(labels)}
        write(root / name.format(split), table(columns, features))


def write_folders(root, folders=FOLDERS):
    """Write the same images as `write_images` into folders, and the class names in the order of the labels."""
    for split, labels in LABELS.items():
        for number, (content, label) in enumerate(zip(images(split), labels)):
            folder = root / split / folders[label]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.png").write_bytes(content)
    (root / "classes.txt").write_text("".join(f"{name}\n" for name in folders))


CLASSES = {"image": feature("Image"), "label": feature("ClassLabel", names=NAMES)}


@pytest.mark.parametrize(
    "name, pattern",
    [
        ("{}-00000-of-00001.parquet", "*.parquet"),
        ("plain/{}/0000.parquet", "plain/*/0000.parquet"),  # as the Hub converts others
        ("{}/data-00000-of-00001.arrow", "{{train,test}}/*.arrow"),  # save_to_disk
    ],
)
@pytest.mark.parametrize("remote", [False, True])
def test_images_are_those_of_folders_with_the_numbers_of_their_labels(name, pattern, remote, tmp_path):
    write_images(tmp_path / "tables", name, features=CLASSES)
    write_folders(tmp_path / "set")
    root = f"{tmp_path}/tables"
    if remote:
        root = f"memory://{tmp_path.name}/tables"
        fsspec.filesystem("memory").put(f"{tmp_path}/tables/", root, recursive=True)
    now, before = (layouts.load("image", each) for each in (f"{root}/{pattern.format()}", tmp_path / "set"))
    assert now[0].classes == FOLDERS and sorted(now[0].labels) == [0, 0, 1, 2] and sorted(now[1].labels) == [1, 2]
    assert_equal_samples(all_samples(now), all_samples(before))


def test_labels_that_are_numbers_or_texts(tmp_path):
    write_images(tmp_path / "numbers", label=lambda number: number * 9)
    train, _ = layouts.load("image", tmp_path / "numbers/*.parquet")
    assert train.classes == tuple(map(str, range(19))) and sorted(train.labels) == [0, 0, 9, 18]
    write_images(tmp_path / "texts", label=lambda number: NAMES[number])
    train, _ = layouts.load("image", tmp_path / "texts/*.parquet")
    assert train.classes == tuple(sorted(FOLDERS))


def test_no_label_and_no_row_is_lost(tmp_path):
    content = packs.encoded_image(0, 24)
    rows = [{"bytes": content, "path": path} for path in ("http://host/a.jpg?w=3", "photo.7", "a.PNG")]
    labels = pyarrow.array(["@bob", "lost+found", "ann", "ann"])
    kinds = (pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), pyarrow.string_view(), pyarrow.large_string())
    for number, kind in enumerate(kinds):
        made = table({"image": [*rows, None], "label": labels.cast(kind)})
        write(tmp_path / f"{number}/train.parquet", made)
        write(tmp_path / f"{number}/val.parquet", made)
        train, _ = layouts.load("image", tmp_path / f"{number}/*.parquet")
        assert train.classes == ("_bob", "_ost+found", "ann")
        names = ["_bob/train-0000000.jpg", "_ost+found/train-0000001.jpg", "ann/train-0000002.png"]
        assert [train.name(n) for n in range(4)] == [f"train/{name}" for name in (*names, "ann/train-0000003.jpg")]
        with pytest.raises(BadSample, match="the file is empty"):
            train.sample(3, np.random.default_rng(0))


@pytest.mark.parametrize("labels", [(["a/b", "a_b"], ["c"]), (["a/b"], ["a_b"])])
def test_two_labels_with_one_name_are_refused(labels, tmp_path):
    for split, each in zip(("train", "val"), labels):
        columns = {"image": [packs.encoded_image(0, 24)] * len(each), "label": each}
        write(tmp_path / f"{split}.parquet", table(columns))
    with pytest.raises(UserError, match="its label 'a_b' and 'a/b' have the same name; correct one of them"):
        layouts.load("image", tmp_path / "*.parquet")


def test_masks(tmp_path):
    layouts.scenes(tmp_path / "set")
    for split in ("train", "val"):
        columns = {
            kind: files([path.read_bytes() for path in sorted((tmp_path / "set" / folder / split).iterdir())])
            for kind, folder in (("image", "images"), ("annotation", "masks"))
        }
        write(tmp_path / f"tables/{split}-0.parquet", table(columns))
    now = layouts.load("scene", tmp_path / "tables/*.parquet", num_classes=3)
    assert_equal_samples(all_samples(now), all_samples(layouts.load("scene", tmp_path / "set")))


def test_videos_and_faces(tmp_path):
    clips.encode(tmp_path / "a.mp4", clips.textured(8))
    content = (tmp_path / "a.mp4").read_bytes()
    for split in ("train", "val"):
        write(tmp_path / f"videos/{split}.parquet", table({"video": files([content], "a.MP4"), "label": ["jump"]}))
    write(tmp_path / "videos/train-1.parquet", table({"video": files([content]), "label": ["jump"]}))
    train, _ = layouts.load("clip", tmp_path / "videos/*.parquet")
    assert train.classes == ("jump",) and train.name(0) == "train/jump/train-0000000.mp4"
    assert train.name(1) == "train/jump/train-1-0000000.mp4"
    faces = [image for of_one in PACK for image in of_one]
    columns = {"image": faces, "label": [number // len(PACK[0]) for number in range(len(faces))]}
    write(tmp_path / "faces/train.parquet", table(columns))
    folders = {str(identity): True for identity in range(len(PACK))}
    assert sources.names(f"{tmp_path}/faces/train.parquet/train") == folders
    place = sources.locate(f"{tmp_path}/faces/train.parquet/train/1/train-0000005.jpg")
    assert place.read(0, place.status().size) == PACK[1][0]
    layouts.load("face", tmp_path / "faces/train.parquet", verification=())


def test_what_is_refused(tmp_path):
    content = [packs.encoded_image(0, 8)]
    refused = {
        "has no column of images, but label, text": {"label": [0], "text": ["a"]},
        "a, b are columns of images; rename the one to read to image": {"a": content, "b": content, "label": [0]},
        "row 0 has no bytes of an image, only the path a.jpg": {"image": files([None], "a.jpg"), "label": [0]},
        "row 1 has no label": {"image": content * 2, "label": [0, None]},
    }
    for number, (message, columns) in enumerate(refused.items()):
        path = tmp_path / f"{number}.parquet"
        write(path, table(columns))
        with pytest.raises(UserError, match=message):
            layouts.load("image", path)
    two = {name: feature("ClassLabel", names=["x"]) for name in ("coarse", "fine")}
    write(tmp_path / "two.parquet", table({"image": content, "coarse": [0], "fine": [0]}, two))
    with pytest.raises(UserError, match="coarse, fine are columns of labels; rename the one to read to label"):
        layouts.load("image", tmp_path / "two.parquet")
    same = {"label": feature("ClassLabel", names=["a/b", "a_b"])}
    write(tmp_path / "same.parquet", table({"image": content, "label": [0]}, same))
    with pytest.raises(UserError, match="two of its classes have the same name"):
        layouts.load("image", tmp_path / "same.parquet")
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(UserError, match="text.parquet: cannot be read .*; it should be a parquet or Arrow file"):
        layouts.load("image", tmp_path / "text.parquet")
    write_images(tmp_path / "repository/data")
    for root in ("repository", "repository/data"):
        with pytest.raises(UserError, match="data holds tables such as test-.*data.root=.*/data/\\*.parquet"):
            layouts.load("image", tmp_path / root)
    write_folders(tmp_path / "repository/data", NAMES[:1] + ["b", "c"])
    layouts.load("image", tmp_path / "repository/data")  # a table beside folders is no more than a file


def test_an_arrow_file_whose_offsets_lead_out_of_it_is_refused(tmp_path):
    """Its reader does not look at them, and whoever follows them crashes."""
    path = tmp_path / "a.arrow"
    write(path, table({"image": [b"x" * 77]}))
    content, offsets = path.read_bytes(), np.array([0, 77], np.int32).tobytes()
    head, _, body = content.rpartition(offsets)
    path.write_bytes(head + np.array([0, 1 << 30], np.int32).tobytes() + body)
    with pytest.raises(UserError, match="a.arrow: cannot be read"):
        layouts.load("image", path)


def test_unpacking_goes_on_where_it_ended_and_needs_room(tmp_path, monkeypatch, capsys):
    write_images(tmp_path / "set", features=CLASSES)
    whole = (tmp_path / "set/train-00000-of-00001.parquet").read_bytes()
    (tmp_path / "set/train-00000-of-00001.parquet").write_bytes(whole[: len(whole) // 2].ljust(len(whole), b"x"))
    pattern = f"{tmp_path}/set/*.parquet"
    sizes = [os.path.getsize(path) for path in archives.matching(pattern)]
    with pytest.raises(UserError, match="cannot be read"):
        tables.unpack(archives.matching(pattern), sizes, str(tmp_path / "out"))
    (tmp_path / "set/train-00000-of-00001.parquet").write_bytes(whole)
    capsys.readouterr()
    found = tables.unpack(archives.matching(pattern), sizes, str(tmp_path / "out"))
    assert capsys.readouterr().out.count("this once") == 1 and len(found) == 3
    assert archives.list_archive(found[2])[0].name == "classes.txt"
    os.remove(found[2])  # as after a kill before it was written
    assert tables.unpack(archives.matching(pattern), sizes, str(tmp_path / "out")) == found
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=sum(sizes) - 1))
    with pytest.raises(UserError, match=f"unpacked tables need {sum(sizes)} bytes; make room"):
        sources.names(pattern)


def test_an_unpacked_table_that_is_gone_is_named(tmp_path, monkeypatch):
    write_images(tmp_path / "set", features=CLASSES)
    pattern = f"{tmp_path}/set/*.parquet"
    layouts.load("image", pattern)
    shutil.rmtree(next((tmp_path / "home/archives").glob("*-unpacked")))
    monkeypatch.setattr(archives, "_opened", {})
    with pytest.raises(UserError, match="is gone; remove .*, too, so that it is made again"):
        layouts.load("image", pattern)


def test_a_path_of_the_folder_that_one_stands_in(tmp_path, monkeypatch):
    write_images(tmp_path / "set", features=CLASSES)
    layouts.load("image", f"{tmp_path}/set/*.parquet")
    monkeypatch.chdir(tmp_path / "set")
    monkeypatch.setattr(archives, "_opened", {})
    train, _ = layouts.load("image", "*.parquet")
    assert np.isfinite(train.sample(0, np.random.default_rng(0))["image"]).all()
