"""Faces in packs, lists and folders, pairs of several sets, held-out identities, and the messages for bad input."""

import itertools
import os
import pickle

import numpy as np
import pytest

from tests.helpers import packs
from tests.helpers.face_sets import (
    IDENTITIES,
    IMAGES_EACH,
    PACK,
    SIZE,
    add_bin,
    load,
    value,
    values_and_labels,
    write_set,
)
from zoo.data.datasets import faces
from zoo.data.errors import BadSample, UserError
from zoo.data.stream import open_evaluation

RNG = np.random.default_rng(0)


def error_message(root, **keys):
    with pytest.raises(UserError) as caught:
        load(root, **keys)
    return str(caught.value)


@pytest.mark.parametrize("layout", ["rec", "list", "folder"])
def test_every_layout_gives_the_same_set(tmp_path, layout):
    train, val = load(write_set(tmp_path, layout))
    assert values_and_labels(train) == [
        (value(identity, number), identity) for identity in range(IDENTITIES) for number in range(IMAGES_EACH)
    ]
    assert train.classes == (
        tuple(f"p{identity}" for identity in range(IDENTITIES)) if layout == "folder" else range(IDENTITIES)
    )
    assert val.classes == train.classes and train.views == 1 and train.notes == ()
    assert [(field.name, field.shape, field.dtype, field.missing) for field in train.fields] == [
        ("image", (SIZE, SIZE, 3), "uint8", 0),
        ("label", (), "int64", -1),
    ]
    assert train.name(7) == {"rec": "train.rec key 8", "list": "images/p1/2.png", "folder": "train/p1/2.png"}[layout]
    for other in {"rec", "list", "folder"} - {layout}:
        assert str(tmp_path) in error_message(tmp_path, format=other)


def test_normalizations(tmp_path):
    train, _ = load(write_set(tmp_path, "rec"))
    assert train.fields[0].mean == train.fields[0].std == (0.5, 0.5, 0.5)
    train, val = load(tmp_path, normalisation="plsc")
    for field in (train.fields[0], val.fields[0]):
        assert np.allclose((200 / 255 - np.array(field.mean)) / field.std, (200 - 127.5) / 128, atol=1e-12)


def test_a_folder_per_identity_needs_no_verification_sets(tmp_path):
    """The recipes name published ones, which own faces do not come with."""
    names = ("lfw.bin", "cfp_fp.bin", "agedb_30.bin")
    (write_set(tmp_path, "folder") / "lfw.bin").unlink()
    train, val = load(tmp_path, verification=names, val_pairs=10)
    assert len(train.classes) == 4 and [name for name, *_ in val.sets] == ["held_out"]
    assert val.protocol == load(tmp_path, verification=(), val_pairs=10)[1].protocol
    assert train.notes[0].startswith(f"{tmp_path} has none of lfw.bin, cfp_fp.bin, agedb_30.bin: 2 of 6 ")
    assert "there is no own.bin in" in error_message(tmp_path, verification=("own.bin",))
    add_bin(tmp_path, "lfw.bin")
    assert "there is no cfp_fp.bin in" in error_message(tmp_path, verification=names)


@pytest.mark.parametrize("layout", ["rec", "list"])
def test_packs_and_lists_need_the_sets_of_their_recipe(layout, tmp_path):
    (write_set(tmp_path, layout) / "lfw.bin").unlink()
    assert "there is no lfw.bin in" in error_message(tmp_path)


def test_pairs_of_several_sets_are_concatenated(tmp_path):
    write_set(tmp_path, "folder")
    add_bin(tmp_path, "agedb_30.bin", 12)
    (tmp_path / "own.txt").write_text("train/p0/0.png train/p5/4.png 0\ntrain/p0/0.png train/p0/4.png 1\n" * 5)
    _, val = load(tmp_path, verification=("lfw", "own.txt", "agedb_30.bin"))
    assert val.sets == (("lfw", 0, 10), ("own", 10, 10), ("agedb_30", 20, 12)) and len(val) == 32 and val.views == 2
    assert [(field.name, field.shape, field.missing) for field in val.fields] == [
        ("image", (2, SIZE, SIZE, 3), 0),
        ("label", (), -1),
    ]
    samples = [val.sample(index, RNG) for index in range(32)]
    assert [tuple(row["image"][:, 0, 0, 0]) for row in samples] == (
        [(number, number + 100) for number in range(10)]
        + [(0, value(5, 4)), (0, value(0, 4))] * 5
        + [(number, number + 100) for number in range(12)]
    )
    assert [int(row["label"]) for row in samples] == [1, 0] * 5 + [0, 1] * 5 + [1, 0] * 6

    assert val.name(21) == "agedb_30 pair 1 (agedb_30.bin image 2, agedb_30.bin image 3)"
    assert val.name(10) == "own pair 0 (train/p0/0.png, train/p5/4.png)"


def test_the_last_identities_of_a_pack_are_held_out(tmp_path):
    train, val = load(write_set(tmp_path, "rec"), verification=(), val_fraction=0.34, val_pairs=20)
    assert values_and_labels(train) == [
        (value(identity, number), identity) for identity in range(4) for number in range(IMAGES_EACH)
    ]
    assert len(train.classes) == len(val.classes) == 4 and len(train.notes) == 1 and "last 2 of 6" in train.notes[0]
    assert identities_of(val, 20) == {4, 5}
    again = load(tmp_path, verification=(), val_fraction=0.34, val_pairs=20)
    assert faces.describe(train, val).checksum == faces.describe(*again).checksum
    other = load(tmp_path, verification=(), val_fraction=0.34, val_pairs=18)
    assert faces.describe(train, val).checksum != faces.describe(*other).checksum


def identities_of(val, count):
    """Return the identities of held-out pairs, after a check that every other pair shows one of them."""
    assert val.sets == (("held_out", 0, count),)
    samples = [val.sample(index, RNG) for index in range(count)]
    identities = np.array([sample["image"][:, 0, 0, 0] // 40 for sample in samples])
    same = (identities[:, 0] == identities[:, 1]).astype(int).tolist()
    assert [int(sample["label"]) for sample in samples] == same == [1, 0] * (count // 2)
    return set(identities.ravel().tolist())


@pytest.mark.parametrize("layout", ["list", "folder"])
def test_identities_in_files_are_held_out_by_content(tmp_path, layout):
    keys = {"verification": (), "val_fraction": 0.34, "val_pairs": 20}
    train, val = load(write_set(tmp_path, layout), **keys)
    held = identities_of(val, 20)
    trained = values_and_labels(train)
    labels = dict(sorted((label, pixel // 40) for pixel, label in trained))
    assert len(held) == 2 and sorted(labels) == [0, 1, 2, 3] and {*labels.values()} == {*range(6)} - held
    assert len(trained) == 4 * IMAGES_EACH and "2 of 6 identities, by the contents" in train.notes[0]
    if layout == "folder":
        assert train.classes == tuple(f"p{identity}" for identity in labels.values())
        for identity in range(IDENTITIES):  # other names in another order
            os.rename(tmp_path / f"train/p{identity}", tmp_path / f"train/{9 - identity}")
        assert identities_of(load(tmp_path, **keys)[1], 20) == held


def test_identities_with_one_image_stay_in_training_and_those_that_share_a_copy_stay_together(tmp_path):
    keys = {"verification": (), "val_fraction": 0.34, "val_pairs": 20}
    write_set(tmp_path, "folder")
    held = identities_of(load(tmp_path, **keys)[1], 20)
    first, second = sorted(held)
    other = min({*range(6)} - held)
    for number in range(1, IMAGES_EACH):
        (tmp_path / f"train/p{first}/{number}.png").unlink()
    now = identities_of(load(tmp_path, **keys)[1], 20)
    assert second in now and first not in now and len(now) == 2
    (tmp_path / f"train/p{other}/copy.png").write_bytes((tmp_path / f"train/p{second}/0.png").read_bytes())
    train, _ = load(tmp_path, **keys)
    assert {f"p{other}", f"p{second}"}.isdisjoint(train.classes)


def test_more_identities_are_held_out_where_they_have_too_few_images_for_ten_pairs(tmp_path):
    for identity, number in itertools.product(range(12), range(2)):
        (tmp_path / f"train/p{identity}").mkdir(parents=True, exist_ok=True)
        image = packs.encoded_image(20 * identity + number, SIZE)
        (tmp_path / f"train/p{identity}/{number}.png").write_bytes(image)
    train, val = load(tmp_path, verification=(), val_fraction=0.2)
    assert len(train.classes) == 7 and val.sets == (("held_out", 0, 10),)  # five persons, with a pair each


def test_unsorted_packs_cannot_hold_out_identities(tmp_path):
    order = np.random.default_rng(0).permutation(30)
    packs.write(
        tmp_path,
        {
            key: packs.content(PACK[at // IMAGES_EACH][at % IMAGES_EACH], at // IMAGES_EACH)
            for key, at in enumerate(order)
        },
    )
    message = error_message(tmp_path, verification=(), num_classes=IDENTITIES)
    assert "not in the order of their identities" in message and "data.verification" in message


def test_too_few_identities_to_hold_out(tmp_path):
    packs.write(tmp_path, packs.face_pack(PACK[:3]))
    assert "3 identities are too few to hold some out" in error_message(tmp_path, verification=())


@pytest.mark.parametrize(
    "line, expected",
    [
        ("a.png x", "label.txt:2: expected"),
        ("a.png", "label.txt:2: expected"),
        ("a.png -1", "label.txt:2: expected"),
        ("a.png " + "9" * 30, "label.txt:2: "),
        ("images/p0/0.png 1", "label.txt: images/p0/0.png has the labels 0 and 1; remove one"),
    ],
)
def test_invalid_lines_of_a_list(tmp_path, line, expected):
    write_set(tmp_path, "list")
    (tmp_path / "label.txt").write_text(f"images/p0/0.png 0\n{line}\n")
    assert expected in error_message(tmp_path)


def test_lists_with_other_names_and_spaces_in_paths(tmp_path):
    write_set(tmp_path, "list")
    os.rename(tmp_path / "images/p1", tmp_path / "images/p one")
    text = "\ufeff" + (tmp_path / "label.txt").read_text().replace("p1", "p one")
    (tmp_path / "other.list").write_bytes(text.replace("\n", "\r\n\r\n").encode())
    (tmp_path / "label.txt").unlink()
    train, _ = load(tmp_path, train="other.list", num_classes=8)
    assert len(values_and_labels(train)) == 30 and train.classes == range(8) and train.name(5) == "images/p one/0.png"
    assert "label 5, but data.num_classes is 5" in error_message(tmp_path, train="other.list", num_classes=5)
    assert "cannot read this list" in error_message(tmp_path, train="none.list")
    (tmp_path / "other.list").write_text("\n")
    assert "the list is empty" in error_message(tmp_path, train="other.list")
    (tmp_path / "other.list").write_text("p9/0.png 0\np9/1.png 1\n")
    assert "none of the first 2 images" in error_message(tmp_path, train="other.list")


def test_invalid_folders(tmp_path):
    write_set(tmp_path, "folder")
    assert len(load(tmp_path, train="train")[0]) == 30
    assert "leave it out" in error_message(tmp_path, num_classes=6)
    (tmp_path / "train/p9").mkdir()
    assert "p9: there is no image in this folder" in error_message(tmp_path)
    (tmp_path / "empty").mkdir()
    assert "neither a pack train.rec, a list label.txt nor a folder" in error_message(tmp_path / "empty")
    assert "there is no folder" in error_message(tmp_path / "nowhere")
    (tmp_path / "empty/p0").mkdir()
    (tmp_path / "empty/p0/0.png").write_bytes(PACK[0][0])
    assert "only one identity, p0" in error_message(tmp_path / "empty")


def test_misspelt_names_of_files_and_folders(tmp_path):
    """An identity may be called almost train, as long as it holds images itself."""
    write_set(tmp_path, "folder")
    assert error_message(tmp_path, train="tran").endswith(f"; did you mean {tmp_path}/train?")
    (tmp_path / "lfw.bin").write_bytes(b"")
    assert error_message(tmp_path, verification=["lwf.bin"]).endswith(f"; did you mean {tmp_path}/lfw.bin?")
    (tmp_path / "pairs.txt").write_text("train/p00/0.png train/p1/0.png 0\n")
    assert f"did you mean {tmp_path}/train/p0?" in error_message(tmp_path, verification=["pairs.txt"])
    (tmp_path / "train/p0").rename(tmp_path / "train/trina")
    load(tmp_path / "train", verification=[])
    (tmp_path / "train").rename(tmp_path / "trian")
    message = f"{tmp_path}: there is no folder train; did you mean {tmp_path}/trian?"
    assert error_message(tmp_path, verification=[]).startswith(message)


def test_folders_in_the_root_itself(tmp_path):
    write_set(tmp_path, "folder")
    for identity in range(IDENTITIES):
        os.rename(tmp_path / f"train/p{identity}", tmp_path / f"p{identity}")
    (tmp_path / "train").rmdir()
    train, _ = load(tmp_path)
    assert len(values_and_labels(train)) == 30 and train.name(0) == "p0/0.png"


@pytest.mark.parametrize("layout", ["rec", "list", "folder"])
def test_images_of_another_size(tmp_path, layout):
    write_set(tmp_path, layout)
    message = error_message(tmp_path, size=16)
    assert "12 x 12 pixels, not 16 x 16" in message and "data.resize=true" in message
    train, val = load(tmp_path, size=16, resize=True)
    image = train.sample(9, RNG)["image"]
    assert image.shape == (16, 16, 3) and (image[..., 0] == value(1, 4)).all()
    assert val.sample(0, RNG)["image"].shape == (2, 16, 16, 3)
    image = load(tmp_path, size=4, resize=True, flip=False)[0].sample(9, RNG)["image"]
    assert image[0, :, 1].tolist() == [1, 4, 7, 10]  # means of three columns


def test_verification_images_are_checked_before_a_run(tmp_path):
    write_set(tmp_path, "rec")
    images = [packs.encoded_image(number) for number in range(20)]
    for damaged, reason in ((b"no image", "not an image"), (packs.encoded_image(1, 16), "16 x 16 pixels, not 12 x 12")):
        (tmp_path / "lfw.bin").write_bytes(pickle.dumps((images[:13] + [damaged] + images[14:], [True] * 9 + [False])))
        message = error_message(tmp_path)
        assert "lfw.bin image 13: " in message and reason in message and "eval_bad=wrong" in message
    _, val = load(tmp_path, eval_bad="wrong")
    ((batch, bad),) = open_evaluation(val, 1, 10)
    assert batch["label"].tolist() == [1] * 6 + [-1, 1, 1, 0] and batch["index"].tolist()[5:8] == [5, 6, 7]
    assert bad[0].name == "lfw pair 6 (lfw.bin image 12, lfw.bin image 13)" and "image 13: 16 x" in bad[0].reason
    truncated = packs.encode(np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3), np.uint8), "PNG")[:-200]
    (tmp_path / "lfw.bin").write_bytes(pickle.dumps((images[:13] + [truncated] + images[14:], [True] * 9 + [False])))
    with pytest.raises(BadSample, match="lfw.bin image 13: cannot be decoded"):
        load(tmp_path)[1].sample(6, RNG)


def test_no_face_is_mirrored_where_the_recipe_rules_it_out(tmp_path):
    write_set(tmp_path, "rec")
    for flip, expected in ((True, {False, True}), (False, {False})):
        train, _ = load(tmp_path, flip=flip)
        images = (train.sample(3, np.random.default_rng(seed))["image"] for seed in range(20))
        assert {bool(image[0, 0, 1] == SIZE - 1) for image in images} == expected
