"""Runs of train.py on tiny clips: the command, what a run wrote."""

import contextlib
import io
import json
import os
import subprocess
import sys

import numpy as np
from safetensors.numpy import load_file

from tests.helpers.paths import ROOT
from zoo import cli

TRAIN, DEMO, K400 = (
    os.path.join(ROOT, name) for name in ("train.py", "configs/tsm_demo.yaml", "configs/tsm_k400.yaml")
)
SMALL = ["-o", "data.train_clips=16", "-o", "data.val_clips=8"]
TINY = {
    "model.width": 8,
    "data.size": 16,
    "data.segments": 2,
    "data.workers": 0,
    "data.train_clips": 16,
    "data.val_clips": 8,
    "train.epochs": 6,
    "train.batch": 4,
    "train.eval_batch": 8,
    "train.log_every": 1,
    "train.save_every": "1 steps",
    "model.dropout": 0.5,
}


def command(clips, *words, **changes):
    settings = {**TINY, "data.root": clips, **{key.replace("__", "."): value for key, value in changes.items()}}
    pairs = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    return [sys.executable, TRAIN, "-c", DEMO, *pairs, *map(str, words)]


def run(words, cwd=None):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=cwd or ROOT, env=environment)


def run_here(words, cwd=None):
    """As `run`, in this process: seconds less for each run, and the same result."""
    before, out, err = os.getcwd(), io.StringIO(), io.StringIO()
    os.chdir(cwd or ROOT)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(["train", *map(str, words[2:])])
    finally:
        os.chdir(before)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def weights(folder, step):
    path = os.path.join(folder, "checkpoints", f"step-{step:08d}")
    return {**load_file(os.path.join(path, "model.safetensors")), **load_file(os.path.join(path, "update.safetensors"))}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def events(folder):
    with open(os.path.join(folder, "events.jsonl")) as file:
        return [json.loads(line) for line in file]


def lines(folder):
    try:
        with open(os.path.join(folder, "events.jsonl")) as file:
            return file.readlines()
    except FileNotFoundError:
        return []
