"""Peaks and memory of accelerators, by the names that drivers tell."""

import pytest

from zoo.bench.report.accelerators import memory, peak


@pytest.mark.parametrize(
    "name, compute, tflops, source",
    [
        ("Tesla V100-SXM2-16GB", "fp32", 15.7, "fp32"),
        ("Tesla V100-SXM2-16GB", "fp16", 125, "fp16"),
        ("Tesla V100-PCIE-16GB", "fp16", 112, "fp16"),
        ("NVIDIA A100-SXM4-80GB", "fp32", 156, "tf32"),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4, "bf16"),
        ("NVIDIA H100 PCIe", "bf16", 756, "bf16"),
        ("NVIDIA H200", "fp64", 67, "fp64"),
        ("Ascend910A", "fp16", 256, "fp16"),
    ],
)
def test_peaks_of_data_sheets(name, compute, tflops, source):
    assert peak(name, compute) == (tflops * 1e12, source)


def test_without_tf32_the_peak_is_that_of_fp32_and_a_given_one_counts():
    assert peak("NVIDIA A100-SXM4-80GB", "fp32", tf32=False) == (19.5e12, "fp32")
    assert peak(None, "fp32", override_tflops=0.5) == (0.5e12, "--peak-tflops")


@pytest.mark.parametrize(
    "name, compute",
    [
        (None, "fp32"),
        ("AMD EPYC 7763", "fp32"),
        ("NVIDIA H200", None),
        ("Tesla V100-SXM2-16GB", "bf16"),
        ("NVIDIA RTX 3090 Ti", "fp16"),
        ("Ascend910B3", "fp16"),
    ],
)
def test_no_peak_is_guessed(name, compute):
    assert peak(name, compute) is None


@pytest.mark.parametrize(
    "name, size",
    [
        ("A100", 40),
        ("A100 80 GB", 80),
        ("V100", 16),
        ("NVIDIA H100 80GB HBM3", 80),
        ("H200", 141),
        ("V100 24GB", None),  # none is sold with it
        ("AMD EPYC 7763", None),
    ],
)
def test_memory_of_data_sheets(name, size):
    assert memory(name) == size
