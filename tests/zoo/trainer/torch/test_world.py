"""A process of PyTorch: its arithmetic and its end, and what counts in a profile."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from tests.helpers.paths import ROOT
from zoo.trainer.plan import Arithmetic
from zoo.trainer.torch import start
from zoo.trainer.torch.profiling import is_work
from zoo.trainer.world import Launch

WORLD = start(Launch(), "cpu")
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
MATMUL, CUDNN = "torch.backends.cuda.matmul", "torch.backends.cudnn"


@pytest.fixture(autouse=True)
def restored():
    before = WORLD.arithmetic()
    yield
    torch.use_deterministic_algorithms(False)
    for name, value in before.items():
        if not name.startswith("torch.backends"):
            continue
        owner, _, attribute = name.rpartition(".")
        setattr(torch.backends.cuda.matmul if owner == MATMUL else torch.backends.cudnn, attribute, value)


@pytest.mark.parametrize("tf32, benchmark, deterministic", [(False, True, False), (True, False, True)])
def test_settings_in_force_are_those_of_the_run(monkeypatch, tf32, benchmark, deterministic):
    monkeypatch.setenv(WORKSPACE, ":16:8")  # the user's choice stays
    if deterministic:
        monkeypatch.delenv(WORKSPACE)
    WORLD.set_arithmetic(Arithmetic(tf32, benchmark, deterministic))
    assert WORLD.arithmetic() == {
        f"{MATMUL}.allow_tf32": tf32,
        f"{MATMUL}.allow_fp16_reduced_precision_reduction": False,
        f"{MATMUL}.allow_bf16_reduced_precision_reduction": False,
        f"{CUDNN}.allow_tf32": tf32,
        f"{CUDNN}.benchmark": benchmark,
        f"{CUDNN}.deterministic": deterministic,
        "torch.are_deterministic_algorithms_enabled": deterministic,
        WORKSPACE: ":4096:8" if deterministic else ":16:8",
    }
    monkeypatch.setenv(WORKSPACE, ":16:8")
    WORLD.set_arithmetic(Arithmetic(deterministic=True))
    assert WORLD.arithmetic()[WORKSPACE] == ":16:8" and not torch.is_deterministic_algorithms_warn_only_enabled()


@pytest.mark.parametrize("tf32", [False, True])
def test_older_and_newer_settings_of_tf32_agree(tf32):
    """torch.compile reads both."""
    WORLD.set_arithmetic(Arithmetic(tf32))
    assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
    for newer in (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn):
        assert (newer.fp32_precision == "tf32") == tf32


def test_a_deterministic_process_becomes_one_that_is_not():
    for deterministic in (True, False):
        WORLD.set_arithmetic(Arithmetic(deterministic=deterministic))
        assert torch.are_deterministic_algorithms_enabled() is deterministic


def test_the_compiler_is_not_imported_where_nothing_needs_it():
    """It would take a third of the start of a run."""
    code = (
        "import sys\nfrom zoo.trainer.plan import Arithmetic\nfrom zoo.trainer.torch import start\n"
        "from zoo.trainer.world import Launch\nstart(Launch(), 'cpu').set_arithmetic(Arithmetic())\n"
        "print([name for name in sys.modules if name.startswith('torch._inductor')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize(
    "on_device, kind, is_annotation, counts",
    [
        (False, "CPU", False, True),
        (True, "CPU", False, False),  # the operator that launched a kernel
        (True, "CUDA", False, True),
        (True, "CUDA", True, False),  # Optimizer.step, which spans kernels
    ],
)
def test_what_counts_as_work(on_device, kind, is_annotation, counts):
    event = SimpleNamespace(device_type=SimpleNamespace(name=kind), is_user_annotation=is_annotation)
    assert is_work(event, on_device) == counts


END = """
import atexit, torch
from zoo.trainer.torch.world import World
atexit.register(print, "torn down")
print("written")  # to a pipe, so it is buffered
World(0, {size}, torch.device("cpu")).exit_process(3)
print("returned")
"""


@pytest.mark.parametrize("size, code, output", [(1, 0, "written\nreturned\ntorn down\n"), (2, 3, "written\n")])
def test_one_of_several_processes_ends_without_teardown(size, code, output):
    """PyTorch's process group on a CPU may abort in it."""
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", END.format(size=size)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, output, "")
