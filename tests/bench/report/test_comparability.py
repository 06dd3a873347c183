"""What may stand in one table."""

import pytest

from tests.bench.report.runs import speed_events, training_events, write
from tests.helpers.journals import host
from zoo.bench.report import journals
from zoo.bench.report.comparability import check
from zoo.data.errors import UserError


@pytest.fixture
def run(tmp_path):
    def make(name, events=None, **begin):
        return journals.read(write(tmp_path / name, events or training_events(**begin)))

    return make


def test_different_protocols_of_a_model_are_refused_with_their_runs(run, tmp_path):
    runs = [run("a"), run("b", protocol="k400/8x10x3@256"), run("c")]
    with pytest.raises(UserError) as caught:
        check(runs, force=False)
    text = str(caught.value)
    assert "the results of tsm have different protocols" in text and "--force" in text
    assert f"k400/8x1x1@224 ({tmp_path}/a, {tmp_path}/c); k400/8x10x3@256 ({tmp_path}/b)" in text


def test_forced_they_are_marked(run):
    (warning,) = check([run("a"), run("b", protocol="other")], force=True)
    assert warning.startswith("NOT COMPARABLE, forced: the results of tsm have different protocols: k400/8x1x1@224 (")


def test_models_have_protocols_of_their_own(run):
    assert check([run("a"), run("b", speed_events(9.0))], force=False) == []


def test_an_unknown_protocol_is_not_another_one(run):
    assert check([run("a"), run("b", protocol=None)], force=False) == []


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
    (warning,) = check([run("a"), run("b", **values)], force=False)
    assert aspect in warning


def test_many_runs_are_counted(run):
    warnings = check([*(run(f"a{i}") for i in range(5)), run("b", target=0.7)], force=False)
    assert "and 2 more)" in warnings[0]


@pytest.mark.parametrize(
    "values, differences",
    [
        ({"compile": True}, "compile (false; true)"),
        ({"channels_last": True, "loader": "dali"}, "channels_last (false; true), loader (reference; dali)"),
        ({"workers": 8, "threads": 1}, "workers (4; 8), threads (2; 1)"),
        ({"global_batch": 8, "classes": 10}, "global_batch (10; 8), classes (400; 10)"),
        ({"loss_scale": {"initial": 1.0, "dynamic": False}},
         "loss_scale.initial (65536; 1), loss_scale.dynamic (true; false)"),
        ({"optimizer": {"lr": 0.04}}, "optimizer.lr (0.02; 0.04)"),
        ({"recipe_sha256": "cd" * 32}, "recipe_sha256 (abababababab; cdcdcdcdcdcd)"),
        ({"hosts": [{**host("n1", [0]), "environment": {"OMP_NUM_THREADS": "4", "NCCL_DEBUG": "WARN"}}]},
         "environment.OMP_NUM_THREADS (1; 4)"),
        ({"hosts": [{**host("n1", [0]), "cpu": "AMD EPYC 7742"}]},
         "hosts.cpu (Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz; AMD EPYC 7742)"),
    ],
)  # fmt: skip
def test_repeats_with_different_settings_are_a_warning_that_names_them(run, tmp_path, values, differences):
    (warning,) = check([run("a"), run("b", **values)], force=False)
    assert warning == (
        "the 2 runs of tsm with torch, amp (fp16 O1), batch 10, 1 card(s) count as repeats but differ in "
        f"{differences}: {tmp_path}/a, {tmp_path}/b"
    )


def test_repeats_on_other_hosts_with_equal_hardware_are_no_warning(run):
    assert check([run("a"), run("b", hosts=[host("n7", [0])])], force=False) == []


def test_settings_are_compared_within_a_case_only(run):
    runs = [run("a", accumulate=1), run("b", accumulate=2, recipe_sha256="cd" * 32, workers=8)]
    assert check(runs, force=False) == []


def test_many_differing_settings_and_values_are_cut_short(run):
    optimizers = [{f"key{i}": value for i in range(10)} for value in range(5)]
    (warning,) = check([run(str(n), optimizer=values) for n, values in enumerate(optimizers)], force=False)
    assert "optimizer.key0 (0; 1; 2; ...)" in warning and "optimizer.key7 (" in warning
    assert "key8" not in warning and " and 2 more settings: " in warning and warning.endswith("/2 and 2 more")


def test_a_resume_with_other_settings_is_a_warning(run, tmp_path):
    events = training_events()
    events.insert(4, {"event": "resume", "step": 100, "time": 121.0, "workers": 8, "recipe_sha256": "cd" * 32})
    (warning,) = check([run("a"), run("b", events)], force=False)
    assert warning == f"runs of tsm were resumed with another workers, recipe_sha256 ({tmp_path}/b)"
