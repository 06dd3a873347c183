"""The clips that other tests make."""

import os

import pytest

from tests.helpers.clips import encode, has_encoder, numbered


@pytest.mark.skipif(not has_encoder("libsvtav1"), reason="no libsvtav1")
def test_making_clips_leaves_nothing_running_in_real_time(tmp_path):
    encode(tmp_path / "a.mp4", numbered(3), "libsvtav1")
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
