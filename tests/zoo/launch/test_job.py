"""Names, time limits and volumes of jobs."""

import pytest

from zoo.data.errors import UserError
from zoo.launch import job
from zoo.launch.job import Volume


def test_names():
    assert job.job_name(None, "TSM_k400", "4X8") == "tsm-k400-4x8"
    assert job.job_name(None, "50_layers", "1x1") == "run-50-layers-1x1"
    assert job.job_name("mine-2", "tsm", "1x1") == "mine-2"
    assert len(job.job_name(None, "x" * 90, "32x8")) == job.MAX_NAME
    for name in ("", "Mine", "a_b", "-a", "a-", "1a", "a" * (job.MAX_NAME + 1)):
        with pytest.raises(UserError, match="lower-case letters"):
            job.job_name(name, "tsm", "1x1")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("90", 5400),
        ("90:30", 5430),
        ("12:00:05", 43205),
        ("2-12", 216000),
        ("1-00:30", 88200),
        ("1-01:01:01", 90061),
        (None, None),
    ],
)
def test_time_limits(text, expected):
    assert job.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0", "0:00:00", "2d", "12h", "1:2", "1:00:00:00", "-1", "1-"])
def test_wrong_time_limits(text):
    with pytest.raises(UserError, match="--time"):
        job.seconds(text)


def test_volumes():
    texts = ["data:/data:ro", "/mnt/runs:/runs"]
    assert job.volumes(texts) == [Volume("data", "/data", True), Volume("/mnt/runs", "/runs", False)]
    for text in ("data", "data:", ":/data", "data:data", "data:/data:rw", "data:/da ta", "a:/b,c"):
        with pytest.raises(UserError, match="expected SOURCE:PATH"):
            job.volumes([text])
    with pytest.raises(UserError, match="/data is mounted already"):
        job.volumes(["a:/data", "b:/data"])


def test_runs_must_be_written_to_a_volume():
    mounted = job.volumes(["runs:/runs", "data:/data:ro", f"mine:{job.IMAGE_FOLDER}/runs"])
    for out in ("/runs", "/runs/tsm", "runs/tsm"):
        job.check_out(out, mounted)
    for out in ("/data/tsm", "/run/tsm", "elsewhere/tsm"):
        with pytest.raises(UserError, match="would be written to .* in the container and be lost"):
            job.check_out(out, mounted)
