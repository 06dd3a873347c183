"""A run whose ranks exchange signals every few steps, as in a large world."""

import signal

import pytest

from tests.helpers.processes import losses, require_framework, train_arguments
from tests.helpers.ranks import start_ranks, wait_for_losses

EVERY_OTHER_STEP = "from zoo.distributed import group; group.SMALL_WORLD, group.SECONDS_PER_RANK = 1, 1e9; "


@pytest.mark.slow
def test_a_signal_stops_all_ranks_after_the_next_exchange(demo_sets, tmp_path):
    require_framework("torch")
    folder = tmp_path / "run"
    arguments = train_arguments(
        demo_sets, "tsm", folder, "torch", train__epochs=2000, train__save_every="2000 epochs", train__log_every=1
    )[1:]
    ranks = start_ranks(arguments, EVERY_OTHER_STEP)
    wait_for_losses(folder, 3)
    ranks[1].send_signal(signal.SIGTERM)
    outputs = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [143, 143], outputs
    assert "stopped by signal 15 after saving" in outputs[0]
    assert len(losses(folder)) % 2 == 0
    assert (folder / "checkpoints/last").resolve().name == f"step-{len(losses(folder)):08d}"
