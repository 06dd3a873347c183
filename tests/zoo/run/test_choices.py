"""Choices that a measurement settles."""

import pytest

from zoo.distributed.control_group import Group
from zoo.run import choice_cache, choices
from zoo.run.trial import Timing
from zoo.trainer.plan import Mode
from zoo.trainer.world import Launch

GROUP = Group(Launch(), {}, None)
LAST, FIRST = Mode("fp32", None, True), Mode("fp32", None, False)
PAIR = (LAST, FIRST)
FACTS = {"framework": "torch", "device": "cpu (2 threads)", "compute": "fp32", "level": None}
LONG = choices.Work(1000, 1e9)
BEGIN = {"event": "begin", **FACTS, "device": "cpu (8 threads)", "channels_last": False}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def never():
    raise AssertionError("nothing is measured")


def settle(candidates=PAIR, work=LONG, events=(), measure=never):
    return choices.settle(candidates, GROUP, work, FACTS, events, measure)


def test_nothing_is_open():
    choice = settle((Mode("fp32"),))
    assert choice == choices.Choice(Mode("fp32")) and choice.record is None


def test_the_fastest_mode_is_measured_once():
    choice = settle(measure=lambda: Timing([0.4, 0.3], False))
    assert choice.mode == FIRST and choice.record == {"origin": "measured", "seconds": {"true": 0.4, "false": 0.3}}
    assert choice.notes == ("train.channels_last: false, 0.75 of the time of true (measured; kept for later runs)",)
    again = settle()
    assert again == choice._replace(
        origin="cached",
        notes=("train.channels_last: false, 0.75 of the time of true (measured before on this machine)",),
    )


@pytest.mark.parametrize("seconds, expected", [([1.0, 0.98], LAST), ([1.0, 0.96], FIRST), ([1.0, 1.5], LAST)])
def test_a_hardly_faster_mode_is_not_taken(seconds, expected):
    assert settle(measure=lambda: Timing(seconds, False)).mode == expected


def test_a_disturbed_measurement_is_not_kept():
    choice = settle(measure=lambda: Timing([0.4, 0.3], True))
    assert choice.mode == FIRST and choice.notes[0].endswith("(measured while other programs kept the cores; not kept)")
    assert choice_cache.read(FACTS, 2) is None
    assert settle(measure=lambda: Timing([0.3, 0.4], False)).mode == LAST


@pytest.mark.parametrize("updates, flops", [(choices.MIN_UPDATES - 1, 1e15), (1000, choices.MIN_FLOPS / 1001)])
def test_a_short_run_is_not_measured(updates, flops):
    choice = settle(work=choices.Work(updates, flops))
    assert choice == choices.Choice(LAST, "default") and choice.record == {"origin": "default", "seconds": None}


@pytest.mark.parametrize("work", [LONG, choices.Work(1, 1.0)])
def test_a_resumed_run_keeps_its_mode(work):
    choice_cache.add(FACTS, [1.0, 2.0])  # since then, the other one has been faster
    choice = settle(work=work, events=[BEGIN, {"event": "train", "step": 1}])
    assert choice.mode == FIRST and choice.origin == "resumed"
    assert choice.notes == ("train.channels_last: false, as this run did before",)
    resume = {**BEGIN, "event": "resume", "channels_last": True, "step": 1}
    assert settle(work=work, events=[BEGIN, resume]).mode == LAST


@pytest.mark.parametrize("change", [{"framework": "paddle"}, {"compute": "bf16"}, {"device": "cuda:0 (NVIDIA H100)"}])
def test_a_run_that_goes_on_in_another_way_is_measured(change):
    assert settle(events=[{**BEGIN, **change}], measure=lambda: Timing([0.1, 0.4], False)).mode == LAST


def test_a_cache_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "vision-zoo").write_text("")
    choice = settle(measure=lambda: Timing([0.4, 0.3], False))
    assert choice.mode == FIRST and "the next run measures again" in choice.notes[1]
