"""What an update in steady state asks of a card with 16 GB: recorded numbers, which a change of the trainer may change.

The recipes are those of the published reports, on random pixels and with the reports' batches.
"""

import json
import subprocess
from typing import Any, NamedTuple

import pytest

from tests.helpers.paths import ROOT
from zoo import program

pytestmark = pytest.mark.card

RESNET = "-c tests/gpu/recipes/resnet50.yaml"
TSM = "-c tests/gpu/recipes/tsm.yaml"
DEEPLAB = "-c tests/gpu/recipes/deeplabv3plus.yaml"
ARCFACE = "-c configs/reports/arcface_plsc_dlperf.yaml"
AMP = f"{RESNET} --amp -o train.batch=256"
DETERMINISTIC = "-o train.deterministic=true -o train.cudnn_benchmark=null"
SMALL = "-c resnet50_demo --amp -o data.name=synthetic -o data.kind=image -o data.num_classes=8 -o target=null"
UNUSED = {"waits": {}, "allocations": {}, "copies": {}, "graphs": {}, "collectives": {}, "overlap": 0}


class Update(NamedTuple):
    """Options of the recipe, and what is recorded: kernels, calls of cuDNN and cuBLAS, MiB at the peak, the rest."""

    words: str
    kernels: int
    calls: int
    peak_mib: int
    others: dict[str, Any]


def copies(number):
    return {"copies": {"device to device": number}}


def sends(mib, reduces, overlap, **others):
    """Return what DDP asks for. overlap: calls of the backward pass between the first collective and the last."""
    return {"collectives": {"AllReduce": [reduces, mib], **others}, "overlap": overlap}


UPDATES = {
    "resnet50-fp32": Update(RESNET, 174, 265, 10888, {}),
    "resnet50-amp": Update(AMP, 201, 267, 11242, {}),
    "tsm-fp32": Update(f"{TSM} -o train.precision=fp32", 338, 265, 13628, {}),
    "tsm-amp": Update(TSM, 366, 267, 7166, {}),
    "deeplabv3plus-fp32": Update(f"{DEEPLAB} -o train.precision=fp32 -o train.batch=2", 251, 355, 7360, copies(1)),
    "deeplabv3plus-amp": Update(DEEPLAB, 280, 355, 7945, copies(1)),
    "arcface-fp32": Update(ARCFACE, 265, 318, 9655, copies(2)),
    "arcface-amp": Update(f"{ARCFACE} --amp", 302, 321, 5481, copies(2)),
    "lars": Update(f"{AMP} -o optim.name=lars -o optim.lr=0.1", 272, 267, 11242, {}),
    "lamb": Update(f"{AMP} -o optim.name=lamb -o optim.lr=0.1", 337, 267, 11342, {}),
    "adamw": Update(f"{AMP} -o optim.name=adamw -o optim.lr=0.1", 213, 267, 11342, {}),
    "resnet50-bf16": Update(f"{RESNET} -o train.precision=bf16 -o train.batch=256", 562, 161, 11242, {}),
    "ema": Update(f"{AMP} -o train.ema=0.999", 318, 267, 11343, {}),
    "checkpointing": Update(f"{AMP} -o train.checkpoint_activations=true", 265, 371, 4704, {}),
    "resnet50-deterministic": Update(f"{AMP} {DETERMINISTIC}", 221, 267, 11241, {}),
    "tsm-deterministic": Update(f"{TSM} {DETERMINISTIC}", 366, 267, 7168, {}),
    "deeplabv3plus-deterministic": Update(f"{DEEPLAB} {DETERMINISTIC}", 760, 355, 8185, copies(13)),
    "arcface-deterministic": Update(f"{ARCFACE} --amp {DETERMINISTIC}", 340, 321, 5487, copies(2)),
    "resnet50-8": Update(f"{AMP} --ranks 8", 362, 267, 11340, sends(97.492, 5, 158)),
    "resnet50-32-fp16": Update(
        f"{AMP} --ranks 32 -o train.fp16_allreduce=true", 216, 267, 11356, {**sends(48.746, 5, 158), **copies(161)}
    ),
    "tsm-8": Update(f"{TSM} --ranks 8", 527, 267, 7257, sends(92.803, 4, 152)),
    "deeplabv3plus-8": Update(
        f"{DEEPLAB} -o train.sync_bn=true --ranks 8",
        1122,
        215,
        8113,
        {**sends(166.574, 77, 139, AllGather=[70, 0.292]), **copies(1)},
    ),
    "arcface-32": Update(
        f"{ARCFACE} --amp --ranks 32",
        532,
        321,
        5103,
        {**sends(174.31, 10, 184, AllGather=[2, 0.251]), **copies(2)},
    ),
    "compiled-8": Update(f"{SMALL} -o train.compile=true --ranks 8", 273, 62, 78, sends(2.682, 2, 35)),
    "graphs": Update(
        f"{SMALL} -o train.compile=reduce-overhead -o train.accumulate=2", 260, 0, 9, {"graphs": {"launched": 4}}
    ),
}


@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES)
def test_an_update_asks_for_what_is_recorded(card, update):
    expected = {**UNUSED, **update._asdict(), **update.others}
    del expected["words"], expected["others"]
    # With NCCL, whose stream frees later, it differs by 1.3 %, and by 3 MiB of 78 in one of four small updates.
    expected["peak_mib"] = pytest.approx(update.peak_mib, rel=0.02, abs=4)
    found = measure(card, update.words)
    assert found["inputs"].keys() == {"pinned to device"}
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("update", [*UPDATES.values()][:8], ids=[*UPDATES][:8])  # all models in fp32 and AMP
def test_the_estimate_of_memory_is_that_of_the_allocator(update):
    words = program.command("bench", "estimate", *update.words.split(), "--framework", "torch", "--json", "-")
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=400, check=True)
    sizes = {entry["name"]: entry["size"] for entry in json.loads(done.stdout)["memory"]}
    assert (sum(sizes.values()) - sizes["program"]) / 2**20 == pytest.approx(update.peak_mib, rel=0.05)


def test_expandable_segments_reserve_little_more_than_is_used(card):
    words = f"{TSM} -o train.precision=fp32"
    found = measure(card, words, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert found["reserved_mib"] < 1.02 * found["peak_mib"] and not found["allocations"]


def measure(card, words, **variables):
    printed = card("-m", "tests.card.update", *words.split(), "-o", "data.workers=0", **variables)
    return json.loads(printed.splitlines()[-1])
