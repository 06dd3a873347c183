"""Tiny runs of train.py: twelve updates, each of which is saved, and six evaluations.

One process trains ResNet with moving averages of its weights; of its images, one of training and one of validation are
unreadable. Two processes train ArcFace, whose class matrix is split over them.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.helpers.paths import ROOT
from tests.helpers.processes import MPIRUN, launcher
from zoo.data.demo import portraits, shapes

STEPS, EVAL_EVERY = 12, 2
NAMES = {"torch": "PyTorch", "paddle": "PaddlePaddle", "mindspore": "MindSpore"}
TIMEOUT = 300.0  # seconds that a start may take on a busy machine
COMMON = {
    "model.width": 8,
    "train.epochs": "",
    "train.steps": STEPS,
    "train.batch": 12,
    "train.eval_batch": 4,
    "train.log_every": 1,
    "train.save_every": "1 steps",
    "train.eval_every": f"{EVAL_EVERY} steps",
    "train.keep_checkpoints": 2,
    "train.ema": 0.5,
    "optim.warmup": "3 steps",
    "listeners": "[metrics_csv]",
}
IMAGES = {"data.size": 24, "data.train_images": 24, "data.val_images": 8, "data.max_bad": 0.1, "data.eval_bad": "wrong"}
FACES = {
    "model.embedding": 16,
    "data.size": 32,
    "data.identities": 7,
    "data.shots": 4,
    "data.val_identities": 4,
    "data.val_shots": 3,
    "data.val_pairs": 10,
    "task.scale": 8.0,
    "optim.lr": 0.001,
    "train.ema": "",
    "train.batch": 6,
}


class Setup(NamedTuple):
    """A kind of run: its framework and its number of processes."""

    framework: str
    size: int = 1

    @property
    def name(self) -> str:
        return f"{self.framework}-{self.size}"


def settings(setup: Setup) -> dict[str, object]:
    return {**COMMON, **(IMAGES if setup.size == 1 else FACES)}


def arguments(setup: Setup, kept: Path, **changes: object) -> list[str]:
    """Return the arguments of train.py, but for the run's folder.

    Args:
        setup: the kind of run.
        kept: folder of the data, as `make_data` leaves it.
        changes: further keys of the recipe, with __ in place of a dot.
    """
    recipe, root = ("resnet50", "shapes") if setup.size == 1 else ("arcface", "portraits")
    values = {**settings(setup), "data.root": kept / root, "data.workers": 0}
    values |= {key.replace("__", "."): value for key, value in changes.items()}
    overrides = [word for key, value in values.items() for word in ("-o", f"{key}={value}")]
    return ["-c", str(ROOT / f"configs/{recipe}_demo.yaml"), "--framework", setup.framework, *overrides]


def make_data(kept: Path) -> None:
    """Generate the images and faces in a folder, unless they are there."""
    if not (kept / "shapes").exists():
        draft = kept / "shapes.draft"
        shutil.rmtree(draft, ignore_errors=True)
        shapes.make(str(draft), IMAGES["data.train_images"], IMAGES["data.val_images"])
        for split in ("train", "val"):
            first = min(path for path in (draft / split).rglob("*") if path.is_file())
            first.write_bytes(first.read_bytes()[:200])
        draft.rename(kept / "shapes")
    if not (kept / "portraits").exists():
        sizes = {key[5:]: value for key, value in FACES.items() if key.startswith("data.")}
        portraits.make(portraits.Settings(root=str(kept / "portraits"), **sizes))


def command(setup: Setup, program: Sequence[str], logs: Path) -> list[str]:
    """Return the command that starts all processes of a run."""
    if setup.size == 1:
        return [sys.executable, *program]
    if MPIRUN is None:
        raise RuntimeError("mpirun is not installed")
    return [*launcher("mpirun", setup.size, logs), *program]


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    binaries = Path(sys.executable).parent
    path = f"{binaries}:{os.environ['PATH']}"
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PATH": path, "TERM": "dumb", **(more or {})}


def keep(folder: Path, number: int) -> None:
    """Keep the folder of a trial that did harm, beside the others."""
    kept = folder.parent / f"failed-{number}"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(folder, kept, symlinks=True)


class Reference(NamedTuple):
    """An undisturbed run.

    Attributes:
        folder: what it wrote.
        seconds: it took.
    """

    folder: Path
    seconds: float


def reference(setup: Setup, kept: Path) -> Reference:
    """Return the undisturbed run of a setup, which is made once and kept in a folder."""
    make_data(kept)
    folder = kept / f"undisturbed-{setup.name}"
    if not folder.exists():
        draft = folder.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        line = command(setup, [str(ROOT / "train.py"), *arguments(setup, kept), "--out", str(draft / "run")], kept)
        began = time.monotonic()
        done = subprocess.run(line, capture_output=True, text=True, env=environment(), cwd=ROOT, timeout=TIMEOUT)
        if done.returncode:
            raise RuntimeError(f"the undisturbed run failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        (draft / "seconds.json").write_text(json.dumps(time.monotonic() - began))
        draft.rename(folder)
    return Reference(folder / "run", json.loads((folder / "seconds.json").read_text()))
