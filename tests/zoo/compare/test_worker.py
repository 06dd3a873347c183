"""Processes of a framework: ranks see who they are, and all of them end when one fails."""

import sys

import pytest

from zoo.compare import worker

SHOW = "import os; print(*(os.environ.get(name) for name in ('RANK', 'WORLD_SIZE', 'MASTER_ADDR')), flush=True)"
FAIL = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit('no memory'); time.sleep(600)"


def run(tmp_path, code, count):
    log = tmp_path / "torch.log"
    return worker.run_ranks([sys.executable, "-c", code], count, str(log)), log.read_text()


@pytest.mark.parametrize("count, lines", [(1, ["None None None"]), (3, [f"{rank} 3 127.0.0.1" for rank in range(3)])])
def test_ranks_know_their_numbers(tmp_path, monkeypatch, count, lines):
    monkeypatch.delenv("RANK", raising=False)
    result, text = run(tmp_path, SHOW, count)
    assert result == (0, "") and sorted(text.splitlines()) == lines


def test_a_rank_that_fails_ends_the_others(tmp_path, monkeypatch):
    """They get a moment to end by themselves; the failure is the one that is shown."""
    monkeypatch.setattr(worker, "GRACE", 0.1)
    assert run(tmp_path, FAIL, 2)[0] == (1, "no memory")


def test_the_end_of_the_output_is_returned(tmp_path):
    (code, end), text = run(tmp_path, "import sys; [print(i) for i in range(100)]; sys.exit(7)", 1)
    assert code == 7 and len(text.splitlines()) == 100
    assert end.splitlines() == [str(i) for i in range(100 - worker.MAX_LOG_LINES, 100)]
