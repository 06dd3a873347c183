"""Freed memory that stays with the process: pages that the kernel has to give again."""

import subprocess
import sys

import pytest

from tests.helpers.processes import ROOT
from zoo.trainer import malloc

PAGES = """
import resource, sys
from zoo.trainer import malloc

BYTES = 40 << 20  # more than glibc ever keeps
if sys.argv[1] == "keep":
    assert malloc.keep_freed_memory({})

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b"x" * BYTES
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


def pages(word):
    command = [sys.executable, "-c", PAGES, word]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_a_block_that_was_freed_needs_no_new_pages():
    assert pages("keep") < 10 <= pages("default")


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"])
def test_variables_of_glibc_count_instead(name):
    assert not malloc.keep_freed_memory({name: "1"})


def test_another_c_library(monkeypatch):
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda name: object())
    assert not malloc.keep_freed_memory({})
