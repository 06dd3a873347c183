"""MindSpore's GPU back end on the card: the device, and the memory of a reported run."""

import pytest

pytestmark = pytest.mark.card

RESNET = "train.py -c configs/reports/resnet50_mindspore_dlperf.yaml -o data.name=synthetic -o data.kind=image"
REPORT = [*RESNET.split(), "-o", "train.precision=fp16", "-o", "train.batch=256", "-o", "data.workers=0"]


def test_the_doctor_finds_the_device(mindspore_card):
    printed = mindspore_card("-m", "zoo", "doctor", "--framework", "mindspore", "--quick")
    assert "cuda:0            ok   GPU: fp32, fp16; no fp64, bf16; --amp is fp16" in printed


def test_a_batch_of_256_fits_in_16_gb_with_normalizations_in_16_bits(mindspore_card, tmp_path):
    mindspore_card(*REPORT, "--max-steps", 1, "--device", "cuda", "--out", tmp_path / "run")


def test_memory_that_does_not_suffice_is_an_error_with_a_remedy(mindspore_card, tmp_path):
    with pytest.raises(AssertionError, match="error: the device has too little memory.* a smaller train.batch"):
        mindspore_card(*REPORT, "-o", "train.amp_level=O2", "--device", "cuda", "--out", tmp_path / "run")
