"""One short case for the fast tests of every framework (test_smoke.py)."""

from tests.zoo.trainer.trainer_setup import check_updates


def case_two_updates_follow_the_formulas(backend):
    check_updates(backend, backend.FP32_MODES[0], clip_norm=0.2, smoothing=0.1, dropout=True)
