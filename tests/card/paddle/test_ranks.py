"""Two ranks with a device each: their updates are those of one process that takes the ranks' batches one by one."""

import pytest

from tests.helpers.processes import losses, train_arguments

pytestmark = pytest.mark.slow

UPDATES = 4
RUNS = {  # model and options, largest relative difference of a loss
    "fp16": ("resnet50", {}, 1e-5),
    "fp16_allreduce": ("resnet50", {"train.fp16_allreduce": "true"}, 2e-3),
    "class matrix": ("arcface", {"train.precision": "fp32", "optim.clip_norm": 0.1}, 1e-5),
}


@pytest.mark.parametrize(("model", "options", "limit"), RUNS.values(), ids=RUNS)
def test_two_ranks_are_one_process_with_two_micro_batches(npu, demo_sets, model, options, limit, tmp_path):
    changes = {"train.precision": "fp16", "train.batch": 6, "train.sync_bn": "false", "train.epochs": ""}
    changes |= {"train.steps": UPDATES, "optim.warmup": "1 steps", "optim.initial_loss_scale": 1024, **options}
    words = [train_arguments(demo_sets, model, tmp_path / out, "paddle", "--device", "npu", **changes) for out in "12"]
    npu(*words[0])
    npu("-m", "zoo", "launch", "1x2", "--logs", tmp_path / "logs", *words[1][1:], CARD_DEVICES=2)
    one, two = losses(tmp_path / "1"), losses(tmp_path / "2")
    assert list(one) == list(range(1, UPDATES + 1)) and two == pytest.approx(one, rel=limit)
    assert one[1] != one[UPDATES]
