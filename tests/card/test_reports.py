"""The recipes of the published reports on a card with 16 GB, in each of their precisions: they run, or are refused."""

import pytest

from tests.helpers.paths import ROOT
from zoo.logs import journal

pytestmark = pytest.mark.card

PIXELS = {"tsm": "clip", "deeplabv3plus": "scene", "resnet50": "image", "arcface": "face"}
UPDATES = 3
OLDEST = 75  # of the capabilities that the build has kernels for
TSM, DEEPLAB = "tsm_torch_airank", "deeplabv3plus_mmseg_airank"
TSM_32 = f"{TSM} -o train.precision=fp32"
RESNET_16 = "resnet50_mindspore_dlperf -o train.precision=fp16 -o train.batch=256"
REFUSALS = {  # options, compute capability, message
    "level": (f"{RESNET_16} -o train.amp_level=O3", 90, "train.amp_level: PyTorch's autocast is O1, there is no O3"),
    "bf16": (f"{TSM} -o train.precision=bf16", OLDEST, "train.precision: .* has no bf16; use fp16"),
    "no kernels": (TSM, 70, "device: .* the compute capability 7.0; install one for CUDA 12.6"),
}


def words_of(words):
    """Return the options of a report's recipe, named by the first word, on random pixels and with its own batches."""
    recipe, *options = words.split()
    model = recipe.partition("_")[0]
    settings = {"data.name": "synthetic", "data.kind": PIXELS[model], "data.workers": 0, "data.val_samples": 32}
    if model in ("tsm", "deeplabv3plus"):
        settings["model.pretrained"] = "null"
    pairs = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    return ["-c", ROOT / f"configs/reports/{recipe}.yaml", *pairs, *options, "--framework", "torch", "--device", "cuda"]


@pytest.mark.parametrize(
    ("words", "times_kernels"),
    [
        (TSM, True),
        (TSM_32, True),
        ("tsm_paddle_airank", True),
        (DEEPLAB, True),
        (f"{DEEPLAB} -o train.precision=fp32 -o train.batch=2", True),
        ("resnet50_mindspore_dlperf", False),
        (RESNET_16, True),
        ("arcface_plsc_dlperf", False),
    ],
)
def test_a_report_runs_with_its_batch(card, words, times_kernels, tmp_path):
    """times_kernels: whether cuDNN times its kernels, as in all runs in 16 bits, and in AI-Rank's in fp32 too."""
    out = tmp_path / "run"
    card("train.py", *words_of(words), "--out", out, "--max-steps", UPDATES, CARD_CAPABILITY=OLDEST)
    events = {event["event"]: event for event in journal.history(str(out))}
    assert events["begin"]["arithmetic"]["torch.backends.cudnn.benchmark"] is times_kernels
    assert events["train"]["step"] == events["eval"]["step"] == UPDATES


@pytest.mark.parametrize(("words", "capability", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_impossible_is_refused_in_a_line(card, words, capability, message, tmp_path):
    words = [*words_of(words), "--out", tmp_path / "run", "--max-steps", UPDATES]
    with pytest.raises(AssertionError, match=rf"(?s)^code 2: (.*\n)?error: {message}[^\n]*\n$"):
        card("train.py", *words, CARD_CAPABILITY=capability)
    assert not (tmp_path / "run").exists()
