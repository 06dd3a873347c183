"""PyTorch's settings of TF32 and 16-bit sums, which exist without a GPU too."""

import subprocess
import sys

import pytest
import torch

from tests.helpers.paths import ROOT
from zoo.trainer.plan import Arithmetic
from zoo.trainer.torch import start
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
