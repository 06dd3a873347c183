"""Turns of speed runs: one computes while the others wait, in laps whose order is reversed every time."""

import threading
import time
from itertools import pairwise

import pytest

from zoo.bench.matrix.turns import TurnGiver
from zoo.data.errors import UserError
from zoo.run.speed import Turns


class OneRank:
    """A group of a single rank."""

    rank = 0

    def set_status(self, text):
        pass

    def all_gather(self, value):
        return [value]


def play(runs):
    """Let runs take turns; return who computed when, as (name, begin, end). runs: name -> number of turns."""
    intervals = []

    def compute(name, turns_at, count):
        turns = Turns(turns_at, OneRank())
        for _ in range(count):
            turns.wait()
            begin = time.monotonic()
            time.sleep(0.005)
            intervals.append((name, begin, time.monotonic()))
        turns.wait()

    with TurnGiver() as giver:
        threads = [threading.Thread(target=compute, args=(name, giver.path, n)) for name, n in runs.items()]
        for thread in threads:
            thread.start()
        giver.serve(lambda: sum(thread.is_alive() for thread in threads))
    return intervals


def test_nobody_computes_in_the_turn_of_another_and_laps_change_direction():
    intervals = play({"a": 6, "b": 6, "c": 6})
    ordered = sorted(intervals, key=lambda interval: interval[1])
    assert all(before[2] <= after[1] for before, after in pairwise(ordered))
    names = [name for name, _, _ in ordered]
    laps = [names[start : start + 3] for start in range(0, 18, 3)]
    assert all(sorted(lap) == ["a", "b", "c"] for lap in laps)
    assert laps[1] == laps[0][::-1] and laps[2] == laps[0] and laps[3] == laps[0][::-1]


def test_a_run_that_ends_early_leaves_the_turns_to_the_others():
    names = [name for name, _, _ in play({"short": 2, "long": 8})]
    assert names.count("short") == 2 and names.count("long") == 8


def test_a_run_without_anybody_who_gives_turns_says_so(tmp_path):
    with pytest.raises(UserError, match=r"--turns .*: nobody listens there"):
        Turns(str(tmp_path / "socket"), OneRank())


def test_a_run_whose_turns_have_ended_says_so():
    with TurnGiver() as giver:
        turns = Turns(giver.path, OneRank())
    with pytest.raises(UserError, match="has ended"):
        turns.wait()
