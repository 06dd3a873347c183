"""Order, ranks, resume, dropout masks and unreadable samples of a stream, and training samples in an evaluation."""

import time
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from zoo.data import order
from zoo.data.batch import DropoutMask, Field
from zoo.data.dataset import LoaderSettings, TrainingSubset
from zoo.data.datasets import imagenet, kinetics, synthetic
from zoo.data.demo import motion, shapes, streets
from zoo.data.errors import BadSample, UserError
from zoo.data.stream import (
    MAX_REPLACEMENTS,
    ReadTimes,
    TimedBatch,
    UnreadableSample,
    find_bad,
    open_evaluation,
    open_training,
)

# Every fifth of 23 samples is of another class than the rest; both are shown equally often.
BALANCE = order.Balance((np.arange(23) % 5 == 0).astype(int), 1.0)
MASKS = (DropoutMask("mask", (3, 50), 0.2), DropoutMask("other", (3, 50), 0.2))


@dataclass(frozen=True)
class Numbers:
    """Sample i is the number i, two random numbers and a label. Samples in `unreadable` raise BadSample."""

    size: int = 23
    unreadable: tuple[int, ...] = ()
    balance: order.Balance | None = None
    settings: LoaderSettings = field(default_factory=lambda: LoaderSettings(workers=0, threads=2))
    classes: tuple[str, ...] = ("even", "odd")
    views: int = 1
    fields: tuple[Field, ...] = (
        Field("index", (), "int64"),
        Field("drawn", (2,), "float64"),
        Field("label", (), "int64", missing=-1),
    )

    def __len__(self):
        return self.size

    def name(self, index):
        return f"sample {index}"

    def sample(self, index, rng):
        if index in self.unreadable:
            rng.random()  # some are read in part
            raise BadSample(f"broken {index}")
        time.sleep(rng.random() / 2000)  # threads finish in any order
        return {"index": np.asarray(index), "drawn": rng.random(2), "label": np.asarray(index % 2)}


def read_batches(dataset, batch_size=4, first=0, last=6, seed=3, **keys):
    return [batch for batch, _ in open_training(dataset, seed, batch_size, first, last, **keys)]


def indices(dataset, **keys):
    return np.concatenate([batch["index"] for batch in read_batches(dataset, **keys)]).tolist()


def equal(left, right):
    return len(left) == len(right) and all(
        a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)
        for a, b in zip(left, right)
    )


def test_every_epoch_has_its_own_permutation():
    seen = indices(Numbers(24), batch_size=8, last=9)
    epochs = [tuple(seen[at : at + 24]) for at in (0, 24, 48)]
    assert all(sorted(epoch) == list(range(24)) for epoch in epochs) and len(set(epochs)) == 3
    assert seen == indices(Numbers(24), batch_size=8, last=9)
    assert seen != indices(Numbers(24), batch_size=8, last=9, seed=4)


def test_batches_cross_the_boundary_of_an_epoch():
    seen = indices(Numbers(23), batch_size=5, last=14)  # 70 samples: three epochs and one more
    assert all(sorted(seen[at : at + 23]) == list(range(23)) for at in (0, 23, 46))


def test_a_sample_is_a_function_of_its_position():
    drawn = np.concatenate([batch["drawn"] for batch in read_batches(Numbers(23), batch_size=5)])
    again = np.concatenate([batch["drawn"] for batch in read_batches(Numbers(23), batch_size=3, last=10)])
    assert np.array_equal(drawn, again) and len({tuple(row) for row in drawn}) == 30


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("balance", [None, BALANCE])
def test_ranks_split_the_batches_of_a_single_process(ranks, balance):
    numbers = Numbers(23, balance=balance)
    whole = read_batches(numbers, batch_size=8, dropout_masks=MASKS)
    parts = [
        read_batches(numbers, batch_size=8 // ranks, rank=rank, world_size=ranks, dropout_masks=MASKS)
        for rank in range(ranks)
    ]
    for step, batch in enumerate(whole):
        for name in batch:
            assert np.array_equal(batch[name], np.concatenate([part[step][name] for part in parts])), (step, name)


@pytest.mark.parametrize("first, balance", [(1, None), (5, None), (12, None), (7, BALANCE)])
def test_a_resume_is_a_slice(first, balance):
    numbers = Numbers(23, balance=balance)
    straight = read_batches(numbers, last=12, dropout_masks=MASKS)
    assert equal(read_batches(numbers, first=first, last=12, dropout_masks=MASKS), straight[first:])


@pytest.mark.slow
def test_threads_and_worker_processes_give_equal_batches():
    """One test for everything that needs worker processes, because they take seconds to start."""

    def read(workers, threads):
        dataset = Numbers(23, (3, 4, 17), settings=LoaderSettings(workers=workers, threads=threads))
        return list(open_training(dataset, 3, 4, 2, 10, dropout_masks=MASKS)), list(open_evaluation(dataset, 0, 4))

    expected = read(0, 1)
    for workers, threads in ((0, 5), (2, 3)):
        for stream, expected_stream in zip(read(workers, threads), expected):
            assert equal([batch for batch, _ in stream], [batch for batch, _ in expected_stream]), (workers, threads)
            assert [reports for _, reports in stream] == [reports for _, reports in expected_stream]
    with pytest.raises(UserError, match="in a row"):  # a worker's error keeps its type and message
        list(open_training(Numbers(9, tuple(range(9)), settings=LoaderSettings(workers=1)), 0, 2, 0, 1))


def test_dropout_masks_are_a_function_of_the_position_alone():
    masks_of_four = read_batches(Numbers(23), batch_size=4, last=6, dropout_masks=MASKS)
    masks_of_eight = read_batches(
        Numbers(7, unreadable=(1, 2)), batch_size=8, last=3, dropout_masks=MASKS
    )  # another data set and batch size
    for name in ("mask", "other"):
        masks = np.concatenate([batch[name] for batch in masks_of_four])
        assert np.array_equal(masks, np.concatenate([batch[name] for batch in masks_of_eight]))
        assert masks.shape == (24, 3, 50) and masks.dtype == np.uint8 and set(masks.ravel().tolist()) == {0, 1}
        assert len({mask.tobytes() for mask in masks}) == 24
    assert not np.array_equal(masks_of_four[0]["mask"], masks_of_four[0]["other"])
    assert not np.array_equal(
        masks_of_four[0]["mask"], read_batches(Numbers(23), seed=4, dropout_masks=MASKS)[0]["mask"]
    )


@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_dropout_masks_keep_a_fraction_of_one_minus_rate(rate):
    masks = [
        batch["mask"]
        for batch in read_batches(
            Numbers(23), batch_size=10, last=4, dropout_masks=[DropoutMask("mask", (2000,), rate)]
        )
    ]
    deviation = (rate * (1 - rate) / 80_000) ** 0.5
    assert abs(np.mean(masks) - (1 - rate)) <= 5 * deviation


def test_an_unreadable_sample_is_replaced_by_the_next_readable_one_and_reported():
    readable, damaged = Numbers(23), Numbers(23, unreadable=(5, 6, 22))
    replacement = {5: 7, 6: 7, 22: 0}
    for number, (batch, reports) in enumerate(open_training(damaged, 3, 4, 0, 12)):
        planned = read_batches(readable, first=number, last=number + 1)[0]["index"].tolist()
        assert batch["index"].tolist() == [replacement.get(index, index) for index in planned]
        assert batch["valid"].tolist() == [1] * 4
        expected = []
        for at, index in enumerate(planned):
            epoch = (number * 4 + at) // 23
            expected += [
                UnreadableSample(epoch, f"sample {i}", f"broken {i}", f"sample {replacement[index]}")
                for i in {5: (5, 6), 6: (6,), 22: (22,)}.get(index, ())
            ]
        assert reports == expected


def test_unreadable_samples_do_not_change_the_others():
    for complete, damaged in zip(read_batches(Numbers(23)), read_batches(Numbers(23, unreadable=(5,)))):
        kept = complete["index"] != 5
        assert np.array_equal(complete["index"][kept], damaged["index"][kept])
        assert np.array_equal(complete["drawn"], damaged["drawn"])  # the replacement is augmented as its position


def test_a_data_set_without_readable_samples_stops_the_run():
    with pytest.raises(UserError) as caught:
        read_batches(Numbers(5, unreadable=tuple(range(5))))
    assert str(caught.value).startswith("5 samples in a row") and "sample 3: broken 3" in str(caught.value)


def test_the_number_of_replacements_is_limited():
    longest = tuple(range(1, MAX_REPLACEMENTS))  # the longest run of unreadable samples that is accepted
    read_batches(Numbers(100, unreadable=longest), batch_size=10, last=10)
    with pytest.raises(UserError, match=f"{MAX_REPLACEMENTS} samples in a row"):
        read_batches(Numbers(100, unreadable=longest + (MAX_REPLACEMENTS,)), batch_size=10, last=10)


def evaluate(dataset, batch_size, ranks):
    return [list(open_evaluation(dataset, 0, batch_size, rank, ranks)) for rank in range(ranks)]


@pytest.mark.parametrize(
    "n, batch_size, ranks",
    [
        (1, 4, 8),
        (16, 4, 2),
        (23, 5, 3),
        (31, 1, 7),
        (25, 3, 8),
    ],
)
def test_an_evaluation_counts_every_sample_once(n, batch_size, ranks):
    streams = evaluate(Numbers(n), batch_size, ranks)
    assert {len(stream) for stream in streams} == {-(-n // (batch_size * ranks))}
    counted = []
    for stream in streams:
        for rows, reports in stream:
            assert {len(array) for array in rows.values()} == {batch_size} and reports == []
            assert [rows[f.name].dtype for f in Numbers().fields] == ["int64", "float64", "int64"]
            assert sorted(rows["valid"].tolist(), reverse=True) == rows["valid"].tolist()
            counted += rows["index"][rows["valid"] == 1].tolist()
    assert sorted(counted) == list(range(n))


def test_an_evaluation_is_the_same_for_every_world_size():
    def samples(batch_size, ranks):
        drawn_by_index = {}
        for stream in evaluate(Numbers(23), batch_size, ranks):
            for batch, _ in stream:
                for index, drawn, valid in zip(batch["index"], batch["drawn"], batch["valid"]):
                    drawn_by_index.update({int(index): tuple(drawn)} if valid else {})
        return drawn_by_index

    assert samples(23, 1) == samples(4, 2) == samples(3, 5)


def test_an_unreadable_sample_of_an_evaluation_has_an_impossible_label_and_counts():
    stream = list(open_evaluation(Numbers(10, unreadable=(0, 6)), 0, 4))
    labels = np.concatenate([rows["label"][rows["valid"] == 1] for rows, _ in stream])
    assert labels.tolist() == [-1, 1, 0, 1, 0, 1, -1, 1, 0, 1]
    assert [reports for _, reports in stream] == [
        [UnreadableSample(0, "sample 0", "broken 0", None)],
        [UnreadableSample(0, "sample 6", "broken 6", None)],
        [],
    ]
    assert all(rows["drawn"].dtype == np.float64 for rows, _ in stream)


def test_times_of_a_stream():
    """The consumer waits while a batch is read, then while it is on its way."""
    batch = {"valid": np.ones(4)}
    seconds = {"read": 1.0, "decode": 2.0, "transform": 3.0, "collate": 4.0}
    times = ReadTimes()
    times = times.add(TimedBatch(batch, [], seconds, finished=12.0), requested=10.0, arrived=15.0)
    assert times == (4, seconds, 2.0, 3.0)
    times = times.add(TimedBatch(batch, [], seconds, finished=3.0), requested=20.0, arrived=21.0)  # was there already
    assert times == (8, {name: 2 * value for name, value in seconds.items()}, 2.0, 4.0)


def test_a_stream_measures_its_stages():
    stream = open_training(Numbers(23), 0, 4, 0, 3)
    assert len(list(stream)) == 3 and stream.times.samples == 12
    assert stream.times.stages["transform"] > 0 and stream.times.stages["collate"] > 0
    assert stream.times.stages["read"] == stream.times.stages["decode"] == 0  # which this data set does not mark


def test_find_bad():
    bad, tried = find_bad(Numbers(10, unreadable=(2, 9)), 30)
    assert tried == 10 and [(report.name, report.reason) for report in bad] == [
        ("sample 2", "broken 2"),
        ("sample 9", "broken 9"),
    ]
    assert find_bad(Numbers(10), -1) == ([], 0)


RNG = np.random.default_rng


@pytest.fixture(scope="module")
def image_settings(tmp_path_factory):
    root = str(tmp_path_factory.mktemp("images") / "shapes")
    shapes.load(shapes.Settings(root=root, train_images=24, val_images=24, size=32, eval_size=16))
    return imagenet.Settings(root=root, size=32, eval_size=16, mixup=0.2)


def swapped(root, tmp_path, names=("train", "val")):
    """Return a folder that has the training samples as its validation samples, too."""
    (tmp_path / "twice").mkdir()
    for name in names:
        (tmp_path / "twice" / name).symlink_to(f"{root}/{names[0]}")
    return str(tmp_path / "twice")


def check(subset, train, expected, count):
    """Compare with a validation split of the same samples."""
    places = [i * len(train) // count for i in range(count)]
    assert len(subset) == count and [subset.name(i) for i in range(count)] == [train.name(i) for i in places]
    assert (subset.fields, subset.classes, subset.views) == (expected.fields, expected.classes, expected.views)
    for i, place in enumerate(places):
        found, wanted = subset.sample(i, RNG(1)), expected.sample(place, RNG(1))
        assert found.keys() == wanted.keys() and all(np.array_equal(found[key], wanted[key]) for key in wanted)


def test_images_have_the_center_crop_and_no_mixing(image_settings, tmp_path):
    train, _ = imagenet.load(image_settings)
    _, expected = imagenet.load(replace(image_settings, root=swapped(image_settings.root, tmp_path)))
    before = train.sample(0, RNG(1))
    check(TrainingSubset(train, 5), train, expected, 5)
    after = train.sample(0, RNG(1))  # the training split shows its samples as before
    assert all(np.array_equal(before[key], after[key]) for key in before) and len(train.fields) == 3


def test_clips_have_the_views_of_an_evaluation(tmp_path):
    root = str(tmp_path / "motion")
    settings = motion.Settings(root=root, size=32, train_clips=8, val_clips=8, segments=2, eval_crops=3)
    train, _ = motion.load(settings)
    _, expected = kinetics.load(
        kinetics.Settings(root=root, size=32, segments=2, eval_crops=3, train_list=settings.train_list,
                          val_list=f"{root}/train.list")
    )  # fmt: skip
    check(TrainingSubset(train, 3), train, expected, 3)
    assert expected.views == 3


def test_scenes_are_whole(tmp_path):
    root, sizes = str(tmp_path / "streets"), {"crop": (32, 64), "base_size": (160, 320)}
    train, val = streets.load(streets.Settings(root=root, train_images=4, val_images=4, **sizes))
    subset = TrainingSubset(train, 2)
    assert subset.fields == val.fields and subset.fields[0].shape != train.fields[0].shape
    label = subset.sample(0, RNG(1))["label"]
    assert label.shape == val.fields[-1].shape and np.array_equal(label, subset.sample(0, RNG(2))["label"])


def test_an_unreadable_sample_stays_one(image_settings, monkeypatch):
    def unreadable(split, index):
        raise BadSample("broken")

    train, _ = imagenet.load(image_settings)
    subset = TrainingSubset(train, 2)
    monkeypatch.setattr(imagenet.ImageSplit, "_read", unreadable)
    for read in (subset.sample, subset.plan):
        with pytest.raises(BadSample, match="broken"):
            read(0, RNG(1))


@pytest.mark.parametrize("open_set", [synthetic.load, lambda settings: (object(), None)])
def test_what_cannot_be_evaluated_is_refused(open_set):
    train, _ = open_set(synthetic.Settings(kind="face", train_samples=7, val_samples=10))
    with pytest.raises(UserError, match=r"train.eval_train_samples: .* leave it out"):
        TrainingSubset(train, 2)
