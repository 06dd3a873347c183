"""The unit tests notice every planted fault."""

import importlib.util

import pytest

from tests.mutants.fault import SHARED
from tests.mutants.faults import FAULTS
from tests.mutants.jobs import FRAMEWORKS, RESULTS, Store
from tests.mutants.run import problems, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_fault_is_noticed(framework):
    if importlib.util.find_spec("torch" if framework == SHARED else framework) is None:
        pytest.skip(f"{framework} is not installed")
    faults, store = [fault for fault in FAULTS if fault.framework == framework], Store(RESULTS)
    run(faults, store)
    assert problems(faults, store.results) == []
