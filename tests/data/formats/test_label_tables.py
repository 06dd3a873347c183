"""Tables of labels: the columns that are read, how images are found by them, and what is refused."""

import pytest

from tests.helpers import drawn, layouts
from tests.helpers.clips import encode, numbered
from tests.helpers.prepared import all_samples, assert_equal_samples, image_folders
from zoo.data.datasets import imagenet, kinetics
from zoo.data.errors import UserError
from zoo.data.formats import label_sets, label_tables
from zoo.finetune import folder


def flat(root, count=6, inside="train", extension="jpg"):
    drawn.photo(root / inside, *(f"{number}.{extension}" for number in range(count)))
    return root


def load(root, text, name="labels.csv", **keys):
    (root / name).write_text(text)
    return layouts.load("image", root, train_list=name, val_fraction=0.4, **keys)


ROWS = [(0, "rose"), (1, "daisy"), (2, "rose"), (3, "tulip, wild"), (4, "daisy"), (5, "tulip, wild")]
WRITTEN = {
    "names of files": "file,label\n" + "".join(f'{number}.jpg,"{label}"\n' for number, label in ROWS),
    "ids, and other columns": "id,x,breed\n" + "".join(f'{number},1,"{label}"\n' for number, label in ROWS),
    "paths, semicolons": "\ufeffImage_Path;Kind\n" + "".join(f"train/{n}.jpg;{label}\n" for n, label in ROWS),
    "no header": "".join(f'{number}.jpg,"{label}"\n' for number, label in ROWS),
    "paths of Windows, tabs": "image\tlabel\n" + "".join(f"train\\{n}.jpg\t{label}\n\n" for n, label in ROWS),
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_the_samples_of_a_table(text, tmp_path):
    train, val = load(flat(tmp_path), text)
    assert train.classes == ("daisy", "rose", "tulip, wild")
    found = {split.name(n): train.classes[split.labels[n]] for split in (train, val) for n in range(len(split))}
    assert found == {f"train/{number}.jpg": label for number, label in ROWS}


def test_tables_of_both_splits_are_the_same_images_in_folders(tmp_path):
    root = image_folders(tmp_path / "set", classes=("cat", "dog"))
    before = layouts.load("image", root)
    for split in ("train", "val"):
        paths = [path.relative_to(root) for path in sorted((root / split).rglob("*.png"))]
        rows = "".join(f"{path},{path.parent.name}\n" for path in paths)
        (tmp_path / f"{split}.csv").write_text(f"path,class\n{rows}")
    now = layouts.load("image", root, train_list=str(tmp_path / "train.csv"), val_list=str(tmp_path / "val.csv"))
    assert now[0].classes == before[0].classes
    assert_equal_samples(all_samples(now), all_samples(before))


def test_labels_that_are_numbers_and_names_of_classes(tmp_path):
    flat(tmp_path)
    text = "id,label\n" + "".join(f"{number},{number % 2 * 3}\n" for number in range(6))
    train, val = load(tmp_path, text, allow_missing_classes=True)
    assert train.classes == tuple(f"class {n}" for n in range(4)) and {*train.labels, *val.labels} == {0, 3}
    (tmp_path / "classes.txt").write_text("tulip\nrose\n")
    train, _ = load(tmp_path, "id,label\n" + "".join(f"{n},{('rose', 'tulip')[n % 2]}\n" for n in range(6)))
    assert train.classes == ("tulip", "rose")
    with pytest.raises(UserError, match="0.jpg has the label rosé, which is no class; did you mean rose"):
        load(tmp_path, "id,label\n0,rosé\n1,tulip\n")


def test_a_missing_image_is_an_unreadable_sample(tmp_path):
    train, val = load(flat(tmp_path), "id,label\n" + "".join(f"{n},{n % 2}\n" for n in (*range(6), 77, 78, 79)))
    assert len(train) + len(val) == 9


@pytest.mark.parametrize(
    "text, message",
    [
        ("file,label\n", "has no row behind its header"),
        ("file,label\n0.jpg,\n", "row 2 lacks the image or its label"),
        ("file,label\n0.jpg\n", "row 2 lacks the image or its label"),
        ("a,b\n0.jpg,x\n", r"which of its columns \(a, b\) names the files\? rename it to image"),
        ("id,cat,dog\n0,1,0\n", r"which of its columns \(id, cat, dog\) holds the class\? rename it to label"),
        ("id,label\n90,x\n91,y\n", "none of its files, such as 90, is below"),
        ("id,label\n0,x\n../../secret,y\n", "may lead out of data.root"),
        ("id,label\n0,x\ntrain/0.jpg,y\n", "labels.csv:3: train/0.jpg has label y here and x in line 2; remove one"),
        ("id,label\ntwice,x\n", "twice may be a/twice.jpg or b/twice.jpg"),
    ],
)
def test_what_is_refused(text, message, tmp_path):
    flat(tmp_path)
    drawn.photo(tmp_path / "a", "twice.jpg")
    drawn.photo(tmp_path / "b", "twice.jpg")
    with pytest.raises(UserError, match=message):
        load(tmp_path, text)


def test_a_table_that_is_no_text(tmp_path):
    (flat(tmp_path) / "labels.csv").write_bytes(b"\xff\xfe\0")
    with pytest.raises(UserError, match="labels.csv: cannot be read .*; it should be a CSV file in UTF-8"):
        label_tables.read(str(tmp_path / "labels.csv"), str(tmp_path))


@pytest.mark.parametrize(
    "images, tables, lists",
    [
        (["train_images"], ["train.csv", "sample_submission.csv"], {"train_list": "train.csv"}),
        (["train_images", "test_images"], ["train.csv", "test.csv"], {"train_list": "train.csv"}),
        (["train", "val"], ["train.csv", "val.csv"], {"train_list": "train.csv", "val_list": "val.csv"}),
        (["images"], ["labels.csv"], {"train_list": "labels.csv"}),
        (["cat", "dog"], ["labels.csv"], {}),
        (["train/cat", "train/dog"], ["train.csv"], {}),
    ],
)
def test_finetune_reads_a_table_where_there_are_no_folders_of_classes(images, tables, lists, tmp_path):
    for number, name in enumerate(images):
        flat(tmp_path, 2 + number, name)
    for name in tables:
        (tmp_path / name).write_text("id,label\n0,x\n")
    found = folder.examine(str(tmp_path))
    assert found.task == "classify"
    given = {key: value for key, value in found.settings.items() if key.endswith("_list")}
    assert given == {key: str(tmp_path / name) for key, name in lists.items()}


@pytest.mark.parametrize(
    "name, text, task",
    [
        ("labels.csv", "id,label\n0,rose\n1,daisy\n", "classify"),
        ("labels.csv", "id,tags\n0,rose|daisy\n1,daisy\n", "multilabel"),
        ("labels.csv", "id,rose,daisy\n0,1,1\n1,0,1\n", "multilabel"),
        ("labels.csv", "id,label\n0,rose\n1,\n", "multilabel"),
        ("metadata.jsonl", '{"file_name": "0.jpg", "label": 1}\n', "classify"),
        ("metadata.jsonl", '{"file_name": "0.jpg", "labels": [1, 2]}\n', "multilabel"),
    ],
)
def test_finetune_finds_out_whether_an_image_has_several_classes(name, text, task, tmp_path):
    (flat(tmp_path) / name).write_text(text)
    assert folder.examine(str(tmp_path)).task == task


NIH = [f"images_00{1 + n // 3}/images/{n:03d}_000.png" for n in range(9)]
CHEXPERT = [f"train/patient{n // 2}/study1/view{n % 2}_frontal.png" for n in range(8)]
DAYS = [f"{('day', 'night')[n % 2]}/{n}.png" for n in range(8)]
LABELED = {  # images, table, the rest of its text, and the task
    "NIH": (
        NIH,
        "Data_Entry.csv",
        "Image Index,Finding Labels",
        [f"{n:03d}_000.png,Mass|Edema" for n in range(9)],
        "multilabel",
    ),
    "CheXpert": (
        CHEXPERT,
        "train.csv",
        "Path,Age,Edema,Mass",
        [f"CheXpert/{path},50,1,0" for path in CHEXPERT],
        "multilabel",
    ),
    "ids": (DAYS, "labels.csv", "id,label", [f"{n},{'abc'[n % 3]}" for n in range(8)], "classify"),
    "objects": (
        DAYS,
        "a.jsonl",
        "",
        [f'{{"image": "{path}", "label": "a|{n % 3}"}}' for n, path in enumerate(DAYS)],
        "multilabel",
    ),
    "its folders": (DAYS, "a.csv", "path,class,split", [f"{path},{path[0]},train" for path in DAYS], "classify"),
}


def write_table(root, paths, name, header, rows):
    for path in paths:
        drawn.photo(root / path.rpartition("/")[0], path.rpartition("/")[2])
    (root / name).write_text("\n".join([*[header] * bool(header), *rows]))


@pytest.mark.parametrize("paths, name, header, rows, task", LABELED.values(), ids=LABELED)
def test_a_table_of_images_in_folders_says_the_classes(paths, name, header, rows, task, tmp_path):
    write_table(tmp_path, paths, name, header, rows)
    found = folder.examine(str(tmp_path))
    assert found.task == task and found.settings["train_list"] == str(tmp_path / name)
    assert "are no classes (with --task classify -o data.train_list=null, they are)" in found.layout
    samples = label_sets.read({"train": str(tmp_path / name)}, str(tmp_path), (), [])[1]["train"]
    assert sorted(sample.path for sample in samples) == sorted(paths)


@pytest.mark.parametrize(
    "header, rows",
    [
        ("class,width", ["day,4", "night,5"]),  # no column of images
        ("file_name,width,height", [f"{path},4,5" for path in DAYS]),  # none of classes
        ("id,name", ["0,day", "1,night"]),  # of classes
        ("image,label", ["x.png,cat", "y.png,dog"]),  # of other images
        ("image,kind", [f"{path},{path[0]}" for path in DAYS]),  # the same as the folders
    ],
)
def test_folders_are_classes_beside_an_unrelated_table(header, rows, tmp_path):
    write_table(tmp_path, DAYS, "metadata.csv", header, rows)
    found = folder.examine(str(tmp_path))
    assert found.task == "classify" and "train_list" not in found.settings
    assert found.layout.endswith("not read: metadata.csv")


@pytest.mark.parametrize(
    "header, rows",
    [("image,label", ["0.png,x", "3.png,y", "2.png,y"]), ("image,caption", [f"{path},x" for path in DAYS])],
)
def test_finetune_asks_where_folders_or_a_table_may_say_the_classes(header, rows, tmp_path):
    write_table(tmp_path, DAYS, "labels.csv", header, rows)
    options = "--task classify, .* -o data.train_list=.*labels.csv, .* --task multilabel"
    with pytest.raises(UserError, match=f"2 folders such as day may be classes, or labels.csv .*{options}"):
        folder.examine(str(tmp_path))
    assert "train_list" not in folder.examine(str(tmp_path), "classify").settings
    assert "train_list" in folder.examine(str(tmp_path), "multilabel").settings


def test_columns_of_classes_are_none_of_an_image_that_has_one(tmp_path):
    write_table(tmp_path, DAYS, "labels.csv", "image,x,y", [f"{path},1,0" for path in DAYS])
    assert folder.examine(str(tmp_path)).task == "multilabel"
    assert "train_list" not in folder.examine(str(tmp_path), "classify").settings


def test_a_column_divides_videos(tmp_path):
    (tmp_path / "videos").mkdir()
    for number in range(3):
        encode(tmp_path / f"videos/{number}.mp4", numbered(20 + number))
    (tmp_path / "a.csv").write_text("video,label,subset\n0,rest,train\n1,jump,train\n2,rest,validation\n")
    found = folder.examine(str(tmp_path))
    assert found.task == "clips"
    train, val = kinetics.load(kinetics.Settings(root=str(tmp_path), train_list=found.settings["train_list"]))
    assert [clip.path for clip in val.clips] == ["videos/2.mp4"] and len(train) == 2


def test_of_several_tables_the_one_with_labels_is_read(tmp_path):
    write_table(tmp_path, NIH, "labels.csv", *LABELED["NIH"][2:4])
    (tmp_path / "BBox_List.csv").write_text("Image Index,Finding Label,x,y\n000_000.png,Mass,1,2\n")
    assert folder.examine(str(tmp_path)).settings["train_list"] == str(tmp_path / "labels.csv")


def test_a_path_from_above_the_root_is_the_longest_that_exists(tmp_path):
    write_table(
        tmp_path,
        [*CHEXPERT, "view0_frontal.png"],
        "a.csv",
        "Path,label",
        ["x/train/patient1/study1/view0_frontal.png,a"],
    )
    assert label_tables.read(str(tmp_path / "a.csv"), str(tmp_path)) == [(CHEXPERT[2], "a")]


def test_a_column_divides_the_rows(tmp_path):
    text = "id,label,set\n0,rose,train\n1,daisy,val\n2,daisy,train\n3,,test\n0,rose,train\n"
    train, val = load(flat(tmp_path), text)
    assert [train.name(n) for n in range(len(train))] == ["train/0.jpg", "train/2.jpg"] and len(val) == 1
    assert any("a column divides the rows: 3 train, 1 val, 1 test (left out)" in note for note in train.notes)
    assert any("1 rows repeat an earlier one; each image counts once" in note for note in train.notes)
    settings = imagenet.Settings(root=str(tmp_path), train_list="labels.csv", val_fraction=0.4)
    alone, _ = imagenet.load(settings, ("val",))
    assert [alone.name(n) for n in range(len(alone))] == ["train/1.jpg"]


@pytest.mark.parametrize(
    "header, cells, held_out",
    [
        ("is_valid", ("False", "True", "False", "False"), [1]),
        ("is_valid,is_test", ("0,0", "1,0", "0,1", "0,0"), [1]),
        ("is_train", ("1", "0", "1", "1"), [1]),
        ("is_test", ("no", "no", "yes", "no"), [2]),
    ],
)
def test_a_column_of_yes_and_no_divides_the_rows(header, cells, held_out, tmp_path):
    rows = "".join(f"{n},{'rose' if n % 2 else 'daisy'},{cell}\n" for n, cell in enumerate(cells))
    train, val = load(flat(tmp_path), f"id,label,{header}\n{rows}")
    assert [val.name(n) for n in range(len(val))] == [f"train/{n}.jpg" for n in held_out]
    assert "train/2.jpg" not in [train.name(n) for n in range(len(train))] or "is_test" not in header


@pytest.mark.parametrize("cell", ["", "maybe"])
def test_a_column_of_yes_and_no_says_either(cell, tmp_path):
    with pytest.raises(UserError, match=rf"row 2: is_valid '{cell}': write 1 .*, and 0 in the others"):
        load(flat(tmp_path), f"id,label,is_valid\n0,rose,{cell}\n1,daisy,1\n")


@pytest.mark.parametrize(
    "name, text",
    [
        ("train.csv", "id,label,set\n0,rose,train\n1,daisy,val\n0,rose,val\n"),
        (
            "train.jsonl",
            "".join(f'{{"id": "{n}", "label": "rose", "set": "{split}"}}\n' for n, split in ((0, "train"), (0, "val"))),
        ),
    ],
)
def test_an_image_belongs_to_one_split(name, text, tmp_path):
    with pytest.raises(UserError, match=r"0 is train in row \d and val in row \d; keep one of them"):
        load(flat(tmp_path), text, name)


def test_objects_per_line(tmp_path):
    lines = [f'{{"file_name": "{number}.jpg", "label": "{label}"}}\n' for number, label in ROWS]
    train, val = load(flat(tmp_path), "".join(lines), "metadata.jsonl")
    found = {split.name(n): train.classes[split.labels[n]] for split in (train, val) for n in range(len(split))}
    assert found == {f"train/{number}.jpg": label for number, label in ROWS}
    lines[1] = '{"file_name": "1.jpg", "labels": ["rose", "daisy"]}\n'
    with pytest.raises(UserError, match=r"metadata.jsonl:2: 1.jpg has 2 classes; .* data.name=multilabel"):
        load(tmp_path, "".join(lines), "metadata.jsonl")
    with pytest.raises(UserError, match=r"metadata.jsonl:1: cannot be read .*; a line is an object such as"):
        load(tmp_path, '{"label": "rose"}\n', "metadata.jsonl")
