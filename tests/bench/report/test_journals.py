"""Runs read from folders: case, facts, state."""

import json

import pytest

from tests.bench.report.runs import speed_events, train_event, training_events, write
from tests.helpers.journals import full_begin, full_load, host
from zoo.bench.report import journals, matrices
from zoo.bench.report.run import COMPLETE, FAILED, INCOMPLETE, SKIPPED


def read(tmp_path, events):
    return journals.read(write(tmp_path / "run", events))


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
    assert run.facts["framework_version"] == "2.13.0" and run.facts["seed"] == 1


@pytest.mark.parametrize(
    "values, expected",
    [
        ({"precision": "fp32", "compute": "fp32", "level": None}, "fp32"),
        ({"precision": "amp", "compute": "bf16", "level": "O1"}, "amp (bf16 O1)"),
        ({"precision": "bf16", "compute": "bf16", "level": "O2"}, "bf16 (O2)"),
        ({"precision": "exact", "compute": "fp64", "level": None}, "exact"),
        ({"precision": None, "compute": "fp32", "level": None}, "fp32"),
        ({"precision": None, "compute": None, "level": None}, None),
    ],
)
def test_precisions(tmp_path, values, expected):
    assert read(tmp_path, [full_load(), full_begin(**values)]).case.precision == expected


@pytest.mark.parametrize(
    "device, hosts, expected, is_accelerator",
    [
        (
            "cpu (2 threads)",
            [{**host("a", [0]), "accelerators": []}],
            "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz",
            False,
        ),
        ("cuda:0 (Tesla V100)", [], "Tesla V100", True),
        ("cpu (2 threads)", [], "cpu (2 threads)", False),
        ("gpu:0", None, "gpu:0", True),
    ],
)
def test_devices(tmp_path, device, hosts, expected, is_accelerator):
    run = read(tmp_path, [full_load(), {**full_begin(device=device), "hosts": hosts}])
    assert run.case.device == expected and journals.has_accelerator(run) is is_accelerator


def test_tf32_can_be_switched_off(tmp_path):
    begin = full_begin(cards=2, nodes=2)
    assert read(tmp_path, [full_load(), begin]).tf32
    begin["hosts"][1]["environment"]["NVIDIA_TF32_OVERRIDE"] = "0"
    assert not read(tmp_path / "b", [full_load(), begin]).tf32


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({"torch.backends.cuda.matmul.allow_tf32": False, "torch.backends.cudnn.allow_tf32": False}, False),
        ({"torch.backends.cuda.matmul.allow_tf32": True, "torch.backends.cudnn.allow_tf32": True}, True),
        ({"conv_allow_tf32": True, "matmul_allow_tf32": False}, True),  # convolutions are most of the work
        ({"NVIDIA_TF32_OVERRIDE": "0"}, False),
        ({"torch.backends.cudnn.benchmark": False}, True),  # nothing is said: the frameworks' own default
    ],
)
def test_tf32_counts_as_the_settings_allow_it(tmp_path, settings, expected):
    assert read(tmp_path, [full_load(), full_begin(arithmetic=settings)]).tf32 is expected


def test_a_run_without_an_end_is_incomplete(tmp_path):
    run = read(tmp_path, training_events()[:-1])
    assert (run.state, run.remark) == (INCOMPLETE, "step 300 of 750") and run.values.samples_per_s
    assert read(tmp_path / "b", []).remark == "it has not begun"


@pytest.mark.parametrize(
    "output, error",
    [
        ("step 5\nerror: no finite gradient\nlast words\n", "error: no finite gradient"),
        ("Traceback (most recent call last):\n  File x\ntorch.OutOfMemoryError: CUDA out of memory\n",
         "torch.OutOfMemoryError: CUDA out of memory"),
        ("step 5/20  error rate 3\n", None),
    ],
)  # fmt: skip
def test_the_console_output_beside_a_run_tells_why_it_failed(tmp_path, output, error):
    (tmp_path / "run.log").write_text("x" * 100_000 + "\n" + output)
    run = read(tmp_path, training_events()[:-1])
    assert (run.state, run.remark) == (
        (FAILED, f"step 300 of 750: {error}") if error else (INCOMPLETE, "step 300 of 750")
    )
    assert read(tmp_path, training_events()).state == COMPLETE  # it was resumed


def test_damaged_lines_are_skipped(tmp_path):
    lines = [json.dumps(event) for event in training_events()]
    damaged = ['{"event": "train", "st', "[1, 2]", "3", "null", '"x"', "{}", '{"event": 3}', "[" * 100_000]
    damaged += ['{"event": "resume"}', '{"event": "eval", "step": "a"}', "\x00"]
    damaged += ['{"event": "train", "step": 1e999, "loss": NaN}']
    folder = tmp_path / "run"
    folder.mkdir()
    mixed = [line for pair in zip(lines, damaged + [""] * len(lines)) for line in pair]
    (folder / "events.jsonl").write_text("\n".join(mixed))
    run, whole = journals.read(str(folder)), read(tmp_path / "whole", training_events())
    assert run.state == COMPLETE and run.values._replace(steps=whole.values.steps) == whole.values
    assert run.losses == whole.losses


def test_missing_fields_are_unknown(tmp_path):
    events = [
        {"event": "begin", "time": 5.0},
        {"event": "train", "time": 6.0, "step": 3},
        {"event": "end", "time": 7.0},
    ]
    run = read(tmp_path, events)
    assert run.state == COMPLETE and set(run.case) == {None} and run.values.total_time == 2.0
    assert run.values._replace(total_time=None, steps=None) == type(run.values)()._replace(steps=None)


def test_runs_are_found_below_folders_but_not_below_runs(tmp_path):
    for name in ("bz16/b", "bz4/a", "bz4/a/checkpoints/inner"):
        write(tmp_path / name, [])
    found = journals.find(str(tmp_path))
    assert found == [str(tmp_path / "bz4/a"), str(tmp_path / "bz16/b")]
    assert journals.find(str(tmp_path / "bz4/a")) == [str(tmp_path / "bz4/a")]


def test_variants_of_a_matrix_are_cases_of_their_own(tmp_path):
    (tmp_path / "matrix.json").write_text("{}")
    layout = "torch/resnet/bz4/1n1g/resnet_b4_fp32_1"
    runs = [journals.read(write(tmp_path / part / layout, speed_events(9.0))) for part in (".", "base", "new")]
    assert [run.case.variant for run in runs] == [None, "base", "new"]
    assert matrices.root_of(runs[2].path) == str(tmp_path)


def test_cases_of_a_matrix_without_runs(tmp_path):
    case = {"recipe": "tsm_demo", "model": "tsm", "framework": "paddle", "precision": "amp", "batch": 4, "hosts": 1,
            "processes": 2, "status": "skipped", "reason": "no fp16 on this CPU", "count": 0}  # fmt: skip
    cases = [case, {**case, "status": "done", "count": 3}, {**case, "status": "failed", "count": 2}, None, 3]
    (tmp_path / "results.json").write_text(json.dumps({"cases": cases}))
    (run,) = matrices.without_runs(str(tmp_path))
    assert (run.state, run.remark) == (SKIPPED, "no fp16 on this CPU")
    assert (run.case.model, run.case.framework, run.case.cards, run.case.batch) == ("tsm", "paddle", 2, 4)
    for damage in ("", "{", "[]", '{"cases": 3}'):
        (tmp_path / "results.json").write_text(damage)
        assert matrices.without_runs(str(tmp_path)) == []


def test_the_interval_of_a_real_train_event_counts(tmp_path):
    events = [full_load(), full_begin(batch=10), train_event(10, 110.0), train_event(20, 120.0, 25.0)]
    assert read(tmp_path, events).values.samples_per_s == pytest.approx(25.0)
