"""What may stand in one table."""

import pytest

from tests.helpers.journals import host
from tests.helpers.report_runs import speed_events, training_events, write
from zoo.bench.report import runs
from zoo.bench.report.comparability import check
from zoo.data.errors import UserError


@pytest.fixture
def run(tmp_path):
    def make(name, events=None, **begin):
        return runs.read(write(tmp_path / name, events or training_events(**begin)))

    return make


def test_different_protocols_of_a_model_are_refused_with_their_runs(run, tmp_path):
    found = [run("a"), run("b", protocol="k400/8x10x3@256"), run("c")]
    listed = f"k400/8x1x1@224 ({tmp_path}/a, {tmp_path}/c); k400/8x10x3@256 ({tmp_path}/b)"
    with pytest.raises(UserError) as caught:
        check(found, force=False)
    assert "tsm" in str(caught.value) and "--force" in str(caught.value) and listed in str(caught.value)
    (warning,) = check(found, force=True)
    assert warning.startswith("NOT COMPARABLE, forced") and listed in warning
    assert check([run("a"), run("d", speed_events(9.0))], force=False) == []  # another model
    assert check([run("a"), run("e", protocol=None)], force=False) == []  # an unknown one is not another one


@pytest.mark.parametrize(
    "values, aspect",
    [
        ({"target": 0.7}, "different targets, so their Time2train cannot be compared: 0.711 ("),
        ({"checksum": "0" * 32}, "different data (checksums): 37724b19b6e5d41f9f147936d60b3c29 ("),
        ({"flops_per_sample": 1e9}, "different architectures (operations of a sample): 6.58e+10 ("),
        ({"git": {"commit": "f" * 40, "dirty": True}}, f"{'f' * 12} with changes ("),
        ({"framework_version": "2.11.0"}, "different versions of torch: 2.13.0 ("),
        ({"hosts": [], "device": "cuda:0 (NVIDIA H200)"}, "different devices: Tesla V100-SXM2-16GB ("),
    ],
)
def test_other_differences_are_warnings(run, values, aspect):
    (warning,) = check([*(run(f"a{i}") for i in range(5)), run("b", **values)], force=False)
    assert aspect in warning and "and 2 more)" in warning


@pytest.mark.parametrize(
    "values, differences",
    [
        ({"channels_last": True, "loader": "dali"}, "channels_last (false; true), loader (reference; dali)"),
        ({"workers": 8, "threads": 1}, "workers (4; 8), threads (2; 1)"),
        ({"optimizer": {"lr": 0.04}}, "optimizer.lr (0.02; 0.04)"),
        ({"recipe_sha256": "cd" * 32}, "recipe_sha256 (abababababab; cdcdcdcdcdcd)"),
    ],
)  # fmt: skip
def test_repeats_with_different_settings_are_a_warning_that_names_them(run, tmp_path, values, differences):
    (warning,) = check([run("a"), run("b", **values)], force=False)
    assert "2 runs of tsm with torch, amp (fp16 O1), batch 10, 1 card(s)" in warning
    assert f"differ in {differences}: {tmp_path}/a, {tmp_path}/b" in warning


def test_what_is_no_difference(run):
    assert check([run("a"), run("b", hosts=[host("n7", [0])])], force=False) == []  # another host of the same hardware
    others = [run("c", accumulate=1), run("d", accumulate=2, recipe_sha256="cd" * 32, workers=8)]  # cases of their own
    assert check(others, force=False) == []


def test_a_resume_with_other_settings_is_a_warning(run, tmp_path):
    events = training_events()
    events.insert(4, {"event": "resume", "step": 100, "time": 121.0, "workers": 8, "recipe_sha256": "cd" * 32})
    (warning,) = check([run("a"), run("b", events)], force=False)
    assert warning == f"runs of tsm were resumed with another workers, recipe_sha256 ({tmp_path}/b)"
