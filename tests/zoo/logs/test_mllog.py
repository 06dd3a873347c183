"""MLPerf lines of a run: their order and values, and what mlperf-logging says of them."""

import json
from pathlib import Path

import pytest

from tests.helpers.journals import full_begin, full_load
from tests.helpers.paths import ROOT
from zoo.logs.mllog import Submission, lines

SUBMISSION = Submission("our lab")
RULES = ROOT / "zoo/bench/submission/mlperf_rules.yaml"
MODELS = {"tsm": 0.711, "resnet": 0.759, "deeplabv3plus": 0.785, "arcface": 0.95}


def evaluation(epoch, accuracy, seconds=2.0):
    """Return an evaluation that ends 10 s per epoch after the clock's start and takes 2 s."""
    return {
        "event": "eval",
        "time": 100.0 + 10 * epoch,
        "step": int(250 * epoch),
        "epoch": epoch,
        "accuracy": accuracy,
        "seconds": seconds,
    }


def end(epoch):
    return {"event": "end", "time": 100.5 + 10 * epoch, "step": int(250 * epoch), "epoch": epoch}


def run(*accuracies, **changes):
    evals = [evaluation(float(epoch), accuracy) for epoch, accuracy in enumerate(accuracies, 1)]
    return [full_load(), full_begin(**changes), *evals, end(float(len(evals)))]


def entries(events, submission=SUBMISSION):
    texts = lines(events, submission)
    assert all(text.startswith(":::MLLOG {") and "\n" not in text for text in texts)
    return [json.loads(text.removeprefix(":::MLLOG ")) for text in texts]


def value_of(found, key):
    (entry,) = [entry for entry in found if entry["key"] == key]
    return entry["value"]


def test_the_course_of_a_run_up_to_its_target():
    found = entries(run(0.5, 0.72, 0.9))
    course = [(entry["key"], entry["time_ms"]) for entry in found if entry["time_ms"] >= 100_000]
    assert course == [
        ("init_stop", 100_000),
        ("run_start", 100_000),
        ("block_start", 100_000),
        ("tracked_stats", 108_000),
        ("block_stop", 108_000),
        ("eval_start", 108_000),
        ("eval_accuracy", 110_000),
        ("eval_stop", 110_000),
        ("block_start", 110_000),
        ("tracked_stats", 118_000),
        ("block_stop", 118_000),
        ("eval_start", 118_000),
        ("eval_accuracy", 120_000),
        ("eval_stop", 120_000),
        ("run_stop", 120_000),
    ]
    assert found[-1]["metadata"] == {"status": "success", "epoch_num": 2, "samples_count": 2000, "step_num": 500}
    assert [entry["value"] for entry in found if entry["key"] == "eval_accuracy"] == [0.5, 0.72]
    blocks = [entry["metadata"] for entry in found if entry["key"] == "block_start"]
    assert blocks == [{"first_epoch_num": 1, "epoch_count": 1}, {"first_epoch_num": 2, "epoch_count": 1}]
    speeds = [entry["value"]["throughput"] for entry in found if entry["key"] == "tracked_stats"]
    assert speeds == [125.0, 125.0]  # 1000 samples in 8 s


def test_what_is_logged_before_the_clock_starts():
    found = entries(run(0.72, cards=8, batch=16))
    assert [entry["key"] for entry in found[:7]] == [
        "submission_benchmark",
        "submission_org",
        "submission_division",
        "submission_status",
        "submission_platform",
        "cache_clear",
        "init_start",
    ]
    assert {entry["time_ms"] for entry in found[: [entry["key"] for entry in found].index("init_stop")]} == {95_000}
    expected = {
        "submission_benchmark": "tsm",
        "submission_org": "our lab",
        "submission_platform": "1x8xTesla V100-SXM2-16GB",
        "cache_clear": False,
        "seed": 1,
        "global_batch_size": 128,
        "gradient_accumulation_steps": 1,
        "train_samples": 1000,
        "eval_samples": 100,
        "opt_name": "sgd",
        "sgd_opt_base_learning_rate": 0.02,
        "sgd_opt_momentum": 0.9,
        "sgd_opt_weight_decay": 1e-4,
        "opt_learning_rate_decay_boundary_epochs": [2, 3],
        "opt_learning_rate_decay_factor": 0.1,
        "opt_gradient_clip_norm": 20.0,
        "opt_learning_rate_warmup_epochs": 0.0,
    }
    assert {key: value_of(found, key) for key in expected} == expected


def stop(events):
    return [entry["metadata"]["status"] for entry in entries(events) if entry["key"] == "run_stop"]


def test_the_status_of_a_run():
    assert stop(run(0.5, 0.711)) == ["success"]
    assert stop(run(0.5, 0.7109)) == ["aborted"]  # ended below its target
    assert stop(run(0.5, target=None)) == ["success"]
    assert stop(run(0.5)[:-1]) == []  # not ended
    assert stop(run(0.5, 0.8)[:-1]) == ["success"]


def checked(path, events, config, submission=SUBMISSION, change=None):
    """Write the lines and return the errors of mlperf-logging's parser and the messages of its compliance checker."""
    mlp_compliance = pytest.importorskip("mlperf_logging.compliance_checker.mlp_compliance")
    text = "".join(line + "\n" for line in ["AI-Rank-log 1.0 test_begin", *lines(events, submission)])
    changed = text if change is None else text.replace(*change, 1)
    assert change is None or changed != text
    Path(path).write_text(changed, encoding="utf-8")
    found, errors = mlp_compliance.mlp_parser.parse_file(str(path), ruleset="4.0.0")
    assert len(found) == len(lines(events, submission)) and errors == []
    checker = mlp_compliance.make_checker("training", "4.0.0", quiet=False, werror=True)
    is_valid = mlp_compliance.main(str(path), config, checker)[0]
    messages = [*checker.overwritable.values(), *checker.not_overwritable]
    assert bool(is_valid) == (not messages)
    return messages


def config_of(model):
    return "training_4.0.0/common.yaml" if model == "resnet" else str(RULES)


@pytest.mark.parametrize("model", MODELS)
def test_the_compliance_checker_of_mlperf_accepts_every_model(model, tmp_path):
    for accuracies in ([0.5, MODELS[model]], [0.1]):
        events = run(*accuracies, model=model, target=MODELS[model])
        assert checked(tmp_path / "mllog.txt", events, config_of(model)) == []


@pytest.mark.parametrize("model", ["tsm", "deeplabv3plus", "arcface"])
@pytest.mark.parametrize(
    "old, new",
    [
        ('"key": "seed"', '"key": "other"'),
        ('"key": "global_batch_size", "value": 4', '"key": "global_batch_size", "value": -4'),
        ('"key": "opt_name", "value": "sgd"', '"key": "opt_name", "value": "adam"'),
        ('"key": "eval_accuracy"', '"key": "other"'),
        ('"status": "aborted"', '"status": "well"'),
        (
            '"value": 0.2, "metadata": {"epoch_num": 2, "samples_count": 2',
            '"value": 0.2, "metadata": {"epoch_num": 2, "samples_count": 1',
        ),
        ('"key": "submission_division", "value": "open"', '"key": "submission_division", "value": "ours"'),
        ('"key": "submission_benchmark", "value": "', '"key": "submission_benchmark", "value": "x'),
    ],
)
def test_our_rules_for_the_compliance_checker_refuse(model, old, new, tmp_path):
    events = run(0.1, 0.2, model=model, target=MODELS[model])
    assert checked(tmp_path / "mllog.txt", events, config_of(model), change=(old, new))


SPLITS = {"tsm": {"train_samples": 234619, "val_samples": 19761}}
SPLITS["deeplabv3plus"] = {"train_samples": 2975, "val_samples": 500}


@pytest.mark.parametrize("model", SPLITS)
def test_division_closed_is_ai_ranks_data_and_target(model, tmp_path):
    target, path, closed = MODELS[model], tmp_path / "mllog.txt", SUBMISSION._replace(division="closed")
    good = {"model": model, "target": target, **SPLITS[model]}
    assert checked(path, run(0.5, target, **good), config_of(model), closed) == []
    assert checked(path, run(0.5, target - 0.001, **good), config_of(model), closed)
    assert checked(path, run(0.5, target - 0.001, **{**good, "target": 0.1}), config_of(model), closed)
    assert checked(path, run(0.5, target, **{**good, "train_samples": 1000}), config_of(model), closed)
    assert checked(path, run(0.5, target, **{**good, "val_samples": 499}), config_of(model), closed)
