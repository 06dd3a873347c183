"""Images with several classes each: tables of every form, targets, splits, and what is refused."""

import json

import numpy as np
import pytest

from tests.helpers import drawn
from zoo.data.dataset import Relabeled
from zoo.data.datasets import multilabel
from zoo.data.errors import UserError
from zoo.data.stream import open_evaluation, open_training
from zoo.finetune import folder
from zoo.tasks.multilabel import Metric

SETS = [("cat", "dog"), ("dog",), (), ("cat",), ("bird", "cat", "dog"), ("bird",)]
NAMES = ("bird", "cat", "dog")
ROWS = [(f"{number}.jpg", labels) for number, labels in enumerate(SETS)]


def one_hot(header, yes="1", no="0"):
    return f"{header}\n" + "".join(
        f"{name},x," + ",".join(yes if each in labels else no for each in NAMES) + "\n" for name, labels in ROWS
    )


WRITTEN = {
    "bars": ("a.csv", "image,tags\n" + "".join(f"{name},{'|'.join(labels)}\n" for name, labels in ROWS)),
    "blanks": ("a.csv", "image_name,labels\n" + "".join(f"{name[0]},{' '.join(labels)}\n" for name, labels in ROWS)),
    "lists": ("a.csv", "file,labels\n" + "".join(f'{name},"{[*labels]}"\n' for name, labels in ROWS)),
    "tabs": ("a.tsv", "path\tclass\n" + "".join(f"train/{name}\t{', '.join(labels)}\n" for name, labels in ROWS)),
    "no header": ("a.csv", "".join(f"{name},{';'.join(labels)}\n" for name, labels in ROWS)),
    "columns": ("a.csv", one_hot("Image Index,age,bird,cat,dog")),
    "words in columns": ("a.csv", one_hot("id,age,bird,cat,dog", "True", "False")),
    "objects": ("a.jsonl", "".join(json.dumps({"file_name": n, "labels": [*each]}) + "\n" for n, each in ROWS)),
}


def load(root, name, text, **keys):
    drawn.photo(root / "train", *(name for name, _ in ROWS))
    (root / name).write_text(text)
    keys = {"val_fraction": 0.3, **keys}
    return multilabel.load(multilabel.Settings(root=str(root), train_list=name, size=16, cache=None, **keys))


@pytest.mark.parametrize("name, text", WRITTEN.values(), ids=WRITTEN)
def test_the_samples_of_a_table(name, text, tmp_path):
    train, val = splits = load(tmp_path, name, text)
    assert train.classes == NAMES and len(val) >= 1
    found = {}
    for split in splits:
        for index in range(len(split)):
            sample = split.sample(index, np.random.default_rng(0))
            labels = tuple(NAMES[label] for label in np.flatnonzero(sample["label"]))
            assert sample["label"].dtype == np.float32 and split.item_label(index) == "|".join(labels)
            found[split.name(index)] = labels
    assert found == {f"train/{name}": labels for name, labels in ROWS}
    if text == WRITTEN["blanks"][1]:
        return  # which zoo finetune asks about
    several = folder.label_sets.has_several({"train": str(tmp_path / name)})
    assert several


def test_a_stream_mixes_targets_and_an_evaluation_numbers_its_samples(tmp_path):
    train, val = load(tmp_path, *WRITTEN["bars"], mixup=1.0, val_fraction=0.5)
    ((batch, _),) = open_training(train, 1, 2, 0, 1)
    assert {*np.unique(batch["label"])} <= {0, 1} and batch["soft_label"].shape == batch["label"].shape == (2, 3)
    assert (batch["soft_label"] >= batch["label"].min(0)).all() and (batch["soft_label"] <= batch["label"].max(0)).all()
    batches = [batch for batch, _ in open_evaluation(val, 1, 2)]
    indices = np.concatenate([batch["index"][batch["valid"] > 0] for batch in batches])
    assert indices.tolist() == list(range(len(val)))


def test_numbers_names_and_both_splits(tmp_path):
    numbers = "id,labels\n" + "".join(f"{n},{n % 3} {(n + 2) % 5}\n" for n in range(6))
    assert load(tmp_path, "a.csv", numbers)[0].classes == tuple("01234")
    (tmp_path / "classes.txt").write_text("".join(f"{name}\n" for name in ("dog", "cat", "bird", "fox")))
    train, _ = load(tmp_path, *WRITTEN["bars"])
    assert train.classes == ("dog", "cat", "bird", "fox")
    assert any("no training image has" in note and "fox" in note for note in train.notes)
    (tmp_path / "val.csv").write_text("image,tags\n0.jpg,Dog\n")
    with pytest.raises(
        UserError, match="val.csv: row 2: 0.jpg has the class Dog, which is none of the 4; did you mean dog"
    ):
        load(tmp_path, *WRITTEN["bars"], val_fraction=None, val_list="val.csv")
    (tmp_path / "val.csv").write_text("image,tags\n0.jpg,dog|cat\n")
    _, val = load(tmp_path, *WRITTEN["bars"], val_fraction=None, val_list="val.csv")
    assert val.labels_of(0).tolist() == [0, 1]


REFUSED = {
    "image,tags\n0.jpg,\n": "no image has a class",
    "image,a,b\n0.jpg,1,0\n0.jpg,1,1\n": "0.jpg has label a, b here and a in line 2; remove one",
    "image,a,b\n0.jpg,-1,0\n1.jpg,-1,0\n2.jpg,1,1\n": "row 2: a is '-1', neither 0 nor 1; decide",
    "image,label\n0.jpg,1|900000\n": "labels are 2 numbers up to 900000, which count classes from 0; name",
    "image,tags\n0.jpg,cat|dog,2\n": "row 2 has 3 cells for 2 columns",
    "image,a,b\n0.jpg,1,0\n1.jpg,-1,0\n2.jpg,1,1\n": "row 3: a is '-1', neither 0 nor 1; decide",
    "image,a,b\n0.jpg,4,7\n": r"which of its columns \(image, a, b\) are classes. each needs",
    "image,tags\ntest/0.jpg,cat\n": "none of its files, such as test/0.jpg, is below",
    "image,tags\nx.jpg,cat\n": "none of its files, such as x.jpg, is below",
    "image,tags\n0.jpg,['a' 'b']\n": r"row 2: \['a' 'b'\] cannot be read .*; write a list as",
    "image,tags\n0.jpg,[a]\n": r'row 2: \[a\] cannot be read .*; write a list as \["cat", "dog"\]',
    'image,tags\n0.jpg,"{""a"": 1}"\n': "row 2: .* cannot be read .it begins as a list does, and is none",
    'image,tags\n0.jpg,a;b\n1.jpg,"a, b"\n': "row 3: 1.jpg has the class 'a, b', whose parts are classes of others",
    "image,tags\n0.jpg,a\n1.jpg,b\n2.jpg,a/b\n": "row 4: 2.jpg has the class 'a/b', whose parts are",
    "image,a,b\n0.jpg,1,0.1\n1.jpg,0,0.9\n": "b has the values '0.1', '0.9' beside columns of 0 and 1; write",
    "image,a,b\n0.jpg,1,2\n1.jpg,0,0\n2.jpg,1,2\n": "b has the values '0', '2' beside columns",
    "image,a,b\n0.jpg,1,1\n1.jpg,0,\n2.jpg,1,\n": "b has the values '', '1' beside columns",
    "image,tags,split\n0.jpg,a|b,train\n1.jpg,a,holdout\n": "row 3: split is 'holdout'; write train, val or test",
    "image,tags,split\n0.jpg,a|b,val\n": "its column of splits has no row for train; name a table",
}


@pytest.mark.parametrize("text, message", REFUSED.items())
def test_what_is_refused(text, message, tmp_path):
    drawn.photo(tmp_path / "test", "other.jpg")
    with pytest.raises(UserError, match=message):
        load(tmp_path, "a.csv", text)


def test_settings_and_tables_that_are_missing(tmp_path):
    with pytest.raises(ValueError, match="balance: an image may have several"):
        multilabel.Settings(balance=0.5)
    with pytest.raises(UserError, match="for val there is none in .*val_fraction"):
        load(tmp_path, *WRITTEN["bars"], val_fraction=None)
    (tmp_path / "list.txt").write_text("train/0.jpg 0\n")
    with pytest.raises(UserError, match=r"reads tables \(.csv, .tsv, .jsonl\), and for train .*list.txt is none"):
        multilabel.load(
            multilabel.Settings(root=str(tmp_path), train_list=str(tmp_path / "list.txt"), val_fraction=0.2)
        )


def test_an_evaluation_has_the_labels_of_the_model(tmp_path):
    _, val = load(tmp_path, *WRITTEN["bars"], val_fraction=0.5)
    moved = Relabeled(val, ("dog", "fox", "cat", "bird"))
    (batch, _), *_ = open_evaluation(moved, 1, len(val))
    expected = [[float(name in val.item_label(n).split("|")) for name in moved.classes] for n in range(len(val))]
    assert batch["label"].tolist() == expected and moved.fields[1].shape == (4,)


TRAIN, VAL = "train.csv", "val.csv"


def load_both(root, train, val, **keys):
    (root / VAL).write_text(val)
    return load(root, TRAIN, train, val_fraction=None, val_list=VAL, **keys)


def test_classes_are_decided_over_all_tables(tmp_path):
    """Which character divides them, and which columns they are; a column may be named as those of labels are."""
    train, val = load_both(tmp_path, "id,tags\n0,cat|New York\n1,cat\n", "id,tags\n2,New York\n")
    assert train.classes == ("New York", "cat") and val.labels_of(0).tolist() == [0]
    assert any("classes of an image are divided by '|'" in note for note in train.notes)
    train, val = load_both(tmp_path, "id,age,target,dog\n0,31,1,0\n1,32,0,1\n", "dog,target,id\n1,0,2\n")
    assert train.classes == ("target", "dog") and val.labels_of(0).tolist() == [1]
    assert any("are the classes: target, dog; not read: age" in note for note in train.notes)
    with pytest.raises(UserError, match="val.csv: dog is a class, a column of 0 and 1, in one table, and none in"):
        load_both(tmp_path, "id,cat,dog\n0,1,0\n", "id,cat,x\n0,1,31\n")
    with pytest.raises(UserError, match="val.csv: fox is a class, a column of 0 and 1, in one table, and none in"):
        load_both(tmp_path, "id,cat,dog\n0,1,0\n", "id,cat,dog,fox\n0,1,0,1\n")
    (tmp_path / VAL).unlink()
    train, _ = load(tmp_path, "a.csv", "id,cat,dog,fold\n0,1,1,0\n1,0,1,1\n2,1,0,0\n")
    assert train.classes == ("cat", "dog") and any("classes: cat, dog; not read: fold" in note for note in train.notes)
    assert load(tmp_path, "a.csv", "id,cat\n0,1\n1,0\n2,1\n")[0].classes == ("cat",)
    (tmp_path / "classes.txt").write_text("cat, big\ndog\n")
    train, _ = load(tmp_path, "a.csv", 'id,tags\n0,"cat, big"\n1,"dog"\n2,"dog;cat, big"\n')
    assert train.classes == ("cat, big", "dog")


def test_numbers_are_names_or_labels_of_all_classes(tmp_path):
    (tmp_path / "classes.txt").write_text("1\n2\n3\n")
    with pytest.raises(UserError, match="row 2: 0.jpg has the class 4, which is none of the 3"):
        load(tmp_path, "a.csv", "image,tags\n0.jpg,1|4\n")
    train, val = load(tmp_path, "a.csv", "image,tags\n0.jpg,0|1\n1.jpg,2\n2.jpg,2\n")
    assert sorted([*train.labels, *val.labels]) == [0, 1, 2, 2] and train.classes == ("1", "2", "3")


def test_a_row_for_each_class_of_an_image(tmp_path):
    text = "file,label\n" + "".join(f"{name},{label}\n" for name, labels in ROWS for label in labels)
    (tmp_path / "a.csv").write_text(text)
    assert folder.label_sets.has_several({"train": str(tmp_path / "a.csv")})
    splits = load(tmp_path, "a.csv", text)
    found = {split.name(n): split.item_label(n) for split in splits for n in range(len(split))}
    assert found == {f"train/{name}": "|".join(labels) for name, labels in ROWS if labels}


@pytest.mark.parametrize("labels", ["[0, 1, 1]", "true", '["a", ""]', "{}", "[null]"])
def test_objects_whose_labels_are_none(labels, tmp_path):
    with pytest.raises(UserError, match="a.jsonl:1: cannot be read .*; a line is an object"):
        load(tmp_path, "a.jsonl", f'{{"file_name": "0.jpg", "labels": {labels}}}\n')
    rest = '{"file_name": "1.jpg", "label": null}\n{"file_name": "2.jpg", "label": ""}\n'
    splits = load(tmp_path, "a.jsonl", '{"file_name": "0.jpg", "label": "a|b"}\n' + rest)
    assert splits[0].classes == ("a", "b") and sum(len(split.labels) for split in splits) == 2


def test_rare_classes_are_held_out_together(tmp_path):
    """Every image has a tag of its own: the fraction is held out all the same."""
    drawn.photo(tmp_path / "train", *(f"{number}.jpg" for number in range(40)))
    rows = "".join(f"{number},own{number}|{'ab'[number % 2]}\n" for number in range(40))
    (tmp_path / "a.csv").write_text(f"id,tags\n{rows}")
    settings = multilabel.Settings(root=str(tmp_path), train_list="a.csv", val_fraction=0.25, size=16, cache=None)
    train, val = multilabel.load(settings)
    shared = [label for label, name in enumerate(train.classes) if name in "ab"]
    assert len(val) == 10 and [np.sum(val.labels == label) for label in shared] == [5, 5]


def test_the_fraction_is_held_out_of_images_outside_the_root(tmp_path):
    drawn.photo(tmp_path, *(f"{'set' if number < 2 else 'elsewhere'}/{number}.jpg" for number in range(10)))
    rows = "".join(
        f"{f'{number}.jpg' if number < 2 else tmp_path / f'elsewhere/{number}.jpg'},a\n" for number in range(10)
    )
    (tmp_path / "set/a.csv").write_text(f"image,tags\n{rows}")
    keys = {"root": str(tmp_path / "set"), "train_list": "a.csv", "allow_outside_root": True}
    train, val = multilabel.load(multilabel.Settings(**keys, val_fraction=0.3, size=16, cache=None))
    assert (len(train), len(val)) == (7, 3)


def test_an_unreadable_image_misses_its_classes(tmp_path):
    _, val = load(tmp_path, *WRITTEN["bars"], val_fraction=0.5, eval_bad="wrong")
    index = next(n for n in range(len(val)) if len(val.labels_of(n)))
    (tmp_path / val.name(index)).write_bytes(b"no image")
    metric = Metric(val)
    ((batch, unreadable),) = open_evaluation(val, 1, len(val))
    metric.update(np.where(batch["label"] > 0, 5.0, -5.0), batch)
    found = metric.result(metric.state)
    assert len(unreadable) == 1 and found["samples"] == len(val) and found["f1"] < 1
    lost = [val.classes[label] for label in val.labels_of(index)]
    assert {name for name, value in found["class_ap"].items() if value < 1} <= {*lost} and found["loss"] < 0.01


def items(splits):
    return {split.name(n)[6:]: split.item_label(n) for split in splits for n in range(len(split))}


def table(header, cells):
    return f"{header}\n" + "".join(f'{number},"{cell}"\n' for number, cell in enumerate(cells))


def test_lists_in_cells_are_parsed(tmp_path):
    text = r"""file|labels
0.jpg|["cat", "bird, flying"]
1.jpg|["\u9ce5"]
2.jpg|['cat', "it's", 'cat']
3.jpg|('cat', 'bird, flying')
4.jpg|[]
5.jpg|(a) cat
"""
    text = "".join(
        f'{name},"{cell.replace(chr(34), chr(34) * 2)}"\n'
        for name, cell in (row.split("|") for row in text.splitlines())
    )
    found = items(load(tmp_path, "a.csv", text))
    labels = ["bird, flying|cat", "鳥", "cat|it's", "bird, flying|cat", "", "(a) cat"]
    assert found == {f"{number}.jpg": label for number, label in enumerate(labels)}


@pytest.mark.parametrize(
    "text, classes",
    [
        (
            table("id,tags", ["haze", "haze primary", "haze water", "primary water", "water"]),
            "is 'haze primary' one class",
        ),
        (
            table("id,label", ["Audi S4 2012", "Audi S4 2007", "Audi TT 2007", "Audi TT Coupe 2012"]),
            "is 'Audi S4 2007' one",
        ),
        (table("Id,Target", ["2 0", "1", "2", "2 0", "0 2 1", "2"]), 3),
        (table("id,tags", ["cat, dog", "dog", "cat", "dog", "cat, bird", "bird"]), 3),
        (table("id,label", ["tench, Tinca tinca", "goldfish, Carassius auratus"] * 3), 0),
        (table("id,label", ["Acer rubrum", "Acer palmatum", "Quercus rubra", "Quercus robur"]), 0),
        (
            table("id,label", ["dog", "cat, dog", "dog", "cat, dog"]),
            "is 'cat, dog' one class, or several divided by ','",
        ),
        (table("id,label", ["a b", "b a", "a c", "a d", "a e"]), "is 'a b' one class, or several divided by blanks"),
        (
            table("id,label", ["red car", "red bus", "blue car", "blue bus", "bike"]),
            "is 'blue bus' one class, or several divided by blanks",
        ),
        (table("id,label", [*["cat", "dog"] * 6, ""]), "a.csv: row 14: 1 of 13 images have no class or several"),
        (
            table("id,label", ["cat", "dog"] * 6) + "3,cat\n",
            "a.csv: rows 5, 14: 1 of 12 images have no class or several",
        ),
        (table("id,label", [*["cat", "dog"] * 6, "cat|dog"]), "a.csv: row 14: 1 of 13 images"),
        ("id,label,blurry\n0,0,1\n1,1,0\n", r"is label the class of an image, .* its classes \(label, blurry\)"),
        ("id,label,blurry,night\n0,0,1,0\n1,1,0,1\n2,2,1,1\n", 0),
        ("id,label,split\n0,cat,train\n1,dog,val\n2,,test\n", 0),
    ],
)
def test_finetune_divides_what_recurs_and_asks_in_doubt(text, classes, tmp_path):
    drawn.photo(tmp_path / "train", *(f"{number}.jpg" for number in range(13)))
    (tmp_path / "a.csv").write_text(text)
    if isinstance(classes, str):
        with pytest.raises(UserError, match=f"{classes}.*--task classify .one class per image. or --task multilabel"):
            folder.examine(str(tmp_path))
        assert folder.examine(str(tmp_path), "multilabel").settings["train_list"] == str(tmp_path / "a.csv")
        return
    assert folder.examine(str(tmp_path)).task == ("multilabel" if classes else "classify")
    if classes:
        assert len(load(tmp_path, "a.csv", text, val_fraction=0.5)[0].classes) == classes


def test_names_with_commas_stay_whole_and_are_named(tmp_path):
    train, _ = load(tmp_path, "a.csv", table("id,label", ["tench, Tinca tinca", "goldfish, Carassius auratus"] * 3))
    assert train.classes == ("goldfish, Carassius auratus", "tench, Tinca tinca")
    assert any("its comma belongs to a name" in note for note in train.notes)
    (tmp_path / "classes.txt").write_text("cat\ndog\nfox\n")
    assert {*items(load(tmp_path, "a.csv", table("id,label", ["cat, dog"] * 3))).values()} == {"cat|dog"}


def test_an_image_of_several_rows_counts_once(tmp_path):
    splits = load(tmp_path, "a.csv", "id,a,b\n0,1,0\n1,0,1\n0.jpg,1,0\n2,1,1\n")
    assert sum(map(len, splits)) == 3
    assert any("1 rows repeat an earlier one; each image counts once" in note for note in splits[0].notes)


@pytest.mark.parametrize("last", ["val", "test"])
def test_a_column_divides_the_rows(last, tmp_path):
    """Rows of a test are left out where others are for validation."""
    splits = ["Training", "train", "train", last, "valid" if last == "val" else last, "test"]
    tags = ["a|b", "a", "b", "a", "a|b", "c"]
    text = "id,tags,split\n" + "".join(f"{n},{tag},{split}\n" for n, (tag, split) in enumerate(zip(tags, splits)))
    train, val = load(tmp_path, "a.csv", text, val_fraction=0.5)
    held = {"3.jpg": "a", "4.jpg": "a|b"} if last == "val" else {"3.jpg": "a", "4.jpg": "a|b", "5.jpg": "c"}
    assert items([train]) == {"0.jpg": "a|b", "1.jpg": "a", "2.jpg": "b"} and items([val]) == held
    rows = "3 train, 2 val, 1 test (left out)" if last == "val" else "3 train, 3 test"
    assert f"{tmp_path}/a.csv: a column divides the rows: {rows}" in train.notes
    lines = [json.dumps({"image": f"{n}.jpg", "tags": t, "Split": s}) for n, (t, s) in enumerate(zip(tags, splits))]
    train, val = load(tmp_path, "a.jsonl", "\n".join(lines), val_fraction=None)
    assert items([val]) == held and len(train) == 3
    columns = "id,split,a,b\n" + "".join(f"{n},{split},{n % 2},1\n" for n, split in enumerate(splits))
    train, val = load(tmp_path, "b.csv", columns)
    assert items([train]) == {"0.jpg": "b", "1.jpg": "a|b", "2.jpg": "b"} and items([val]).keys() == held.keys()
