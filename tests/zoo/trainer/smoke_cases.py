"""One short case for the fast tests of every framework (test_trainer.py)."""

import json
import os
import tempfile

from tests.zoo.trainer.trainer_setup import check_updates
from zoo.trainer.world import TRACE


def case_two_updates_follow_the_formulas(backend):
    check_updates(backend, backend.FP32_MODES[0], clip_norm=0.2, smoothing=0.1, dropout=True)


def case_a_profile_has_the_convolutions_of_an_update(backend):
    profiler = backend.WORLD.profiler()
    with tempfile.TemporaryDirectory() as folder:
        profiler.start(folder)
        check_updates(backend, backend.FP32_MODES[0], clip_norm=0.2, smoothing=0.1, dropout=True)
        operators = profiler.stop()
        with open(os.path.join(folder, TRACE), encoding="utf-8") as file:
            assert json.load(file)
    convolutions = [operator for operator in operators if "conv" in operator.name.lower()]
    assert convolutions and all(operator.ms > 0 and operator.calls >= 2 for operator in convolutions)
    assert len({operator.name for operator in operators}) > 5
