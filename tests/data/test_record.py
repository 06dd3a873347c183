"""Records of data sets: what a comparison of two tells, and how many bytes they take."""

import zlib

import numpy as np
import pytest

from tests.helpers.files import touch
from zoo.data import record
from zoo.data.contents import Content
from zoo.data.record import Item, SplitChange

NAMES = [f"{number}.jpg" for number in range(8)]


def build(root, samples, classes=("cat", "dog"), val=()):
    """Return the record of samples (name, class, text of the file)."""
    items = []
    for name, label, text in samples:
        touch(root, name, content=text.encode())
        items.append(Item(name, label, (Content(str(root / name)),)))
    return record.build((len(items), classes, items), (len(val), classes, val), str(root), "sampled")


def base():
    return [(name, "cat" if number % 2 else "dog", name) for number, name in enumerate(NAMES)]


def compare(tmp_path, samples, may_change=(), **keys):
    before, now = build(tmp_path / "a", base()).train, build(tmp_path / "b", samples, **keys).train
    return record.compare(before, now, lambda name: name in may_change)


def test_the_same_samples_elsewhere(tmp_path):
    change = compare(tmp_path, base())
    assert change == SplitChange((8, 8)) and not record.explain("training", change)


def test_every_kind_of_change_is_told_with_five_names_at_most(tmp_path):
    samples = [*base()[2:], *((f"new {number}.jpg", "cat", "") for number in range(7))]
    samples[0], samples[1] = ("2.jpg", "cat", "2.jpg"), ("3.jpg", "cat", "other")
    samples[2] = ("4.jpg", "dog", "mended")
    change = compare(tmp_path, samples, may_change={"4.jpg", "5.jpg"}, classes=("cat", "bird", "dog"))
    assert record.explain("training", change) == [
        "training: 8 samples, now 13",
        "training: 2 classes, now 3",
        "training: new classes: bird",
        "training: 7 added: new 0.jpg, new 1.jpg, new 2.jpg, new 3.jpg, new 4.jpg ...",
        "training: 2 removed: 0.jpg, 1.jpg",
        "training: 1 with another label: 2.jpg (dog -> cat)",
        "training: 1 with other contents: 3.jpg",
    ]
    assert change.mended == ("4.jpg",)
    assert change.counts == {"added": 7, "removed": 2, "relabeled": 1, "changed": 1, "mended": 1}


def test_many_classes_are_compared_once():
    class Names(tuple):
        passes = 0

        def __iter__(self):
            self.passes += 1
            return super().__iter__()

    before, now = (Names(f"{side} {number}" for number in range(100)) for side in "ab")
    assert next(record._class_changes(before, now)).startswith("classes that are gone: a 0")
    assert before.passes <= 2 and now.passes <= 2


def test_a_mended_sample_alone_is_no_other_data(tmp_path):
    samples = [*base()[:-1], ("7.jpg", "cat", "whole again")]
    change = compare(tmp_path, samples, may_change={"7.jpg"})
    assert change.mended == ("7.jpg",) and not record.explain("x", change)
    assert compare(tmp_path, samples).changed == ("7.jpg",)
    samples[-1] = ("7.jpg", "dog", "whole again")
    assert compare(tmp_path, samples, may_change={"7.jpg"}).relabeled == ("7.jpg (cat -> dog)",)


def test_order_counts_of_samples_of_classes_and_of_the_files_of_a_sample(tmp_path):
    assert record.explain("x", compare(tmp_path, base()[::-1])) == ["x: the order differs, first at 7.jpg"]
    swapped = compare(tmp_path, base(), classes=("dog", "cat"))
    assert swapped.classes == ("the order of the classes differs: 0 was cat, now it is dog",)
    assert compare(tmp_path, base(), classes=range(3)).classes == ("2 classes, now 3",)
    names = ["image", "mask"]
    for name in names:
        touch(tmp_path, name, content=name.encode())
    files = tuple(Content(str(tmp_path / name)) for name in names)
    one, other = (
        record.build((1, (), [Item("x", "", given)]), (0, (), ()), str(tmp_path), "full").train
        for given in (files, files[::-1])
    )
    assert record.compare(one, other, lambda name: False).changed == ("x",)


def test_repeated_names_are_told_apart(tmp_path):
    samples = [*base(), base()[0]]
    change = compare(tmp_path, samples)
    assert change.added == ("0.jpg",) and not change.removed and not change.changed


def test_items_without_files_have_the_digest_that_is_given(tmp_path):
    def val(digest):
        return build(tmp_path, base()[:1], val=[Item("lfw.bin", "20", digest=digest)]).val

    assert record.items(val(b"abcdef")) == [("lfw.bin", "20", int.from_bytes(b"abcd", "little"))]
    assert record.compare(val(b"abcd"), val(b"abce"), lambda name: False).changed == ("lfw.bin",)


def test_names_of_any_bytes_and_a_few_bytes_per_sample(tmp_path):
    strange = ["caf\udce9 \n.jpg", "ж.jpg"]
    found = build(tmp_path, [(name, "cat", "") for name in strange])
    assert [name for name, _, _ in record.items(found.train)] == strange
    items = [Item(f"train/n{k // 1300:08d}/n{k // 1300:08d}_{7 * k}.JPEG", f"n{k // 1300:08d}") for k in range(20000)]
    large = record.build((20000, range(16), items), (0, range(16), ()), str(tmp_path), "sampled").train
    assert (len(large.text) + large.digests.nbytes) / 20000 < 10


def test_a_damaged_record_is_noticed_and_costs_no_memory(tmp_path):
    split = build(tmp_path, base()).train
    bomb = zlib.compress(bytes(1 << 28))
    for damaged in (split.text[:-1], b"", b"no zlib", bomb, zlib.compress(b"a\0b\0")):
        with pytest.raises(ValueError):
            record.items(split._replace(text=damaged))
    with pytest.raises(ValueError):
        record.items(split._replace(digests=np.zeros(9, np.uint32)))
