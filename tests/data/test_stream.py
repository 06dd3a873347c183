"""Order, ranks, resume, noise and bad samples of a stream, with a data set that is made of numbers."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import pytest

from data.batch import DropoutMask, Field
from data.errors import BadSample, UserError
from data.stream import (
    MAX_REPLACEMENTS,
    UnreadableSample,
    LoaderSettings,
    find_bad,
    open_evaluation,
    open_training,
)

NOISE = (DropoutMask("mask", (3, 50), 0.2), DropoutMask("other", (3, 50), 0.2))


@dataclass(frozen=True)
class Numbers:
    """Sample i is the number i, two numbers out of its generator and a label. Some cannot be read."""

    size: int = 23
    bad: tuple[int, ...] = ()
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
        if index in self.bad:
            raise BadSample(f"broken {index}")
        time.sleep(rng.random() / 2000)  # readers overtake one another
        return {"index": np.asarray(index), "drawn": rng.random(2), "label": np.asarray(index % 2)}


def batches(dataset, batch=4, first=0, last=6, seed=3, **keys):
    return [loaded[0] for loaded in open_training(dataset, seed, batch, first, last, **keys)]


def indices(dataset, **keys):
    return np.concatenate([batch["index"] for batch in batches(dataset, **keys)]).tolist()


def same(one, two):
    return len(one) == len(two) and all(
        a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)
        for a, b in zip(one, two)
    )


def test_every_epoch_is_another_permutation():
    seen = indices(Numbers(24), batch=8, last=9)
    epochs = [tuple(seen[at : at + 24]) for at in (0, 24, 48)]
    assert all(sorted(epoch) == list(range(24)) for epoch in epochs) and len(set(epochs)) == 3
    assert seen == indices(Numbers(24), batch=8, last=9)
    assert seen != indices(Numbers(24), batch=8, last=9, seed=4)


def test_batches_cross_the_border_of_an_epoch():
    seen = indices(Numbers(23), batch=5, last=14)  # 70 samples: three epochs and one more
    assert all(sorted(seen[at : at + 23]) == list(range(23)) for at in (0, 23, 46))


def test_samples_of_one_epoch_draw_other_numbers_in_the_next():
    rows = {}
    for batch in batches(Numbers(8), batch=8, last=5):
        for index, drawn in zip(batch["index"], batch["drawn"]):
            rows.setdefault(int(index), []).append(tuple(drawn))
    assert len(rows) == 8 and all(len(set(drawn)) == 5 for drawn in rows.values())


def test_a_sample_is_a_function_of_its_position():
    drawn = np.concatenate([batch["drawn"] for batch in batches(Numbers(23), batch=5)])
    again = np.concatenate([batch["drawn"] for batch in batches(Numbers(23), batch=3, last=10)])
    assert np.array_equal(drawn, again) and len({tuple(row) for row in drawn}) == 30


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_share_the_batches_of_one(ranks):
    whole = batches(Numbers(23), batch=8, dropout_masks=NOISE)
    parts = [
        batches(Numbers(23), batch=8 // ranks, rank=rank, size=ranks, dropout_masks=NOISE) for rank in range(ranks)
    ]
    for step, batch in enumerate(whole):
        for name in batch:
            assert np.array_equal(batch[name], np.concatenate([part[step][name] for part in parts])), (step, name)


@pytest.mark.parametrize("first", [1, 4, 5, 11])
def test_a_resume_is_a_slice(first):
    straight = batches(Numbers(23), last=12, dropout_masks=NOISE)
    assert same(batches(Numbers(23), first=first, last=12, dropout_masks=NOISE), straight[first:])


def test_a_stream_that_is_at_its_end():
    assert batches(Numbers(23), first=6, last=6) == [] and batches(Numbers(23), first=7, last=6) == []


def test_threads_and_processes_read_the_same():
    """One test for all that needs worker processes, since they take seconds to start."""
    bad = (3, 4, 17)

    def read(workers, threads):
        dataset = Numbers(23, bad, LoaderSettings(workers=workers, threads=threads))
        return list(open_training(dataset, 3, 4, 2, 10, dropout_masks=NOISE)), list(open_evaluation(dataset, 0, 4))

    want = read(0, 1)
    for workers, threads in ((0, 2), (0, 5), (2, 1), (2, 3)):
        for one, other in zip(read(workers, threads), want):
            assert same([batch for batch, _ in one], [batch for batch, _ in other]), (workers, threads)
            assert [reports for _, reports in one] == [reports for _, reports in other]
    with pytest.raises(UserError, match="in a row"):  # an error of a worker keeps its type and text
        list(open_training(Numbers(9, tuple(range(9)), LoaderSettings(workers=1)), 0, 2, 0, 1))


def test_noise_is_a_function_of_the_position_alone():
    here = batches(Numbers(23), batch=4, last=6, dropout_masks=NOISE)
    there = batches(Numbers(7, bad=(1, 2)), batch=8, last=3, dropout_masks=NOISE)  # another data set, other batches
    for name in ("mask", "other"):
        masks = np.concatenate([batch[name] for batch in here])
        assert np.array_equal(masks, np.concatenate([batch[name] for batch in there]))
        assert masks.shape == (24, 3, 50) and masks.dtype == np.uint8 and set(masks.ravel().tolist()) == {0, 1}
        assert len({mask.tobytes() for mask in masks}) == 24
    assert not np.array_equal(here[0]["mask"], here[0]["other"])
    assert not np.array_equal(here[0]["mask"], batches(Numbers(23), seed=4, dropout_masks=NOISE)[0]["mask"])


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.5, 0.9])
def test_noise_keeps_one_minus_rate(rate):
    masks = [
        batch["mask"]
        for batch in batches(Numbers(23), batch=10, last=4, dropout_masks=[DropoutMask("mask", (2000,), rate)])
    ]
    deviation = (rate * (1 - rate) / 80_000) ** 0.5
    assert abs(np.mean(masks) - (1 - rate)) <= 5 * deviation


def test_noise_does_not_disturb_the_samples():
    bare, noisy = batches(Numbers(23)), batches(Numbers(23), dropout_masks=NOISE)
    assert all(np.array_equal(a[name], b[name]) for a, b in zip(bare, noisy) for name in a)


def test_a_bad_sample_is_replaced_by_the_next_readable_one_and_reported():
    healthy, bad = Numbers(23), Numbers(23, bad=(5, 6, 22))
    stands_in = {5: 7, 6: 7, 22: 0}
    for number, (batch, reports) in enumerate(open_training(bad, 3, 4, 0, 12)):
        planned = batches(healthy, first=number, last=number + 1)[0]["index"].tolist()
        assert batch["index"].tolist() == [stands_in.get(index, index) for index in planned]
        assert batch["valid"].tolist() == [1] * 4
        want = []
        for at, index in enumerate(planned):
            epoch = (number * 4 + at) // 23
            want += [
                UnreadableSample(epoch, f"sample {i}", f"broken {i}", f"sample {stands_in[index]}")
                for i in {5: (5, 6), 6: (6,), 22: (22,)}.get(index, ())
            ]
        assert reports == want


def test_bad_samples_leave_the_others_as_they_are():
    for one, other in zip(batches(Numbers(23)), batches(Numbers(23, bad=(5,)))):
        kept = one["index"] != 5
        assert np.array_equal(one["index"][kept], other["index"][kept])
        assert np.array_equal(one["drawn"][kept], other["drawn"][kept])


def test_nothing_but_bad_samples_stops_the_run():
    with pytest.raises(UserError) as caught:
        batches(Numbers(5, bad=tuple(range(5))))
    assert str(caught.value).startswith("5 samples in a row") and "sample 3: broken 3" in str(caught.value)


def test_the_search_for_a_neighbour_ends():
    last_but_one = tuple(range(1, MAX_REPLACEMENTS))  # one run of bad samples that can just be bridged
    batches(Numbers(100, bad=last_but_one), batch=10, last=10)
    with pytest.raises(UserError, match=f"{MAX_REPLACEMENTS} samples in a row"):
        batches(Numbers(100, bad=last_but_one + (MAX_REPLACEMENTS,)), batch=10, last=10)


def evaluated(dataset, batch, ranks):
    return [list(open_evaluation(dataset, 0, batch, rank, ranks)) for rank in range(ranks)]


@pytest.mark.parametrize(
    "n, batch, ranks",
    [
        (1, 1, 1),
        (1, 4, 8),
        (3, 2, 4),
        (7, 3, 2),
        (16, 4, 2),
        (17, 4, 4),
        (23, 8, 1),
        (23, 5, 3),
        (31, 1, 7),
        (24, 3, 8),
        (25, 3, 8),
    ],
)
def test_an_evaluation_counts_every_sample_once(n, batch, ranks):
    streams = evaluated(Numbers(n), batch, ranks)
    assert {len(stream) for stream in streams} == {-(-n // (batch * ranks))}
    counted = []
    for stream in streams:
        for rows, reports in stream:
            assert {len(array) for array in rows.values()} == {batch} and reports == []
            assert [rows[f.name].dtype for f in Numbers().fields] == ["int64", "float64", "int64"]
            assert sorted(rows["valid"].tolist(), reverse=True) == rows["valid"].tolist()
            counted += rows["index"][rows["valid"] == 1].tolist()
    assert sorted(counted) == list(range(n))


def test_an_evaluation_is_the_same_for_every_number_of_ranks():
    def rows(batch, ranks):
        found = {}
        for stream in evaluated(Numbers(23), batch, ranks):
            for loaded, _ in stream:
                for index, drawn, valid in zip(loaded["index"], loaded["drawn"], loaded["valid"]):
                    found.update({int(index): tuple(drawn)} if valid else {})
        return found

    assert rows(23, 1) == rows(4, 2) == rows(3, 5)


def test_a_bad_sample_of_an_evaluation_has_an_impossible_label_and_still_counts():
    stream = list(open_evaluation(Numbers(10, bad=(0, 6)), 0, 4))
    labels = np.concatenate([rows["label"][rows["valid"] == 1] for rows, _ in stream])
    assert labels.tolist() == [-1, 1, 0, 1, 0, 1, -1, 1, 0, 1]
    assert [reports for _, reports in stream] == [
        [UnreadableSample(0, "sample 0", "broken 0", None)],
        [UnreadableSample(0, "sample 6", "broken 6", None)],
        [],
    ]
    assert all(rows["drawn"].dtype == np.float64 for rows, _ in stream)


def test_an_evaluation_of_nothing_but_bad_samples():
    rows, reports = next(open_evaluation(Numbers(3, bad=(0, 1, 2)), 0, 4))
    assert rows["label"].tolist() == [-1] * 4 and rows["valid"].tolist() == [1, 1, 1, 0] and len(reports) == 3


def test_find_bad():
    bad, tried = find_bad(Numbers(10, bad=(2, 9)), 30)
    assert tried == 10 and [(report.name, report.reason) for report in bad] == [
        ("sample 2", "broken 2"),
        ("sample 9", "broken 9"),
    ]
    assert find_bad(Numbers(10), -1) == ([], 0)


@pytest.mark.parametrize("keys", [{"workers": -1}, {"threads": 0}, {"max_bad": 2}])
def test_settings_that_make_no_sense(keys):
    with pytest.raises(ValueError, match=next(iter(keys))):
        LoaderSettings(**keys)


READER = """
import sys, time
from data.stream import LoaderSettings, open_training
from tests.data.test_stream import Numbers
if __name__ == "__main__":
    stream = open_training(Numbers(23, (), LoaderSettings(workers=2)), 0, 4, 0, 10**6)
    next(stream)
    print("ready", flush=True)
    time.sleep(120)
"""


def children(pid):
    """Processes whose parent is pid, by /proc."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and state(int(entry))[1:] == (pid,):
            found.append(int(entry))
    return found


def state(pid):
    """(letter, parent) of a process; a zombie or none at all is ('Z', 0)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            letter, parent = file.read().rsplit(")", 1)[1].split()[:2]
    except OSError:
        return "Z", 0
    return letter, int(parent)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_reader_processes_die_with_their_parent(tmp_path):
    script = tmp_path / "reader.py"
    script.write_text(READER)
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    readers = []
    try:
        assert parent.stdout.readline() == b"ready\n"
        readers = children(parent.pid)
        assert len(readers) >= 2
        parent.send_signal(signal.SIGKILL)
        parent.wait(10)
        end = time.monotonic() + 60
        while time.monotonic() < end and any(state(pid)[0] != "Z" for pid in readers):
            time.sleep(0.1)
        assert [pid for pid in readers if state(pid)[0] != "Z"] == []
    finally:
        parent.kill()
        for pid in readers:
            if state(pid)[0] != "Z":
                os.kill(pid, signal.SIGKILL)
