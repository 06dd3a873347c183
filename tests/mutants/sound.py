"""Run `zoo compare` on small recipes without a fault, each of which must agree.

Fewer instructions, as other processors have: ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2
XLA_FLAGS=--xla_cpu_max_isa=AVX2, or AVX512_CORE, avx512 and AVX512.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.comparison import Setting, make_sets, overrides

ADAMW = ("optim.name=adamw", "optim.lr=0.001")
OPTIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "tsm": (
        (),
        (*ADAMW, "train.ema=0.9"),
        ("model.shift_direction=causal",),
        ("model.partial_bn=true", "optim.name=lars", "optim.lr=0.02"),
        ("model.temporal_pool=true", "data.mixup=0.2"),
        ("model.depth=50", "model.non_local=true", "data.size=32"),
    ),
    "resnet50": (
        (),
        (*ADAMW, "train.ema=0.9", "data.mixup=0.2", "data.cutmix=1.0"),
        ("optim.name=lamb", "optim.lr=0.01", "train.accumulate=2"),
        ("optim.name=lars", "optim.lr=0.3", "model.decay=all_but_bn", "optim.clip_norm=1"),
        ("task.loss=binary_cross_entropy", "optim.name=sgd_nesterov"),
        ("model.depth=50", "model.zero_gamma=true"),
        ("optim.name=muon", "optim.lr=0.01"),
        ("train.checkpoint_activations=true", "data.size=64"),
    ),
    "deeplabv3plus": (
        (),
        ("model.variant=paddleseg", *ADAMW),
        ("model.align_corners=true", "data.crop=[33, 49]"),
        ("task.loss=focal", "task.alpha=0.25"),
        ("task.loss=lovasz",),
        ("task.ohem_kept=500", "task.label_smoothing=0.1"),
    ),
    "arcface": (
        (),
        ("task.loss=adaface", "optim.clip_norm=1"),
        ("task.loss=cosface", *ADAMW),
        ("task.sample_rate=0.5",),
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Print a line for each recipe; return 0 if all agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frameworks", default="torch,paddle", help="default torch,paddle")
    parser.add_argument("--precision", default="fp32", help="train.precision; default fp32")
    parser.add_argument("--only", default="", metavar="TEXT", help="recipes and options that contain TEXT")
    arguments = parser.parse_args(argv)
    settings = [Setting(f"{name}", options) for name, each in OPTIONS.items() for options in each]
    settings = [each for each in settings if arguments.only in each.key]
    with tempfile.TemporaryDirectory(prefix="sound") as folder:
        make_sets(Path(folder))
        codes = [compare(each, arguments.frameworks, arguments.precision, Path(folder)) for each in settings]
    print(f"{codes.count(0)} of {len(codes)} agree")
    return int(any(codes))


def compare(setting: Setting, frameworks: str, precision: str, folder: Path) -> int:
    """Print what `zoo compare` says of a recipe; return its exit code."""
    out = tempfile.mkdtemp(dir=folder)
    options = [*overrides(setting, folder), f"train.precision={precision}"]
    command = [sys.executable, "-m", "zoo", "compare", "-c", f"configs/{setting.recipe}_demo.yaml"]
    command += ["--frameworks", frameworks, "--steps", "5", "--within", "5", "--device", "cpu"]
    command += ["--out", f"{out}/comparison", *(word for option in options for word in ("-o", option))]
    start = time.perf_counter()
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    name = " ".join([setting.recipe, *setting.options])
    print(f"{result.returncode}  {time.perf_counter() - start:4.0f} s  {name}", flush=True)
    if result.returncode:
        print(result.stdout + result.stderr, flush=True)
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
