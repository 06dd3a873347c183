"""RecordIO files of upstream's writer, reads from threads and processes, and every way a pack may be damaged."""

import os
import pickle
import struct
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from tests.helpers import packs
from tests.helpers.packs import MAGIC
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import recordio
from zoo.data.formats.recordio import RecordFile, read_index, spans, unpack_image

PAYLOADS = [
    b"",
    b"abc",
    MAGIC,
    MAGIC + MAGIC + b"xy",
    b"1234" + MAGIC + b"5678" + MAGIC + b"9",
    b"12" + MAGIC + b"3456",
    b"1234" + MAGIC,
]
# PAYLOADS as written by dmlc-core's RecordIOWriter (5295de940c7e, src/recordio.cc, compiled with g++), and the offsets
# of its records.
UPSTREAM = bytes.fromhex(
    "0a23d7ce000000000a23d7ce03000000616263000a23d7ce000000200a23d7ce000000600a23d7ce000000200a23d7ce000000400a23d7ce02"
    "000060787900000a23d7ce04000020313233340a23d7ce04000040353637380a23d7ce01000060390000000a23d7ce0a00000031320a23d7ce"
    "3334353600000a23d7ce04000020313233340a23d7ce00000060"
)
OFFSETS = [0, 8, 20, 36, 64, 100, 120]


def open_pack(tmp_path, content=UPSTREAM):
    (tmp_path / "a.rec").write_bytes(content)
    return RecordFile(str(tmp_path / "a.rec"))


def read_index_text(tmp_path, text, content=UPSTREAM):
    (tmp_path / "a.idx").write_text(text)
    return read_index(str(tmp_path / "a.idx"), open_pack(tmp_path, content))


def index_error(tmp_path, text, content=UPSTREAM):
    with pytest.raises(UserError) as caught:
        read_index_text(tmp_path, text, content)
    return str(caught.value)


def test_records_are_written_as_by_upstream():
    assert b"".join(map(recordio.record, PAYLOADS)) == b"".join(map(packs.frames, PAYLOADS)) == UPSTREAM


def test_reading_a_file_of_upstream_restores_the_magic_word(tmp_path):
    assert [open_pack(tmp_path).read(offset) for offset in OFFSETS] == PAYLOADS


@pytest.mark.parametrize("span", [-4, 1, 8, 9, 12, 40, 1 << 20, 1 << 40])
def test_any_span_gives_the_same_records_and_errors(tmp_path, span):
    """The span is what an index says, which may be wrong."""
    pack = open_pack(tmp_path)
    assert [pack.read(offset, span) for offset in OFFSETS] == PAYLOADS
    for offset in (4, 28, 44, 400):
        with pytest.raises(BadSample) as expected:
            pack.read(offset)
        with pytest.raises(BadSample) as caught:
            pack.read(offset, span)
        assert str(caught.value) == str(expected.value)


def test_a_record_is_read_at_once_if_its_end_is_known(tmp_path, monkeypatch):
    pack, reads, pread = open_pack(tmp_path), [], os.pread
    monkeypatch.setattr(os, "pread", lambda file, count, offset: reads.append(count) or pread(file, count, offset))
    assert pack.read(8, 12) == b"abc" and reads == [12]
    assert pack.read(8) == b"abc" and reads == [12, 8, 3]


def test_padding_after_every_frame_is_skipped(tmp_path):
    """Writers split at multiples of 4 only, but the format allows parts of any length."""
    content = MAGIC + struct.pack("<I", 1 << 29 | 3) + b"abc\0" + MAGIC + struct.pack("<I", 3 << 29 | 2) + b"de\0\0"
    assert open_pack(tmp_path, content).read(0) == b"abc" + MAGIC + b"de"


def test_random_payloads_round_trip(tmp_path):
    rng = np.random.default_rng(0)
    payloads = {}
    for key in range(200):  # the magic word occurs aligned and unaligned
        words = [MAGIC if rng.random() < 0.3 else rng.bytes(int(rng.integers(0, 6))) for _ in range(rng.integers(0, 9))]
        payloads[key] = b"".join(words)
    assert sum(MAGIC in payload for payload in payloads.values()) > 100
    assert all(recordio.record(payload) == packs.frames(payload) for payload in payloads.values())
    offsets = packs.write(tmp_path, payloads)
    pack = RecordFile(str(tmp_path / "train.rec"))
    keys, offsets_read = read_index(str(tmp_path / "train.idx"), pack)
    assert keys.tolist() == list(payloads) and offsets_read.tolist() == list(offsets.values())
    assert [pack.read(int(offset)) for offset in offsets_read] == list(payloads.values())


def read_all(pack):
    return [pack.read(offset) for offset in OFFSETS]


def test_threads_processes_and_copies_read_the_same(tmp_path):
    pack = open_pack(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(pack.read, OFFSETS * 50)) == PAYLOADS * 50
    assert read_all(pickle.loads(pickle.dumps(pack))) == PAYLOADS
    with get_context("spawn").Pool(2) as pool:  # a fork of this process, which has threads, may hang
        assert pool.map(read_all, [pack] * 4) == [PAYLOADS] * 4


@pytest.mark.parametrize(
    "offset, content, reason",
    [
        (4, UPSTREAM, "no record begins at byte 4 (magic 0x00000000, not 0xced7230a)"),
        (12, UPSTREAM, "no record begins at byte 12"),
        (44, UPSTREAM, "the frame at byte 44 is out of order (flag 2)"),
        (28, UPSTREAM, "the frame at byte 28 is out of order (flag 3)"),
        (64, UPSTREAM[:76] + packs.frames(b"new"), "the frame at byte 76 is out of order (flag 0)"),
        (120, UPSTREAM[:-1], "the file ends within the frame at byte 132 (it has 139 bytes)"),
        (120, UPSTREAM[:132], "the file ends within the frame at byte 132"),
        (100, UPSTREAM[:109], "the file ends within the frame at byte 108"),
        (400, UPSTREAM, "the file ends within the frame at byte 400"),
        (0, MAGIC + struct.pack("<I", 5 << 29), "the frame at byte 0 is out of order (flag 5)"),
    ],
)
def test_a_damaged_record_is_a_bad_sample_with_file_and_byte(tmp_path, offset, content, reason):
    with pytest.raises(BadSample) as caught:
        open_pack(tmp_path, content).read(offset)
    assert str(tmp_path / "a.rec") in str(caught.value) and reason in str(caught.value)


def test_a_missing_pack(tmp_path):
    with pytest.raises(UserError, match="none.rec: cannot open this pack .No such file.*data.train"):
        RecordFile(str(tmp_path / "none.rec"))


def test_an_index_is_sorted_by_key(tmp_path):
    keys, offsets = read_index_text(tmp_path, "1\t8\r\n7 20\n\n0\t120\n")  # key 0 is written last
    assert keys.tolist() == [0, 1, 7] and offsets.tolist() == [120, 8, 20]
    assert keys.dtype == offsets.dtype == np.int64


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "0 numbers"),
        ("0\t0\n1\n", "3 numbers"),
        ("0\t0\n0\t8\n", "key 0 at byte 8 is given twice"),
        ("0\t0\n1\t133\n", "key 1 at byte 133 lies outside"),
        ("0\t-8\n", "key 0 at byte -8 lies outside"),
        ("-1\t0\n", "key -1 at byte 0 is negative"),
        ("0\t0\n3\t9\n", "key 3 at byte 9 does not lie at a multiple of 4"),
        ("0\t0\n1\tx\n", "a.idx:2: expected `key<TAB>byte`, got '1\\tx"),
        ("0\t1.5\n", "a.idx:1: expected"),
        ("0\t124\n", "no record begins at byte 124"),
    ],
)
def test_a_damaged_index_names_file_and_key_or_line(tmp_path, text, reason):
    message = index_error(tmp_path, text)
    assert reason in message and str(tmp_path / "a.idx") in message


JPEG = b"\xff\xd8\xff\xe0" + bytes(30)


@pytest.mark.parametrize(
    "payload, labels, encoded, label_bytes",
    [
        (packs.content(JPEG, 7), [7], JPEG, 4),
        (packs.content(JPEG, 7, flag=1), [7], JPEG, 4),
        (packs.content(JPEG, 7, 8), [7, 8], JPEG, 4),
        (packs.content(JPEG, 85741, width=8), [85741], JPEG, 8),
        (packs.content(JPEG, 2**24 + 1, 3, width=8), [2**24 + 1, 3], JPEG, 8),
        (packs.content(b"", 5, 9), [5, 9], b"", 4),
        (packs.content(b"", 5, 9, width=8), [5, 9], b"", 8),
        (packs.content(b"anything", 7), [7], b"anything", 4),
    ],
)
def test_labels_of_both_widths(payload, labels, encoded, label_bytes):
    record = unpack_image(payload)
    assert ([*record.labels], record.encoded, record.label_bytes) == (labels, encoded, label_bytes)


@pytest.mark.parametrize(
    "payload, reason",
    [
        (b"", "0 bytes are too few"),
        (bytes(23), "23 bytes are too few"),
        (packs.content(b"GIF89a", 7, 8), "neither an image nor the end follows its 2 labels"),
        (struct.pack("<IfQQ", 2**32 - 1, 0, 0, 0) + JPEG, "its 4294967295 labels"),
    ],
)
def test_a_payload_that_is_not_an_image_record(payload, reason):
    with pytest.raises(BadSample) as caught:
        unpack_image(payload)
    assert reason in str(caught.value)


def test_a_record_ends_before_the_next_one_begins(tmp_path):
    pack = open_pack(tmp_path)
    assert pack.read(8, 12, end=20) == pack.read(8, end=20) == b"abc"
    for span in (0, 10):
        with pytest.raises(BadSample, match="the frame at byte 8 ends beyond the beginning of another record"):
            pack.read(8, span, end=18)


def test_spans_of_records_in_any_order():
    assert spans(np.array([40, 0, 12]), 100).tolist() == [60, 12, 28]
    assert spans(np.array([], np.int64), 100).tolist() == []


def test_a_payload_above_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(recordio, "MAX_RECORD", 10)
    assert recordio.record(bytes(10))
    with pytest.raises(BadSample, match="11 bytes are more than a RecordIO record holds"):
        recordio.record(bytes(11))
