"""The demo set of faces: recorded bytes, honest pairs of unseen persons, and heads whose pixels, taken in their places,
do not betray who it is."""

import hashlib
import os

import numpy as np
import pytest

from data import order
from data.datasets import faces
from data.demo import portraits
from data.demo.common import portrait
from data.errors import UserError
from data.formats import images
from data.stream import open_evaluation, open_training
from zoo.tasks.face import Metric

PIXELS = "e42e4ec394cc25cd4767bb06165558b5"
FILES = "60d75f8f8349ace4b3ed6132e9f9be0d"
SMALL = {"identities": 3, "shots": 2, "val_identities": 4, "val_shots": 3, "val_pairs": 20, "size": 24}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("portraits") / "set")
    portraits.make(settings(folder))
    return folder


def settings(root, **keys):
    return portraits.Settings(**{"root": str(root), "workers": 0, **SMALL, **keys})


def files(root):
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                found[os.path.relpath(os.path.join(folder, name), root)] = file.read()
    return found


def digest(parts):
    return hashlib.md5(b"".join(parts)).hexdigest()


def rng(number=0):
    return order.generator(0, "test", number)


def drawn(who, shot, side=48, variation=1.0):
    random = order.generator(0, f"shot of {who}", shot)
    return portrait.render(portrait.person(rng(who)), portrait.look(random, variation), random, side)


def plain(**turned):
    """Seen from the front, in even light, in a neutral mood; but for what is given."""
    return portrait.look(rng(), 0.0)._replace(**turned)


def place(view, u=0.0, v=0.0, side=96):
    """Column and row of the pixel that sees a place of a head, in halves of the picture from its middle."""
    s = portrait._surface(portrait.person(rng(3)), view, side)
    near = np.where(s.z > 0, (s.u - u) ** 2 + (s.v - v) ** 2, np.inf).argmin()
    return (np.array([near % side, near // side]) + 0.5) / side * 2 - 1


def verified(shots, feature):
    """Accuracy over 120 pairs of 30 persons, pictures (30, 4, H, W, 3), by the distance of what `feature` makes of
    them."""
    seen = np.array([[feature(image).ravel() for image in mine] for mine in shots.astype(float)])
    others = np.roll(seen, 7, 0)
    pairs = [
        (seen[who, first], rest[who, second])
        for who in range(30)
        for rest, first, second in ((seen, 0, 1), (others, 0, 0), (seen, 2, 3), (others, 1, 1))
    ]
    metric = Metric(type("Pairs", (), {"sets": (("all", 0, 120),), "__len__": lambda _: 120})())
    metric.update(
        np.array(pairs, np.float32).reshape(240, 1, -1),
        {"label": np.tile([1, 0], 60), "pair": np.arange(120), "valid": np.ones(120)},
    )
    return metric.result(metric.state)["accuracy"]


def raw(image):
    return image / 127.5 - 1


def even(image):
    """Every colour with the same mean and contrast."""
    return (image - image.mean((0, 1))) / image.std((0, 1))


def colours(image):
    return raw(image).mean((0, 1))


def test_recorded_pixels():
    assert digest(drawn(who, shot).tobytes() for who in range(4) for shot in range(3)) == PIXELS


def test_recorded_files(root):
    """Pillow and its JPEG library are pinned with the rest."""
    found = files(root)
    assert digest(name.encode() + found[name] for name in sorted(found)) == FILES


def test_pixels_in_their_places_tell_little():
    """What the demo's net is to beat; without pose, light and mood the very same comparison succeeds."""
    shots, still = (
        np.array([[drawn(who, shot, variation=variation) for shot in range(4)] for who in range(30)])
        for variation in (1.0, 0.0)
    )
    for feature in (raw, even, colours):
        assert verified(shots, feature) < 0.8, feature
    assert verified(still[:, :, 10:40, 10:38], even) > 0.95


def test_light_and_background_are_drawn_alike_for_everybody():
    """What surrounds a head says nothing about whose it is."""
    corners = np.array([[drawn(who, shot)[:6, :6].mean((0, 1)) for shot in range(12)] for who in range(12)])
    between = corners.mean(1).var(0)
    assert (between < 2.5 * corners.var(1).mean(0) / 12).all() and (corners.std(1).mean(0) > 30).all()


def test_persons_differ_where_nothing_else_does():
    seen = np.array([portrait.render(portrait.person(rng(who)), plain(), rng(), 48) for who in range(12)], float)
    apart = np.abs(seen[:, None] - seen[None]).mean((2, 3, 4))
    assert apart[~np.eye(12, dtype=bool)].min() > 4 and np.diag(apart).max() == 0


@pytest.mark.parametrize("key", sorted(set(portrait.View._fields) - {"ambient"}))
def test_everything_of_a_view_shows(key):
    value = {"shift": (0.09, 0.0), "light": (1.0, 0.0, 0.8), "zoom": 1.07, "wide_eyes": 1.3}.get(key, 0.12)
    base = plain(ambient=0.5)
    one, other = (
        portrait.render(portrait.person(rng(3)), view, rng(), 48).astype(int)
        for view in (base, base._replace(**{key: value}))
    )
    assert np.abs(one - other).max() > 25


def test_a_measure_of_a_person_changes_the_picture():
    who = portrait.person(rng(3))._replace(beard=0.5, bridge=0.3, cheeks=0.3, moles=((0.3, 0.3, 0.05),))
    least = {}
    base = portrait.render(who, plain(), rng(), 48).astype(int)
    for key, value in who._asdict().items():
        changed = value * 0.6 if key != "moles" else ()
        least[key] = np.abs(portrait.render(who._replace(**{key: changed}), plain(), rng(), 48) - base).max()
    assert min(least.values()) > 2, least  # of 255; were it without effect, 0


def test_heads_turn_the_way_they_are_told():
    front = place(plain())
    assert np.abs(front).max() < 0.03
    assert place(plain(yaw=0.4))[0] > front[0] + 0.2 and abs(place(plain(yaw=0.4))[1] - front[1]) < 0.03
    assert place(plain(pitch=0.2))[1] > front[1] + 0.1 and abs(place(plain(pitch=0.2))[0] - front[0]) < 0.03
    assert place(plain(shift=(0.1, -0.1))) == pytest.approx((0.088, -0.088), abs=0.02)
    ear = place(plain(), u=0.5)
    assert place(plain(zoom=1.5), u=0.5) == pytest.approx(ear * 1.5, abs=0.03)
    turned = place(plain(roll=0.16), u=0.5)
    assert turned[1] == pytest.approx(0.16 * ear[0], abs=0.03) and turned[0] < ear[0] + 0.02


def test_the_nose_moves_more_than_the_face_below():
    surface = portrait._surface(portrait.person(rng(3)), plain(yaw=0.3), 96)
    out = surface.turned(0.16, plain(yaw=0.3))
    tip, below = (np.where(s.z > 0, np.abs(s.u) + np.abs(s.v), np.inf).argmin() % 96 for s in (out, surface))
    assert tip > below


def test_the_lit_side_is_brighter():
    view = plain(light=(1.0, 0.0, 0.5), ambient=0.3)
    surface = portrait._surface(portrait.person(rng(3)), view, 48)
    light = portrait._light(view, surface)
    assert light[surface.x > 0.5].mean() > 2 * light[surface.x < -0.5].mean()
    assert (portrait._light(plain(), surface) == 1).all()


def test_the_pairs_are_honest(root):
    """Balanced, one person and two in turn, no pair twice, of persons that nobody trains on, and all there."""
    with open(os.path.join(root, "unseen.txt"), encoding="utf-8") as file:
        lines = [line.split() for line in file]
    assert len(lines) == 20 and [line[2] for line in lines] == ["1", "0"] * 10
    assert len({tuple(sorted(line[:2])) for line in lines}) == 20
    for first, second, same in lines:
        assert first != second and (os.path.dirname(first) == os.path.dirname(second)) == (same == "1")
        assert all(path.startswith("unseen/") and os.path.isfile(os.path.join(root, path)) for path in (first, second))
    found = [name for name in files(root) if name.endswith(".jpg")]
    assert len(found) == 3 * 2 + 4 * 3 and len({files(root)[name] for name in found}) == len(found)


def test_most_pairs_that_there_are(tmp_path):
    """12 of one person from 4 times 3 pictures: all of them, once."""
    most = settings(tmp_path / "set", val_pairs=24)
    same = {line[:2] for line in portraits._pairs(most) if line[2] == "1"}
    assert len(same) == 12 == len(set(portraits._pairs(most))) / 2


def test_loads_as_faces(root):
    train, val = portraits.load(settings(root))
    assert isinstance(train, faces.FaceSplit) and isinstance(val, faces.VerificationPairs)
    assert (len(train), len(train.classes), len(val)) == (6, 3, 20) and val.sets == (("unseen", 0, 20),)
    labels = [int(train.sample(index, rng())["label"]) for index in range(6)]
    assert labels == [0, 0, 1, 1, 2, 2]
    sample = val.sample(1, rng())
    assert sample["image"].shape == (2, 24, 24, 3) and int(sample["label"]) == 0
    stored = drawn_as_stored(settings(root), "train", 1, 0)
    image = faces.load(settings(root, flip=False))[0].sample(2, rng())["image"]
    assert np.abs(image.astype(int) - stored).mean() < 6  # but for JPEG


def drawn_as_stored(s, split, who, shot):
    random = order.generator(portraits.SEED, f"{split} {who}", shot)
    person = portrait.person(order.generator(portraits.SEED, f"{split} person", who))
    return portrait.render(person, portrait.look(random, s.variation), random, s.size).astype(int)


def test_streams(root):
    train, val = portraits.load(settings(root))
    batches = [batch for batch, _ in open_training(train, 1, 3, 0, 2)]
    assert sorted(np.concatenate([batch["label"] for batch in batches])) == [0, 0, 1, 1, 2, 2]
    assert sum(batch["valid"].sum() for batch, _ in open_evaluation(val, 1, 6)) == 20


def test_load_makes_the_set_once_and_always_the_same(root, tmp_path, monkeypatch, capsys):
    first = portraits.load(settings(tmp_path / "deep" / "set"))
    assert "demo set" in capsys.readouterr().out
    monkeypatch.setattr(portraits, "make", lambda *_: pytest.fail("made again"))
    again = portraits.load(settings(tmp_path / "deep" / "set"))
    sums = {portraits.checksum(*splits) for splits in (first, again, portraits.load(settings(root)))}
    assert len(sums) == 1
    assert files(tmp_path / "deep" / "set") == files(root)


@pytest.mark.parametrize("key, value", [("variation", 0.5), ("size", 32), ("val_pairs", 10), ("shots", 3)])
def test_foreign_folders_and_other_settings_are_refused(root, tmp_path, key, value):
    with pytest.raises(UserError, match="not a demo set.*portraits.json.*data.root"):
        portraits.load(settings(tmp_path))
    with pytest.raises(UserError, match="other settings.*data.root"):
        portraits.load(settings(root, **{key: value}))


@pytest.mark.parametrize(
    "key, value",
    [
        ("size", 8),
        ("identities", 1),
        ("shots", 0),
        ("val_identities", 1),
        ("val_shots", 1),
        ("variation", -0.1),
        ("variation", 1.5),
        ("val_pairs", 26),
        ("val_pairs", 21),
        ("val_pairs", 0),
    ],
)
def test_settings_that_cannot_be(key, value):
    with pytest.raises(ValueError, match=f"^{key}:" if key[:4] != "val_" else "^val_"):
        portraits.Settings(**{**SMALL, key: value})


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    written, write = [], images.write_jpeg

    def fail(path, pixels, quality):
        written.append(path)
        if len(written) == 5:
            raise OSError("disk full")
        write(path, pixels, quality)

    monkeypatch.setattr(images, "write_jpeg", fail)
    with pytest.raises(OSError, match="disk full"):
        portraits.load(settings(tmp_path / "set"))
    assert len(written) >= 5 and os.listdir(tmp_path) == []
