"""What a run lacks to be submitted: every single omission is named."""

import json
import re

import pytest

from tests.bench.submission.scales import VAL, events, write_run, write_scales
from tests.helpers.journals import full_begin, full_load, host
from zoo.bench.submission import rules, runs
from zoo.data.errors import UserError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOAD = json.dumps(full_load()) + "\n"


def missing(scales):
    return runs.missing({cards: runs.read(path) for cards, path in scales.items()}, rules.LISTED["tsm"])


def test_runs_that_lack_nothing(tmp_path):
    assert missing(write_scales(tmp_path)) == []


def begin_with(**changes):
    """Return a change of a journal: fields of `begin`."""
    return lambda found: [{**event, **changes} if event["event"] == "begin" else event for event in found]


def without(name):
    return lambda found: [event for event in found if event["event"] != name]


def changed(name, **changes):
    return lambda found: [{**event, **changes} if event["event"] == name else event for event in found]


CPU = [{**host("n1", range(8)), "accelerators": []}]
TWO_KINDS = [host("n1", range(4)), {**host("n2", range(4, 8)), "accelerators": [{"name": "A100"}] * 4}]


@pytest.mark.parametrize(
    "change, message",
    [
        (without("end"), "unfinished: continue it with --resume"),
        (without("eval"), "no evaluation"),
        (changed("eval", accuracy=0.7109), "target not reached: best top1 0.7109, AI-Rank's target is 0.711"),
        (changed("load", checksum=None), "the checksum of the data is missing"),
        (changed("load", checksum="synthetic"), "the checksum of the data is synthetic, not one of files"),
        (begin_with(git=None), "the commit of the code is unknown"),
        (begin_with(git={"commit": "01" * 20, "dirty": True}), "the code differed from commit 010101010101"),
        (begin_with(speed={"drop": 20, "count": 100}), "a run of --speed"),
        (begin_with(ranks=4), "the run had 4 processes, not 8"),
        (begin_with(hosts=CPU), "the run used 0 GPUs or NPUs for 8 processes"),
        (begin_with(hosts=TWO_KINDS), "the run used 2 machines, 8 cards are 1"),
        (begin_with(hosts=TWO_KINDS), "the machines differ: 4 x A100, 4 x Tesla V100-SXM2-16GB"),
        (
            begin_with(data="motion", protocol="motion/8x1x1@32"),
            "trained on motion (motion/8x1x1@32), the rules demand",
        ),
        (begin_with(protocol="ssv2/8x1x1@224"), "the rules demand Kinetics-400"),
        (
            begin_with(protocol="k400/8x10x3@256-dense"),
            "protocol k400/8x10x3@256-dense, which is not that of AI-Rank's",
        ),
        (begin_with(protocol="k400"), "evaluated by the protocol k400"),
        (begin_with(metric="top5"), "the accuracy is top5, the rules demand top1"),
        (changed("eval", samples=100), "the evaluation at step 1000 took 100 of 19761 samples"),
        (changed("eval", samples=VAL, bad=19000), "19000 of 19761 samples of the evaluation at step 1000 could not be"),
        (begin_with(train_samples=1000), "1000 training samples; Kinetics-400 has 230000 to 250000"),
        (begin_with(val_samples=40), "40 validation samples; Kinetics-400 has 19000 to 20500"),
        (begin_with(arch={"depth": 18}), "the model has depth 18, not 50"),
        (begin_with(eval_every="5 epochs"), "evaluated every 5 epochs, the rules demand every 1 epoch"),
    ],
)
def test_every_omission_of_a_run_is_named(change, message, tmp_path):
    path = write_run(tmp_path / "run", change(events(8)))
    found = missing({8: path})
    assert any(message in line and line.startswith(f"GPUx8.log ({path}): ") for line in found), found


def test_a_few_samples_may_be_unreadable(tmp_path):
    found = changed("eval", samples=VAL, bad=3)(begin_with(protocol="k400/8x1x1@224-test")(events(8)))
    assert missing({8: write_run(tmp_path / "run", found)}) == []


@pytest.mark.parametrize(
    "model, views, others",
    [
        ("tsm", ["8x1x1@224", "8x1x1@224-test"], ["16x1x1@224", "8x2x1@224-twice", "8x1x3@256"]),
        ("resnet", ["224-of-256"], ["320-of-366", "224-of-224", ""]),
        (
            "deeplabv3plus",
            ["whole@1024x2048", "slide769x769/513x513@1025x2049", "whole@full"],
            ["whole@1024x2048-flip", "whole@1024x2048*0.5,1", "whole@512x1024"],
        ),
    ],
)
def test_protocols_of_ai_ranks_targets(model, views, others):
    pattern = re.compile(rules.LISTED[model].views)
    assert [pattern.fullmatch(view) is not None for view in views + others] == [True] * len(views) + [False] * len(
        others
    )


@pytest.mark.parametrize(
    "name, value",
    [("seed", 2), ("framework", "paddle"), ("framework_version", "2.12.0"), ("compute", "fp32")],
)
def test_what_differs_between_scales_is_named(name, value, tmp_path):
    scales = write_scales(tmp_path, cards=(1,)) | {8: write_run(tmp_path / "b", begin_with(**{name: value})(events(8)))}
    (line,) = missing(scales)
    assert line.startswith(f"GPUx1.log and GPUx8.log differ in {name}: ") and line.endswith(f"and {value}")


def test_another_commit_or_checksum_between_scales_is_named(tmp_path):
    one = write_scales(tmp_path, cards=(1,))
    commit = begin_with(git={"commit": "ab" * 20, "dirty": False})(events(8))
    assert "differ in the code: 0123456789" in missing(one | {8: write_run(tmp_path / "a", commit)})[0]
    data = changed("load", checksum="ab" * 16)(begin_with(checksum="ab" * 16)(events(8)))
    assert "differ in the checksum of the data: 37724b" in missing(one | {8: write_run(tmp_path / "b", data)})[0]


def test_another_recipe_between_scales_is_named(tmp_path):
    one = write_scales(tmp_path, cards=(1,))
    other = write_run(tmp_path / "b", events(8), overrides=["optim.lr=0.03", "model.dropout=0.4"])
    assert missing(one | {8: other}) == [
        "GPUx1.log and GPUx8.log differ in the recipe: model.dropout: 0.5 and 0.4",
        "GPUx1.log and GPUx8.log differ in the recipe: optim.lr: 0.02 and 0.03",
    ]
    divided = write_run(tmp_path / "c", events(8), overrides=["train.batch=8", "data.workers=8"])
    assert missing(one | {8: divided}) == []


def test_a_learning_rate_that_is_not_scaled_may_differ(tmp_path):
    rates = {1: "0.01", 8: "0.04"}
    scales = {
        cards: write_run(tmp_path / str(cards), events(cards), overrides=["optim.base_batch=null", f"optim.lr={rate}"])
        for cards, rate in rates.items()
    }
    assert missing(scales) == []


OTHER_GPU = [{**host("n1", range(8)), "accelerators": [{"name": "NVIDIA H100"}] * 8}]
OPTIMIZER = events(8)[1]["optimizer"]


def resumed(folder, **changes):
    """Write a run with a resume after its first epoch; changes: of its event."""
    found = events(8)
    facts = {name: found[1][name] for name in FACTS}
    found.insert(3, {"event": "resume", "time": found[2]["time"] + 1, "step": 1000, **facts, **changes})
    return write_run(folder, found)


FACTS = (  # of the event `resume`
    *("framework", "framework_version", "git", "hosts", "device", "ranks", "batch", "accumulate", "global_batch"),
    *("compute", "level", "channels_last", "compile", "precision", "loss_scale", "optimizer", "eval_batch", "workers"),
    *("threads", "loader", "recipe_sha256"),
)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"ranks": 4}, "ranks 4, begun with 8"),
        ({"global_batch": 64}, "global_batch 64, begun with 128"),
        ({"framework": "paddle"}, "framework paddle, begun with torch"),
        ({"framework_version": "2.14.0"}, "framework_version 2.14.0, begun with 2.13.0"),
        ({"compute": "fp32"}, "compute fp32, begun with fp16"),
        ({"loader": "dali"}, "loader dali, begun with reference"),
        ({"optimizer": {**OPTIMIZER, "momentum": 0.5}}, "optimizer.momentum 0.5, begun with 0.9"),
        ({"recipe_sha256": "cd" * 32}, f"recipe_sha256 {'cd' * 32}, begun with {'ab' * 32}"),
        ({"hosts": OTHER_GPU}, "accelerators 8 x NVIDIA H100, begun with 8 x Tesla V100-SXM2-16GB"),
        ({"hosts": [host("n1", range(4)), host("n2", range(4, 8))]}, "machines 2, begun with 1"),
        ({"git": {"commit": "ab", "dirty": False}}, "commit ab, begun with 0123456789abcdef"),
        ({"git": {"commit": COMMIT, "dirty": True}}, "code that differed from its commit"),
        ({"git": None}, "code of an unknown commit"),
    ],
)
def test_a_run_that_was_continued_otherwise_is_named(change, message, tmp_path):
    found = missing({8: resumed(tmp_path / "run", **change)})
    assert any(f": continued at step 1000 with {message}" in line for line in found), found
    assert len(found) == 1


def test_what_a_resume_may_change(tmp_path):
    assert missing({8: resumed(tmp_path / "same")}) == []
    free = {"batch": 8, "accumulate": 2, "eval_batch": 4, "workers": 9, "threads": 3, "device": "cuda:1 (V100)"}
    assert missing({8: resumed(tmp_path / "free", **free)}) == []


def test_other_data_after_a_resume(tmp_path):
    found = events(8)
    change = {"event": "data_changed", "time": found[2]["time"] + 1, "first_step": 1000, "checksum": "ab" * 16}
    found.insert(3, change)
    (line,) = missing({8: write_run(tmp_path / "run", found)})
    assert line.endswith(f"continued at step 1000 with data whose checksum is {'ab' * 16}")


def test_a_resume_of_an_older_version_is_the_same(tmp_path):
    found = events(8)
    found.insert(3, {"event": "resume", "time": found[2]["time"] + 1, "step": 1000, "path": "x"})
    assert missing({8: write_run(tmp_path / "run", found)}) == []


def test_scales_of_different_machines_are_named(tmp_path):
    scales = write_scales(tmp_path, cards=(1,)) | {8: write_run(tmp_path / "b", begin_with(hosts=OTHER_GPU)(events(8)))}
    assert missing(scales) == ["GPUx1.log and GPUx8.log differ in the machines: Tesla V100-SXM2-16GB and NVIDIA H100"]


def test_a_missing_recipe_is_named(tmp_path):
    path = write_run(tmp_path / "run", events(8))
    (tmp_path / "run/config.yaml").unlink()
    assert missing({8: path}) == [f"GPUx8.log ({path}): no config.yaml"]


def test_the_log_has_ai_ranks_target_whatever_that_of_the_recipe(tmp_path):
    run = runs.read(write_run(tmp_path / "run", events(8, changes={"target": 0.5})))
    reached = [line for line in run.log(rules.LISTED["tsm"].target) if "target_quality_time" in line]
    assert reached == ["AI-Rank-log 1700002100.000000 target_quality_time:2000.000000sec"]
    assert "target_quality_time:1000.000000sec" in "".join(run.log(None))


def test_a_log_whose_numbers_do_not_recompute_is_named(tmp_path):
    found = events(8)
    found[-1]["epoch"] = 2.0  # of three evaluated epochs
    path = write_run(tmp_path / "run", found)
    (line,) = missing({8: path})
    assert "avg_ips is" in line and "by definition" in line


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "has not begun"),
        (json.dumps(full_begin()), "no event `load`"),
        (LOAD + '{"event": "begin", "time": 1}\n', "`begin` has no framework, framework_version, recipe"),
        (LOAD + json.dumps(full_begin()) + '\n{"event": "eval", "time": 3, "step": 1, "epoch": 1}\n', "no accuracy"),
    ],
)
def test_journals_that_cannot_be_used(text, message, tmp_path):
    (tmp_path / "events.jsonl").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        runs.read(str(tmp_path))
    assert "events.jsonl" in str(caught.value)


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(UserError, match="not the folder of a run"):
        runs.read(str(tmp_path))
