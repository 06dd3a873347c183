"""Freed memory that stays with the process, and the instructions of the processor: bf16, and AVX2 in MKL."""

import subprocess
import sys

import pytest

from tests.helpers.processes import ROOT
from zoo.trainer import device

PROCESSOR = "processor\t: {}\nvendor_id\t: {}\nmodel name\t: a: b\npower management:\nflags\t\t: fpu {} sse2\n\n"
CASES = {
    ("AuthenticAMD", "avx avx2 fma"): "5",
    ("HygonGenuine", "fma avx2"): "5",
    ("AuthenticAMD", "avx"): None,  # older than Excavator: AVX2 would end the process
    ("AuthenticAMD", "avx2"): None,
    ("GenuineIntel", "avx avx2 fma"): None,
}
PAGES = """
import resource, sys
from zoo.trainer import device

BYTES = 40 << 20  # more than glibc ever keeps
if sys.argv[1] == "keep":
    assert device.keep_freed_memory({})

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
    assert not device.keep_freed_memory({name: "1"})


def test_another_c_library(monkeypatch):
    monkeypatch.setattr(device.ctypes, "CDLL", lambda name: object())
    assert not device.keep_freed_memory({})


@pytest.mark.parametrize("case", CASES)
def test_the_variable_is_set_where_mkl_needs_it(case, tmp_path, monkeypatch):
    vendor, flags = case
    (tmp_path / "cpuinfo").write_text("".join(PROCESSOR.format(i, vendor, flags) for i in range(2)))
    monkeypatch.setattr(device, "CPU_INFO", tmp_path / "cpuinfo")
    environ = {}
    device.prepare_mkl(environ)
    assert environ.get("MKL_DEBUG_CPU_TYPE") == CASES[case]
    chosen = {"MKL_DEBUG_CPU_TYPE": "0"}
    device.prepare_mkl(chosen)
    assert chosen == {"MKL_DEBUG_CPU_TYPE": "0"}


@pytest.mark.parametrize("text", ["", "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n", None])
def test_other_processors_and_systems(text, tmp_path, monkeypatch):
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(device, "CPU_INFO", tmp_path / "cpuinfo")
    environ = {}
    device.prepare_mkl(environ)
    assert environ == {}


ARM = "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd {}\nCPU implementer\t: 0x41\n\n"
AVX512 = "avx2 avx512f avx512bw avx512vl avx512dq avx512_vnni"
BF16 = {  # /proc/cpuinfo, variables: whether bf16 has instructions
    (PROCESSOR.format(0, "GenuineIntel", "avx2"), ""): False,
    (PROCESSOR.format(0, "GenuineIntel", AVX512), ""): False,
    (PROCESSOR.format(0, "AuthenticAMD", f"{AVX512} avx512_bf16"), ""): True,
    (PROCESSOR.format(0, "GenuineIntel", f"{AVX512} amx_bf16 amx_tile"), ""): True,
    (PROCESSOR.format(0, "GenuineIntel", "avx2 avx_vnni avx_ne_convert"), ""): True,
    (ARM.format("bf16"), ""): True,
    (ARM.format("sve"), ""): False,
    (None, ""): False,
    ("", ""): False,
    (PROCESSOR.format(0, "AuthenticAMD", "avx512_bf16"), "ONEDNN_MAX_CPU_ISA=AVX512_CORE"): False,
    (PROCESSOR.format(0, "AuthenticAMD", "avx512_bf16"), "ONEDNN_MAX_CPU_ISA=avx2"): False,
    (PROCESSOR.format(0, "AuthenticAMD", "avx512_bf16"), "DNNL_MAX_CPU_ISA=AVX512_CORE_VNNI"): False,
    (PROCESSOR.format(0, "AuthenticAMD", "avx512_bf16"), "ONEDNN_MAX_CPU_ISA=DEFAULT DNNL_MAX_CPU_ISA=AVX2"): True,
    (PROCESSOR.format(0, "AuthenticAMD", "avx512_bf16"), "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"): True,
    (PROCESSOR.format(0, "AuthenticAMD", "avx512_bf16"), "ONEDNN_MAX_CPU_ISA= DNNL_MAX_CPU_ISA=AVX2"): False,
}


@pytest.mark.parametrize("text, variables", BF16)
def test_instructions_of_bf16(text, variables, tmp_path, monkeypatch):
    """Those that the processor has and oneDNN may use."""
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(device, "CPU_INFO", tmp_path / "cpuinfo")
    for name in device.ISA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in (each.split("=") for each in variables.split()):
        monkeypatch.setenv(name, value)
    has_bf16 = BF16[text, variables]
    assert device.has_bf16_instructions() == has_bf16
    slower = {"fp32": False, "fp64": False, "fp16": True, "bf16": not has_bf16}
    assert {compute: device.is_slower_than_fp32(compute) for compute in slower} == slower
