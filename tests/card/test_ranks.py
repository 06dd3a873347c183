"""Two ranks with a card each: torchrun, rendezvous and Gloo are real; PyTorch compares what the ranks ask of NCCL.

A process that uses the other's card is an error, as with cards in exclusive mode.
"""

import pytest

from tests.helpers.processes import losses
from zoo.logs import journal

pytestmark = pytest.mark.card

SAVED, UPDATES = 2, 4
RECIPES = {
    "resnet50": "-c tests/gpu/recipes/resnet50.yaml -o train.shard_optimizer=true",
    "deeplabv3plus": "-c tests/gpu/recipes/deeplabv3plus.yaml -o train.sync_bn=true",
    "arcface": "-c configs/reports/arcface_plsc_dlperf.yaml --framework torch --amp -o task.sample_rate=0.1",
}
SMALLER = "-o data.workers=0 -o data.val_samples=10 -o train.eval_batch=4 -o train.log_every=1 --device cuda"


@pytest.mark.parametrize("model", RECIPES)
def test_two_ranks_train_save_resume_and_evaluate(card, model, tmp_path):
    out, launch = tmp_path / "run", ["-m", "zoo", "launch", "1x2", "--logs", tmp_path / "logs"]
    words = [*RECIPES[model].split(), *SMALLER.split(), "--out", out, "--max-steps", SAVED]
    card(*launch, *words, CARD_DEVICES=2, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    card(*launch, "--resume", out, "--max-steps", UPDATES, CARD_DEVICES=2)
    assert list(losses(out)) == list(range(1, UPDATES + 1))
    assert [event["step"] for event in journal.history(str(out)) if event["event"] == "eval"] == [SAVED, UPDATES]
