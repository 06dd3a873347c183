"""tools/compare.py reports planted faults of one framework, and points to the right file; without one it is silent.

A part of the faults, for time's sake; `python -m tests.mutants.run --compare` takes all.
"""

import importlib.util

import pytest

from tests.mutants import proofs
from tests.mutants.faults import FAULTS
from tests.mutants.jobs import RESULTS, Store

MIN_REPORTED, MIN_NAMED = 0.95, 0.8
QUICKEST = ("resnet50", "tsm")  # recipes: compiling a proof of the others takes twice as long

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in proofs.COMPARED), reason="compares all three frameworks"
    ),
]


def selected():
    """Return every third fault that shows without options; of the slow framework, one for each of two recipes."""
    faults = [fault for fault in FAULTS if fault.recipe and not fault.options]
    slow = {fault.recipe: fault for fault in faults if fault.framework == proofs.SLOW}
    return [fault for fault in faults if fault.framework != proofs.SLOW][::3] + [slow[recipe] for recipe in QUICKEST]


def test_faults_are_reported_with_their_file():
    faults, store = selected(), Store(RESULTS)
    assert len(faults) >= 20
    for _ in proofs.compare(faults, store):
        pass
    silent, unnamed, alarms = proofs.misses(faults, store.results)
    assert alarms == []
    assert len(silent) <= (1 - MIN_REPORTED) * len(faults), "\n".join(silent)
    assert len(silent) + len(unnamed) <= (1 - MIN_NAMED) * len(faults), "\n".join(silent + unnamed)
