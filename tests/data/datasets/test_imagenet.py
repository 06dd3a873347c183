"""ImageNet in every folder layout, the messages for every mistake in one, and its samples."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from zoo.data.augment import steps
from zoo.data.datasets import imagenet
from zoo.data.errors import UserError
from zoo.data.formats import images
from zoo.data.formats.class_names import read_classes

TENCH, FISH, SHARK = "n01440764", "n01443537", "n01484850"


def make_image(width=40, height=30, color=(200, 30, 60)):
    image = Image.new("RGB", (width, height), color)
    image.putpixel((width // 3, height // 2), (0, 0, 0))
    return image


def write_files(root, *paths, color=(200, 30, 60)):
    """Write images for paths with an image extension, folders for a final slash, else text files."""
    for name in paths:
        path = Path(root) / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if name.lower().endswith(images.EXTENSIONS):
            make_image(color=color).save(path, "JPEG")
        elif not name.endswith("/"):
            path.write_text(name)


def text(root, name, content):
    (Path(root) / name).write_text(content, encoding="utf-8")
    return str(Path(root) / name)


def load(root, **keys):
    return imagenet.load(imagenet.Settings(**{"root": str(root), "size": 16, "workers": 0, **keys}))


def pairs(split):
    return [(split.name(index), int(split.labels[index])) for index in range(len(split))]


def error_message(root, **keys):
    with pytest.raises(UserError) as caught:
        load(root, **keys)
    return str(caught.value)


def write_tree(root):
    write_files(
        root,
        f"train/{FISH}/b.JPEG",
        f"train/{TENCH}/a.JPEG",
        f"train/{TENCH}/z.JPEG",
        f"val/{FISH}/v.JPEG",
        f"val/{TENCH}/w.JPEG",
    )


def test_class_folders_are_labeled_in_the_order_of_their_names(tmp_path):
    write_tree(tmp_path)
    write_files(
        tmp_path,
        f"train/{TENCH}/._a.JPEG",
        f"train/{TENCH}/notes.txt",
        "train/.cache/x.JPEG",
        "train/stray.JPEG",
        f"train/{TENCH}/deep/d.png",
    )
    train, val = load(tmp_path)
    assert train.classes == val.classes == (TENCH, FISH) and train.training and not val.training
    assert pairs(train) == [
        (f"train/{TENCH}/a.JPEG", 0),
        (f"train/{TENCH}/z.JPEG", 0),
        (f"train/{TENCH}/deep/d.png", 0),
        (f"train/{FISH}/b.JPEG", 1),
    ]
    assert pairs(val) == [(f"val/{TENCH}/w.JPEG", 0), (f"val/{FISH}/v.JPEG", 1)]


@pytest.mark.parametrize(
    "name, prefix", [("val_list.txt", "val/"), ("val.txt", ""), ("val.list", "val/"), ("val_list.txt", "")]
)
def test_the_official_flat_val_folder_with_a_list(name, prefix, tmp_path):
    write_tree(tmp_path / "x")
    os.rename(tmp_path / "x/train", tmp_path / "train")
    write_files(tmp_path, "val/ILSVRC2012_val_00000001.JPEG", "val/ILSVRC2012_val_00000002.JPEG")
    text(tmp_path, name, f"{prefix}ILSVRC2012_val_00000001.JPEG 1\n{prefix}ILSVRC2012_val_00000002.JPEG 0\n")
    train, val = load(tmp_path)
    assert pairs(val) == [("val/ILSVRC2012_val_00000001.JPEG", 1), ("val/ILSVRC2012_val_00000002.JPEG", 0)]
    assert val.classes == (TENCH, FISH) and len(train) == 3
    assert val.sample(0, np.random.default_rng(0))["image"].shape == (16, 16, 3)


def test_lists_of_both_splits(tmp_path):
    write_tree(tmp_path)
    text(tmp_path, "train_list.txt", f"train/{TENCH}/a.JPEG 0\ntrain/{FISH}/b.JPEG 1\n")
    text(tmp_path, "val_list.txt", f"val/{FISH}/v.JPEG 1\n")
    train, val = load(tmp_path)
    assert pairs(train) == [(f"train/{TENCH}/a.JPEG", 0), (f"train/{FISH}/b.JPEG", 1)]
    assert pairs(val) == [(f"val/{FISH}/v.JPEG", 1)] and val.classes == (TENCH, FISH)
    (tmp_path / "lists").mkdir()
    other = text(tmp_path / "lists", "other.txt", f"val/{TENCH}/w.JPEG 0\n")
    assert pairs(load(tmp_path, train_list=other)[0]) == [(f"val/{TENCH}/w.JPEG", 0)]


def test_lists_and_names_are_looked_for_in_the_root_too(tmp_path, monkeypatch):
    write_files(tmp_path, "x/a.jpg", "x/b.jpg")
    text(tmp_path, "own.txt", "x/a.jpg 0\nx/b.jpg 1\n")
    text(tmp_path, "own_names.txt", "zero\none\n")
    try:
        train, val = load(tmp_path, train_list="own.txt", val_list="own.txt", names="own_names.txt")
    except UserError as error:
        pytest.fail(str(error))
    assert pairs(train) == pairs(val) == [("x/a.jpg", 0), ("x/b.jpg", 1)] and train.classes == ("zero", "one")
    (tmp_path / "here").mkdir()
    text(tmp_path / "here", "own.txt", "x/b.jpg 1\n")
    monkeypatch.chdir(tmp_path / "here")  # the current folder comes first
    assert pairs(load(tmp_path, train_list="own.txt", val_list="own.txt", names="own_names.txt")[0]) == [("x/b.jpg", 1)]


def test_list_entries_that_end_in_two_numbers_are_paths_with_spaces(tmp_path):
    write_files(tmp_path, "a/one 1.JPEG")
    text(tmp_path, "train_list.txt", "a/one 1.JPEG 0\n"), text(tmp_path, "val_list.txt", "a/one 1.JPEG 0\nb/x 7 0\n")
    assert pairs(load(tmp_path)[1]) == [("a/one 1.JPEG", 0), ("b/x 7", 0)]


WITH_IDS = {
    "synset.txt": f"{FISH} goldfish, Carassius auratus\n{SHARK} great white shark\n{TENCH} tench, Tinca tinca\n",
    "keras.json": f'{{"0": ["{FISH}", "goldfish"], "2": ["{TENCH}", "tench"], "1": ["{SHARK}", "great_white_shark"]}}',
}


@pytest.mark.parametrize("name", WITH_IDS)
def test_ids_of_a_class_file_fix_the_labels_of_folders(name, tmp_path):
    write_tree(tmp_path)
    train, val = load(tmp_path, names=text(tmp_path, name, WITH_IDS[name]))
    assert pairs(train) == [(f"train/{TENCH}/a.JPEG", 2), (f"train/{TENCH}/z.JPEG", 2), (f"train/{FISH}/b.JPEG", 0)]
    assert len(val.classes) == 3 and val.classes[2].startswith("tench") and val.classes[0].startswith("goldfish")


@pytest.mark.parametrize(
    "content",
    ["0 tench, Tinca tinca\n1 goldfish, Carassius auratus\n", "tench, Tinca tinca\ngoldfish, Carassius auratus\n"],
)
def test_names_without_ids_belong_to_the_sorted_folders(content, tmp_path):
    write_tree(tmp_path)
    train, _ = load(tmp_path, names=text(tmp_path, "imagenet1k_label_list.txt", content))
    assert train.classes == ("tench, Tinca tinca", "goldfish, Carassius auratus")
    assert [label for _, label in pairs(train)] == [0, 0, 1]


def test_folders_with_custom_names(tmp_path):
    write_files(tmp_path, "train/cat/1.jpg", "train/big dog/2.jpg", "val/cat/3.jpg")
    names = text(tmp_path, "names.txt", "cat\nbig dog\n")
    assert pairs(load(tmp_path, names=names)[0]) == [("train/big dog/2.jpg", 1), ("train/cat/1.jpg", 0)]
    assert load(tmp_path)[0].classes == ("big dog", "cat")


@pytest.mark.parametrize(
    "content, names, folders",
    [
        ('["a", "b"]', ("a", "b"), ("a", "b")),
        ('{"0": "a", "1": "b"}', ("a", "b"), ("a", "b")),
        ('{"b": 1, "a": 0}', ("a", "b"), ("a", "b")),
        ('{"1": ["f", "b"], "0": ["e", "a"]}', ("a", "b"), ("e", "f")),
        ('[["e", "a"], ["f", "a"]]', ("a", "a"), ("e", "f")),
    ],
)
def test_json_class_files(content, names, folders, tmp_path):
    assert read_classes(text(tmp_path, "x.json", content)) == (names, folders)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        "7",
        '"a"',
        '{"0": "a", "2": "b"}',
        '{"1": "a"}',
        "[1, 2]",
        '{"0": ["a"]}',
        '{"a": 1, "b": 2}',
        '{"0": ["n", "a", "b"]}',
        '{"a": 0, "b": 0}',
        "[[1, 2]]",
    ],
)
def test_json_that_is_not_a_class_file(content, tmp_path):
    path = text(tmp_path, "x.json", content)
    with pytest.raises(UserError, match="class names"):
        read_classes(path)
    with pytest.raises(UserError, match="cannot read the class names"):
        read_classes(str(tmp_path / "missing.json"))


def test_a_flat_val_folder_without_labels(tmp_path):
    write_files(
        tmp_path, f"train/{TENCH}/a.JPEG", "val/ILSVRC2012_val_00000001.JPEG", "val/ILSVRC2012_val_00000002.JPEG"
    )
    message = error_message(tmp_path)
    for part in (str(tmp_path / "val"), "2 files", "val_list.txt", "data.val_list=FILE", "val/<class>/"):
        assert part in message


@pytest.mark.parametrize(
    "paths, parts",
    [
        ([], ["neither train_list.txt nor a folder train/", "data.train_list"]),
        (["train/"], ["train", "no class folder"]),
        (["train/.hidden/a.JPEG", "train/readme"], ["no class folder"]),
        (["train/n01440764.tar", "train/n01443537.tar"], ["2 files that are in no class folder", "2 .tar"]),
        ([f"train/{TENCH}/a.heic"], ["no class folder with images", "are ignored: 1 .heic"]),
        ([f"train/{TENCH}/a.JPEG"], ["neither val_list.txt nor a folder val/", "data.val_list"]),
        ([f"train/{TENCH}/._b.JPEG", f"train/{FISH}/c.txt"], ["/train", "no class folder with images", ".jpeg"]),
        ([f"train/{TENCH}/a.JPEG", f"val/{TENCH}/"], ["/val", "no class folder with images"]),
    ],
)
def test_incomplete_layouts(paths, parts, tmp_path):
    write_files(tmp_path, *paths)
    message = error_message(tmp_path)
    assert str(tmp_path) in message and "did you mean" not in message
    for part in parts:
        assert part in message


def test_errors_in_lists(tmp_path):
    write_tree(tmp_path)
    cases = {
        f"val/{TENCH}/w.JPEG\n": ":1:",
        f"val/{TENCH}/w.JPEG 0\n\nval/{FISH}/v.JPEG one\n": ":3:",
        "": "empty",
        "490\n361\n": ":1:",
        "elsewhere/x.JPEG 0\n": "data.root",
        f"val/{TENCH}/w.JPEG 2\n": "label 2",
        f"val/{TENCH}/w.JPEG 0\nval/{FISH}/v.JPEG 0\n": "data.names",
        f"val/{TENCH}/w.JPEG 0\n./val/{TENCH}/w.JPEG 1\n": ":2:",
    }
    for content, part in cases.items():
        path = text(tmp_path, "val_list.txt", content)
        message = error_message(tmp_path)
        assert path in message and part in message and "num_frames" not in message, content
    assert "labels count from 0" in error_message(tmp_path, val_list=text(tmp_path, "x.txt", f"val/{FISH}/v.JPEG 2\n"))
    (tmp_path / "validation.txt").write_text("")
    message = error_message(tmp_path, val_list="validaton.txt")
    assert message.startswith("data.val_list: there is no file validaton.txt, neither in the current folder nor in ")
    assert message.endswith(f"; did you mean {tmp_path}/validation.txt?")


def test_errors_in_class_files(tmp_path):
    write_tree(tmp_path)
    only = text(tmp_path, "one.txt", f"{TENCH} tench\n")
    message = error_message(tmp_path, names=only)
    assert FISH in message and "data.names" in message
    three = text(tmp_path, "three.txt", "tench\ngoldfish\nshark\n")
    message = error_message(tmp_path, names=three)
    assert three in message and "3 classes" in message and "2 folders" in message and "n01440764 tench" in message
    twice = text(tmp_path, "twice.txt", f"{TENCH} tench\n{FISH} fish\n{TENCH} shark\n")
    message = error_message(tmp_path, names=twice)
    assert twice in message and TENCH in message and "0 and 2" in message


def test_labels_of_a_list_and_folders_of_other_names(tmp_path):
    """A number names its label, and folders in the list's paths theirs; other names have to be given in order."""
    numbers = [f"train/{number}/a.png" for number in range(12)]
    write_files(tmp_path, *numbers, *(f"val/{number}.png" for number in range(12)))
    text(tmp_path, "val_list.txt", "".join(f"{number}.png {number}\n" for number in range(12)))
    train, val = load(tmp_path)
    assert train.classes == val.classes == tuple(map(str, range(12)))
    assert dict(pairs(train)) == {path: number for number, path in enumerate(numbers)}
    (tmp_path / "train/11").rename(tmp_path / "train/eleven")
    message = error_message(tmp_path)
    assert "val_list.txt" in message and "-o data.names=FILE" in message
    os.makedirs(tmp_path / "val/eleven")
    text(tmp_path, "val_list.txt", "val/0/a.png 0\nval/eleven/a.png 11\n")
    write_files(tmp_path, "val/0/a.png", "val/eleven/a.png")
    _, val = load(tmp_path)
    assert [val.classes[label] for _, label in pairs(val)] == ["0", "eleven"]


def test_lists_of_both_splits_have_the_same_labels(tmp_path):
    write_files(tmp_path, *(f"{split}/{name}/a.png" for split in ("train", "val") for name in ("cat", "dog")))
    text(tmp_path, "train_list.txt", "train/cat/a.png 0\ntrain/dog/a.png 1\n")
    text(tmp_path, "val_list.txt", "val/cat/a.png 1\nval/dog/a.png 0\n")
    assert "in one split" in error_message(tmp_path)


@pytest.mark.parametrize("extension, kind", [("avif", "AVIF"), ("pgm", "PPM"), ("pbm", "PPM"), ("JFIF", "JPEG")])
def test_rarer_files_are_found_and_read(extension, kind, tmp_path):
    for name in ("train/a/x", "val/a/x"):
        (tmp_path / name).parent.mkdir(parents=True)
        image = make_image(color=(200, 200, 200)).convert("1" if extension == "pbm" else "L")
        image.save(f"{tmp_path / name}.{extension}", kind)
    train, val = load(tmp_path)
    assert val.sample(0, np.random.default_rng())["image"].mean() > 150 and len(train) == 1


def test_samples_with_and_without_antialias(tmp_path):
    """Of stripes one pixel wide, the antialiased filter leaves gray and plain interpolation does not."""
    write_files(tmp_path, "train/a/x.png", "val/a/x.png")
    stripes = Image.fromarray(np.tile(np.array([0, 255], np.uint8)[None, :, None], (90, 60, 3)))
    for split in ("train", "val"):
        stripes.save(tmp_path / split / "a/x.png")
    ranges = {}
    for antialias in (True, False):
        splits = load(tmp_path, antialias=antialias, reduce=False, scale=(1.0, 1.0), ratio=(2 / 3, 2 / 3))
        ranges[antialias] = [np.ptp(split.sample(0, np.random.default_rng(0))["image"][:, 1:-1]) for split in splits]
    assert max(ranges[True]) < 20 and min(ranges[False]) > 150


def test_the_fast_resize_is_for_training_alone(tmp_path, monkeypatch):
    """Without its library, Pillow resizes, and a note says so."""
    write_files(tmp_path, "train/a/x.png", "val/a/x.png")
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8))
    for split in ("train", "val"):
        noise.save(tmp_path / split / "a/x.png")
    exact, fast = load(tmp_path, resample="exact"), load(tmp_path)
    monkeypatch.setattr(steps, "find_spec", lambda name: None)
    without = load(tmp_path)
    samples = [split.sample(0, np.random.default_rng(0))["image"].astype(int) for split, _ in (exact, fast, without)]
    assert np.abs(samples[0] - samples[1]).max() == 1 and np.array_equal(samples[0], samples[2])
    evaluated = [split.sample(0, np.random.default_rng(0))["image"] for _, split in (exact, fast)]
    assert np.array_equal(*evaluated)
    assert exact[0].notes == fast[0].notes == () and "cykooz-resizer" in without[0].notes[0]


def test_reduced_decodes_need_antialias():
    with pytest.raises(ValueError, match="reduce.*set reduce=false"):
        imagenet.Settings(antialias=False)
    assert imagenet.Settings(antialias=False, reduce=False).antialias is False


def test_a_reduced_decode_keeps_the_crop_and_almost_all_pixels(tmp_path):
    write_files(tmp_path, "train/a/x.jpg", "val/a/x.jpg")
    y, x = np.mgrid[:600, :800]
    wave = np.stack([127 + 120 * np.sin(x / 90), 127 + 120 * np.cos(y / 80), 0 * x + 90], 2).astype(np.uint8)
    Image.fromarray(wave).save(tmp_path / "train/a/x.jpg", quality=95)
    reduced, full = (load(tmp_path, size=32, reduce=value)[0] for value in (True, False))
    differences = [
        np.abs(
            reduced.sample(0, np.random.default_rng(seed))["image"].astype(int)
            - full.sample(0, np.random.default_rng(seed))["image"]
        ).max()
        for seed in range(20)
    ]
    assert 0 < max(differences) <= 5
