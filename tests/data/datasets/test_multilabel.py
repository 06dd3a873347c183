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
    several = folder.label_sets.has_several(str(tmp_path / name))
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
        UserError, match="val.csv: train/0.jpg has the class Dog, which is none of the 4; did you mean dog"
    ):
        load(tmp_path, *WRITTEN["bars"], val_fraction=None, val_list="val.csv")
    (tmp_path / "val.csv").write_text("image,tags\n0.jpg,dog|cat\n")
    _, val = load(tmp_path, *WRITTEN["bars"], val_fraction=None, val_list="val.csv")
    assert val.labels_of(0).tolist() == [0, 1]


REFUSED = {
    "image,tags\n0.jpg,\n": "no image has a class",
    "image,tags\n0.jpg,cat|dog\n0.jpg,cat\n": "has label .* here and .* in line 2",
    "image,tags\n0.jpg,cat|dog,2\n": "row 2 has 3 cells for 2 columns",
    "image,a,b\n0.jpg,1,0\n1.jpg,-1,0\n2.jpg,1,1\n": "row 3: a is '-1', neither 0 nor 1; decide",
    "image,a,b\n0.jpg,4,7\n": "has no column of 0 and 1",
    "image,tags\nx.jpg,cat\n": "none of its files, such as x.jpg, is below",
}


@pytest.mark.parametrize("text, message", REFUSED.items())
def test_what_is_refused(text, message, tmp_path):
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
