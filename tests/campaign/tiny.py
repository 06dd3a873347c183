"""Tiny runs of train.py, twelve updates and six evaluations, and their comparison with undisturbed ones.

One process trains ResNet with moving averages of its weights; of its images, one of training and one of validation are
unreadable. Two processes train ArcFace, whose class matrix is split over them.
"""

import contextlib
import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.helpers.paths import ROOT
from tests.helpers.processes import MPIRUN, SETTINGS, environment, launcher
from zoo.data.demo import portraits, shapes
from zoo.logs.airank import TAG
from zoo.logs.journal import history

STEPS, EVAL_EVERY = 12, 2
NAMES = {"torch": "PyTorch", "paddle": "PaddlePaddle", "mindspore": "MindSpore", "jax": "JAX"}
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
IMAGES = {**SETTINGS["resnet50"], **COMMON, "data.max_bad": 0.1, "data.eval_bad": "wrong"}
FACES = {**SETTINGS["arcface"], **COMMON, "train.ema": "", "train.batch": 6}
LEFT_OUT = ("resume", "data_wait")  # events of the disturbance, and those that depend on time
FIELDS = {  # of events, those that time and place do not change
    "load": ("checksum", "train_samples"),
    "begin": ("steps", "parameters"),
    "train": ("step", "epoch", "lr", "loss", "grad_norm", "scale", "skipped", "consecutive_skips"),
    "bad": ("step", "epoch", "name", "reason", "replaced_by"),
    "save": ("step",),
    "best": ("step",),
    "end": ("step", "epoch", "reason"),
}
TIMED = ("time", "seconds")
TENSORS = ("model.safetensors", "ema.safetensors", "update.safetensors", "data_record.safetensors")


class Setup(NamedTuple):
    """A kind of run: its framework and its number of processes."""

    framework: str
    size: int = 1

    @property
    def name(self) -> str:
        return f"{self.framework}-{self.size}"


def arguments(setup: Setup, kept: Path, **changes: object) -> list[str]:
    """Return the arguments of train.py, but for the run's folder.

    Args:
        setup: the kind of run.
        kept: folder of the data, as `make_data` leaves it.
        changes: further keys of the recipe, with __ in place of a dot.
    """
    recipe, root = ("resnet50", "shapes") if setup.size == 1 else ("arcface", "portraits")
    values = {**(IMAGES if setup.size == 1 else FACES), "data.root": kept / root, "data.workers": 0}
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


def start(setup: Setup, program: Sequence[str], logs: Path) -> subprocess.Popen[str]:
    """Start all processes of a run. program: what follows the name of Python; logs: folder for the launcher."""
    line = [sys.executable, *program]
    if setup.size > 1:
        if MPIRUN is None:
            raise RuntimeError("mpirun is not installed")
        line = [*launcher("mpirun", setup.size, logs), *program]
    return subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",  # frameworks print what strangers send
        cwd=ROOT,
        env={**environment(), "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int | None, str]:
    """Wait for a run; return its exit code and the end of its output. Who stays behind holds the output open.

    The code is None if it did not end within TIMEOUT.
    """
    code = None
    try:
        text, _ = process.communicate(timeout=TIMEOUT)
        code = process.returncode
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
    return code, text[-4000:]


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
        program = [str(ROOT / "train.py"), *arguments(setup, kept), "--out", str(draft / "run")]
        began = time.monotonic()
        code, text = finish(start(setup, program, kept))
        if code != 0:
            raise RuntimeError(f"the undisturbed run failed:\n{text}")
        (draft / "seconds.json").write_text(json.dumps(time.monotonic() - began))
        draft.rename(folder)
    return Reference(folder / "run", json.loads((folder / "seconds.json").read_text()))


def differences(run: Path, undisturbed: Path) -> list[str]:
    """Return a line for everything in which a run differs from an undisturbed one of the same recipe."""
    found = [*_events(run, undisturbed), *_checkpoints(run, undisturbed)]
    ours, theirs = (
        {path.relative_to(folder).as_posix() for path in folder.rglob("*") if "tfevents" not in path.name}
        for folder in (run, undisturbed)
    )  # TensorBoard begins a new file at each start
    found += [f"left over: {name}" for name in sorted(ours - theirs)]
    found += [f"missing: {name}" for name in sorted(theirs - ours)]
    if _without_times(run / "airank.log") != _without_times(undisturbed / "airank.log"):
        found.append("airank.log: other lines")
    return found


def _events(run: Path, undisturbed: Path) -> list[str]:
    ours, theirs = (
        [_fixed(event) for event in history(str(folder)) if event["event"] not in LEFT_OUT]
        for folder in (run, undisturbed)
    )
    if ours == theirs:
        return []
    lost, added = Counter(theirs) - Counter(ours), Counter(ours) - Counter(theirs)
    found = [f"lost: {event}" for event in lost] + [f"added: {event}" for event in added]
    return found or [f"events in another order: {ours}"]


def _fixed(event: dict[str, Any]) -> str:
    """Return what of an event time and place do not change, as JSON."""
    names = FIELDS.get(event["event"], tuple(name for name in event if name not in ("event", *TIMED)))
    return json.dumps({name: event[name] for name in ("event", *names) if name in event})


def _checkpoints(run: Path, undisturbed: Path) -> list[str]:
    found = []
    for name in ("last", "best"):
        ours, theirs = (os.path.realpath(folder / "checkpoints" / name) for folder in (run, undisturbed))
        if os.path.basename(ours) != os.path.basename(theirs):
            found.append(f"{name} is {os.path.basename(ours)} instead of {os.path.basename(theirs)}")
    for theirs in sorted((undisturbed / "checkpoints").glob("step-*/*")):
        ours = run / theirs.relative_to(undisturbed)
        same = True
        if ours.exists() and theirs.name in TENSORS:
            same = filecmp.cmp(ours, theirs, shallow=False)
        elif ours.exists() and theirs.name == "evaluation.json":
            same = _metrics(ours) == _metrics(theirs)
        if not same:
            found.append(f"{ours.relative_to(run)} differs")
    return found


def _metrics(path: Path) -> dict[str, Any]:
    return {name: value for name, value in json.loads(path.read_text()).items() if name not in TIMED}


def _without_times(path: Path) -> list[str]:
    """Return the lines of an AI-Rank log but for their times and durations."""
    lines = path.read_text().splitlines() if path.exists() else []
    texts = [line.removeprefix(TAG).split(maxsplit=1)[1] for line in lines]
    return [text if text.startswith("eval_accuracy") else text.split(":")[0] for text in texts]
