"""The variable that lets the MKL of Paddle's packages use AVX2."""

import pytest

from zoo.trainer import mkl

PROCESSOR = "processor\t: {}\nvendor_id\t: {}\nmodel name\t: a: b\npower management:\nflags\t\t: fpu {} sse2\n\n"
CASES = {
    ("AuthenticAMD", "avx avx2 fma"): "5",
    ("HygonGenuine", "fma avx2"): "5",
    ("AuthenticAMD", "avx"): None,  # older than Excavator: AVX2 would end the process
    ("AuthenticAMD", "avx2"): None,
    ("GenuineIntel", "avx avx2 fma"): None,
}


@pytest.mark.parametrize("case", CASES)
def test_the_variable_is_set_where_mkl_needs_it(case, tmp_path, monkeypatch):
    vendor, flags = case
    (tmp_path / "cpuinfo").write_text("".join(PROCESSOR.format(i, vendor, flags) for i in range(2)))
    monkeypatch.setattr(mkl, "CPU_INFO", tmp_path / "cpuinfo")
    environ = {}
    mkl.prepare(environ)
    assert environ.get("MKL_DEBUG_CPU_TYPE") == CASES[case]
    chosen = {"MKL_DEBUG_CPU_TYPE": "0"}
    mkl.prepare(chosen)
    assert chosen == {"MKL_DEBUG_CPU_TYPE": "0"}


@pytest.mark.parametrize("text", ["", "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n", None])
def test_other_processors_and_systems(text, tmp_path, monkeypatch):
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(mkl, "CPU_INFO", tmp_path / "cpuinfo")
    environ = {}
    mkl.prepare(environ)
    assert environ == {}
