"""Runs read from folders: case, state and values, which are computed by hand; what a resume changed."""

import json

import pytest

from tests.helpers.journals import end, full_begin, full_load, host
from tests.helpers.report_runs import eval_event, speed_events, train_event, training_events, write
from zoo.bench.report import runs
from zoo.bench.report.results import group
from zoo.bench.report.runs import (
    COMPLETE,
    DAMAGED,
    ENDED,
    INCOMPLETE,
    INTERVALS,
    MIXED,
    SPEED,
    Values,
    avg_ips,
    measure,
    points,
    settings_of,
)


def read(tmp_path, events):
    return runs.read(write(tmp_path / "run", events))


def begin(**values):
    return [full_load(), full_begin(batch=10, **values)]


def test_the_case_of_a_run(tmp_path):
    run = read(tmp_path, speed_events(100.0, cards=16, nodes=2, batch=64, precision="amp"))
    assert run.case._asdict() == {
        "model": "resnet",
        "recipe": "resnet50_imagenet",
        "variant": None,
        "framework": "torch",
        "precision": "amp (fp16 O1)",
        "batch": 64,
        "accumulate": 1,
        "nodes": 2,
        "cards": 16,
        "device": "Tesla V100-SXM2-16GB",
        "counting": "timed updates",
    }
    assert run.case.global_batch == 1024 and (run.state, run.remark) == (COMPLETE, "")
    assert run.facts["host_name"] == "n1, n2" and run.facts["accelerators"] == 16 and run.facts["cuda"] == "11.0"


@pytest.mark.parametrize(
    "values, expected",
    [
        ({"precision": "fp32", "compute": "fp32", "level": None}, "fp32"),
        ({"precision": "amp", "compute": "bf16", "level": "O1"}, "amp (bf16 O1)"),
        ({"precision": "bf16", "compute": "bf16", "level": "O2"}, "bf16 (O2)"),
        ({"precision": "exact", "compute": "fp64", "level": None}, "exact"),
        ({"precision": None, "compute": None, "level": None}, None),
    ],
)
def test_precisions(tmp_path, values, expected):
    assert read(tmp_path, [full_load(), full_begin(**values)]).case.precision == expected


@pytest.mark.parametrize(
    "device, hosts, expected, is_accelerator",
    [
        ("cpu (2 threads)", [{**host("a", [0]), "accelerators": []}], host("a", [0])["cpu"], False),
        ("cuda:0 (Tesla V100)", [], "Tesla V100", True),
        ("cpu (2 threads)", [], "cpu (2 threads)", False),
        ("gpu:0", None, "gpu:0", True),
    ],
)
def test_devices(tmp_path, device, hosts, expected, is_accelerator):
    run = read(tmp_path, [full_load(), {**full_begin(device=device), "hosts": hosts}])
    assert run.case.device == expected and bool(run.facts.get("on_accelerator")) is is_accelerator


@pytest.mark.parametrize(
    "arithmetic, expected",
    [
        ({"torch.backends.cuda.matmul.allow_tf32": False, "torch.backends.cudnn.allow_tf32": False}, False),
        ({"conv_allow_tf32": True, "matmul_allow_tf32": False}, True),  # convolutions are most of the work
        ({"NVIDIA_TF32_OVERRIDE": "0"}, False),
        ({"torch.backends.cudnn.benchmark": False}, True),  # nothing is said: the frameworks' own default
    ],
)
def test_tf32_counts_as_the_settings_allow_it(tmp_path, arithmetic, expected):
    start = full_begin(cards=2, nodes=2, arithmetic=arithmetic)
    assert read(tmp_path, [full_load(), start]).tf32 is expected
    start["hosts"][1]["environment"]["NVIDIA_TF32_OVERRIDE"] = "0"
    assert not read(tmp_path, [full_load(), start]).tf32


def test_a_run_without_an_end(tmp_path):
    run = read(tmp_path, training_events()[:-1])
    assert (run.state, run.remark) == (INCOMPLETE, "step 300 of 750") and run.values.samples_per_s
    assert read(tmp_path / "b", []).remark == "it has not begun"


def test_damaged_lines_are_skipped_and_damaged_fields_named(tmp_path):
    lines = [json.dumps(event) for event in training_events()]
    damaged = ['{"event": "train", "st', "[1, 2]", "3", "null", "{}", '{"event": 3}', "\x00", '{"event": "resume"}']
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "events.jsonl").write_text("\n".join([*lines[:3], *damaged, *lines[3:]]))
    assert runs.read(str(folder)) == read(tmp_path, training_events())
    run = read(tmp_path, [full_load(), {**full_begin(), "hosts": 3}])
    assert run.state == DAMAGED and "events.jsonl is damaged" in run.remark


def test_missing_fields_are_unknown(tmp_path):
    events = [{"event": "begin", "time": 5.0}, {"event": "train", "time": 6.0, "step": 3}, {"event": "end", "time": 7}]
    run = read(tmp_path, events)
    assert run.state == COMPLETE and set(run.case) == {None}
    assert run.values == Values(total_time=2.0)


def test_variants_of_a_matrix_are_cases_of_their_own(tmp_path):
    (tmp_path / "matrix.json").write_text("{}")
    layout = "torch/resnet/bz4/1n1g/resnet_b4_fp32_1"
    found = [runs.read(write(tmp_path / part / layout, speed_events(9.0))) for part in (".", "base", "new")]
    assert [run.case.variant for run in found] == [None, "base", "new"]


def test_a_speed_run_has_the_throughput_that_it_counted():
    values, counting = measure(speed_events(369.81, step_ms=[100.0] * 90 + [200.0] * 10), None, 0)
    assert counting == SPEED and values.samples_per_s == 369.81 and values.data_wait == 0.25
    assert (values.p50, values.p90, values.p99) == (100.0, pytest.approx(110.0), 200.0)
    assert len(values.step_ms) == 100 and values.evaluations == 0 and values.best is None


def test_throughput_of_training_leaves_out_the_first_interval_and_weighs_by_samples():
    """100 samples in 10 s, then 300 in 3 s: (100 + 300) / 13; the slow first interval does not count."""
    events = [*begin(), train_event(5, 110, 1.0), train_event(15, 120, 10.0), train_event(45, 124, 100.0)]
    values, counting = measure(events, None, 0)
    assert counting == INTERVALS and values.samples_per_s == pytest.approx(400 / 13)
    assert measure(events[:3], None, 0)[0].samples_per_s == pytest.approx(1.0)  # a single one counts


def test_after_a_resume_the_first_interval_is_left_out_and_the_new_batch_counts():
    """Second process: 20 samples an update. Its interval from step 30 to 40 has 200 samples at 50/s, so 4 s."""
    events = [
        *begin(),
        train_event(10, 110, 5.0),
        train_event(20, 111, 100.0),  # 100 samples in 1 s
        {"event": "resume", "time": 150, "step": 20, "path": "x", "global_batch": 20},
        train_event(30, 160, 1.0),
        train_event(40, 164, 50.0),
    ]
    assert measure(events, None, 0)[0].samples_per_s == pytest.approx((100 + 200) / (1 + 4))


def test_energy_memory_and_waiting():
    """Intervals of 100 samples at 100/s and 50/s, so 1 s and 2 s; energies of 200 J and 500 J."""
    power = {"energy_j": 200.0, "watts": 200.0}
    events = [
        *begin(),
        train_event(10, 101, 1.0),
        train_event(20, 102, 100.0, power=power, data_wait_fraction=0.3, device_memory_bytes=5),
        train_event(30, 104, 50.0, power={"energy_j": 500.0, "watts": 250.0}, data_wait_fraction=0.0),
    ]
    values = measure(events, None, 0)[0]
    assert values.joules_per_sample == pytest.approx(700 / 200) and values.wh == pytest.approx(700 / 3600)
    assert values.watts == pytest.approx((200 * 1 + 250 * 2) / 3) and values.data_wait == pytest.approx(0.1)
    assert (values.host_memory, values.device_memory) == (3 << 30, 2 << 30)


def test_time2train_and_accuracy():
    """Evaluations at 20, 40 and 60 s with 0.5, 0.72 and 0.7; the end at 60.5 s."""
    values = measure(training_events(), 0.711, 0)[0]
    assert (values.best, values.evaluations) == (0.72, 3)
    assert (values.time_to_target, values.target_epoch, values.total_time) == (40.0, 2, 60.5)
    missed = measure(training_events(), 0.73, 0)[0]
    assert missed.time_to_target is None and missed.target_epoch is None and missed.best == 0.72
    assert measure(training_events(), 0.72, 0)[0].time_to_target == 40.0  # at the target is enough


@pytest.mark.parametrize(
    "warmup, expected", [(0, 3000 / 60.5), (1, 2000 / 40.5), (1.5, 2000 / 40.5), (2, 1000 / 20.5), (3, None)]
)
def test_avg_ips_by_the_definition_of_ai_rank(warmup, expected):
    """3 epochs of 1000 samples in 60.5 s; the warm-up ends with the last evaluation in it."""
    assert avg_ips(training_events(), warmup) == (expected and pytest.approx(expected))
    assert avg_ips(training_events()[:-1], warmup) is None  # without an end


def test_points_over_samples_and_time():
    events = [*begin(), train_event(10, 105.0, loss=3.0), train_event(20, 107.0, loss=float("nan"))]
    events.append(eval_event(1, 110.0, 0.4))
    assert points(events, "train", "loss") == [(100.0, 5.0, 3.0)]
    assert points(events, "eval", "accuracy") == [(1000.0, 10.0, 0.4)]
    assert points(events[2:], "train", "loss")[0] == (None, None, 3.0)  # without a beginning


OLD = ("device", "ranks", "accumulate", "batch", "global_batch", "loader", "framework_version", "git", "hosts")
NEW = (*OLD, "framework", "compute", "level", "channels_last", "compile", "precision", "loss_scale", "optimizer",
       "eval_batch", "workers", "threads", "recipe_sha256")  # fmt: skip


def resumed(fields=NEW, **changes):
    """Return the events of a run that was resumed after its first epoch, with other values of some fields."""
    events, start = training_events(), full_begin(batch=10)
    again = {"event": "resume", "time": 121.0, "step": 100, "path": "x"}
    events.insert(5, {**again, **{key: start[key] for key in fields}, **changes})
    return events


@pytest.mark.parametrize(
    "changes, names",
    [
        ({"framework": "paddle"}, "framework"),
        ({"precision": "fp32", "compute": "fp32", "level": None}, "precision, compute"),
        ({"optimizer": {**full_begin(batch=10)["optimizer"], "lr": 0.04}}, "optimizer"),
        ({"optimizer": {**full_begin(batch=10)["optimizer"], "clip_norm": None}}, "optimizer"),
        ({"ranks": 2, "batch": 5}, "ranks, batch"),
        ({"device": "cuda:0 (H100)"}, "device"),
    ],
)
def test_a_resume_with_another_method_makes_a_run_mixed(tmp_path, changes, names):
    run = read(tmp_path, resumed(**changes))
    assert (run.state, run.remark) == (MIXED, f"resumed with another {names}")
    assert read(tmp_path / "killed", resumed(**changes)[:-1]).state == INCOMPLETE


@pytest.mark.parametrize(
    "changes, names",
    [
        ({"workers": 8, "recipe_sha256": "cd" * 32}, ["workers", "recipe_sha256"]),
        ({"device": "cuda:3 (Tesla V100-SXM2-16GB)", "workers": None}, []),
        ({"threads": 8}, ["threads"]),
    ],
)
def test_other_changes_leave_a_run_complete(tmp_path, changes, names):
    run = read(tmp_path, resumed(**changes))
    assert (run.state, run.changed) == (COMPLETE, names)


def test_the_threads_of_a_processor_are_no_other_device():
    devices = "cpu (2 threads)", "cpu (8 threads, AVX2 without bf16)", "cpu", "cuda:1 (H100)", "cuda:0 (H100)"
    assert [settings_of({"device": device})["device"] for device in devices] == [*["cpu"] * 3, *["cuda (H100)"] * 2]


@pytest.mark.parametrize(
    "reason, remark",
    [
        ("steps", None),
        ("max_steps", "at step 20 of 750 (--max-steps)"),
        ("target", "at step 20 of 750 (the target is reached)"),
        ("early_stopping", "at step 20 of 750 (no improvement)"),
    ],
)
def test_a_run_that_was_cut_short_is_not_complete(tmp_path, reason, remark):
    events = [*resumed()[:-1], {**end(20), "reason": reason}]
    run = read(tmp_path, events)
    assert (run.state, run.remark) == ((ENDED, remark) if remark else (COMPLETE, ""))
    assert [len(result.runs) for result in group([run])] == [1]  # it counts
