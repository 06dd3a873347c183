"""Records as upstream's writer makes them: its own bytes, the reference writer, and what it writes from images."""

import numpy as np
import pytest

from tests.data.formats.test_recordio import PAYLOADS, UPSTREAM
from tests.helpers import packs
from tests.helpers.packs import MAGIC
from zoo.data.errors import BadSample
from zoo.data.formats import recordio
from zoo.data.formats.recordio import RecordFile, unpack_image


def test_records_are_those_of_upstream():
    assert b"".join(map(recordio.record, PAYLOADS)) == UPSTREAM


def test_random_payloads_full_of_magic_words():
    rng = np.random.default_rng(0)
    for _ in range(300):
        words = [MAGIC if rng.random() < 0.4 else rng.bytes(int(rng.integers(0, 6))) for _ in range(rng.integers(0, 9))]
        payload = b"".join(words)
        assert recordio.record(payload) == packs.frames(payload)


def test_payloads_are_read_again(tmp_path):
    payloads = [recordio.image_payload(7, 3, b"abc" + MAGIC), recordio.labels_payload(1, 85743), b"x"]
    (tmp_path / "a.rec").write_bytes(b"".join(map(recordio.record, payloads)))
    pack, offset = RecordFile(str(tmp_path / "a.rec")), 0
    for payload in payloads:
        assert pack.read(offset) == payload
        offset += len(recordio.record(payload))
    assert payloads[0] == packs.content(b"abc" + MAGIC, 7)[:8] + b"\3" + bytes(15) + b"abc" + MAGIC
    assert payloads[1] == packs.content(b"", 1, 85743)
    assert unpack_image(payloads[1]).labels == (1, 85743)


def test_a_payload_above_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(recordio, "MAX_RECORD", 10)
    assert recordio.record(bytes(10))
    with pytest.raises(BadSample, match="11 bytes are more than a RecordIO record holds"):
        recordio.record(bytes(11))


def test_the_index():
    assert recordio.index_lines([5, 6], [0, 36]) == "5\t0\n6\t36\n"
