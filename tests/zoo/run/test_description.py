"""Description of a run: the digest of its recipe, the state of its code, and what a run records of itself."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch

from tests.helpers import processes
from tests.helpers.training import command, events
from tests.helpers.training import run_here as run
from zoo.run import description
from zoo.run.recipe import resolve_recipe
from zoo.run.request import Options


def test_the_digest_depends_on_keys_and_values_alone_and_on_the_contents_of_weights():
    def digest(*changes, weights="initialized from seed 1"):
        return description.recipe_digest(resolve_recipe(Options("deeplabv3plus_cityscapes", changes)).resolved, weights)

    first = digest()
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert digest("seed=1") == first  # another origin of the same value
    assert digest("out=x", "device=cpu", "data.root=/b", "data.names=/b/names.txt", "weights_dir=/b") == first
    assert first not in (digest("seed=2"), digest("train.eval_every=100 steps"))
    here, there, other = (
        digest(f"weights={path}", weights=f"{path}, sha256 {sha256}")
        for path, sha256 in (("/home/a/w", "ab"), ("/home/b/w", "ab"), ("/home/a/w", "cd"))
    )
    assert here == there != other


def git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", "-C", folder, *identity, *words], capture_output=True, text=True, check=True).stdout


def make_checkout(folder):
    """Commit zoo/a.py and a document; return the state of the checkout."""
    git(folder, "init", "-q")
    (folder / "zoo").mkdir()
    for name, text in (("zoo/a.py", "1"), ("README.md", "1"), (".gitignore", "ignored.py")):
        (folder / name).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return {"commit": git(folder, "rev-parse", "HEAD").strip(), "dirty": False}


def test_the_state_of_a_checkout(tmp_path):
    clean = make_checkout(tmp_path)
    assert description.git_state(tmp_path) == clean
    (tmp_path / "zoo" / "a.py").write_text("2")
    assert description.git_state(tmp_path) == {**clean, "dirty": True}
    (tmp_path / "zoo" / "a.py").unlink()
    assert description.git_state(tmp_path) == {**clean, "dirty": True}
    (tmp_path / "zoo" / "a.py").write_text("1")
    others = ["runs/b.py", "b.yaml", "tests/b.py", "zoo/b.txt", "zoo/ignored.py", "README.md"]
    for path in others:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("2")
    assert description.git_state(tmp_path) == clean
    for path in ("zoo/data/new/b.py", "zoo/configs/ä b.yaml", b"zoo/\xff.py"):
        file = os.path.join(os.fsencode(tmp_path), os.fsencode(path))
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "w"):
            assert description.git_state(tmp_path) == {**clean, "dirty": True}, path
        os.remove(file)


def test_code_that_is_no_checkout(tmp_path, monkeypatch):
    assert description.git_state(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert description.git_state(tmp_path) is None  # no commit yet
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "a.py").write_text("1")
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-qm", "one")
    assert description.git_state(tmp_path / "site-packages") is None  # somebody else's checkout around it
    monkeypatch.setenv("PATH", "")  # git is not installed
    assert description.git_state(tmp_path) is None


def test_a_run_records_what_it_is_and_goes_on_to_record_what_changes(tmp_path):
    folder = str(tmp_path / "run")
    words = command(tmp_path / "clips", "--out", folder, "--max-steps", 2, data__threads=1)
    assert run(words).returncode == 0
    begin = next(event for event in events(folder) if event["event"] == "begin")
    expected = {
        "recipe": "tsm_demo",
        "model": "tsm",
        "task": "classify",
        "metric": "top1",
        "data": "motion",
        "protocol": "motion/2x1x1@16",
        "precision": "fp32",
        "loss_scale": None,
        "epochs": 6.0,
        "seed": 1,
        "target": 0.95,
        "eval_batch": 8,
        "eval_every": "1 epoch",
        "workers": 0,
        "threads": 1,
    }
    assert {key: begin[key] for key in expected} == expected
    assert begin["arch"].items() >= {"width": 8, "depth": 18, "num_classes": 8, "shift_place": "blockres"}.items()
    optimizer = {"name": "sgd", "momentum": 0.9, "lr": 0.02, "base_batch": 16, "peak_lr": 0.005, "schedule": "cosine"}
    assert begin["optimizer"].items() >= {**optimizer, "warmup": "4 epochs", "warmup_steps": 16}.items()
    assert begin["arithmetic"].items() >= {"torch.backends.cudnn.allow_tf32": False}.items()
    assert begin["command"] == sys.argv and re.match(r"2\.\d+", begin["framework_version"])
    (host,) = begin["hosts"]
    assert host["ranks"] == [0] and host["environment"]["OMP_NUM_THREADS"] == "1" and host["accelerators"] == []
    assert host["memory_bytes"] > 1 << 28 and host["cores"] >= 1 and host["libraries"]["cuda"] == torch.version.cuda

    trains = [event for event in events(folder) if event["event"] == "train"]
    for train, waits in zip(trains, (1, 1), strict=True):
        step_ms, data_wait_ms = train["step_ms"], train["data_wait_ms"]
        for times in (step_ms, data_wait_ms):
            assert 0 <= times["p50"] <= times["p90"] <= times["p99"] <= times["max"] <= times["sum"] + 1e-6
        assert step_ms["count"] == waits and step_ms["clock"] == "host"
        assert 0.3 < step_ms["sum"] / (1000 * 4 / train["samples_per_s"]) < 3
        assert 50 << 20 < train["host_memory_bytes"] < 1 << 36 and train["device_memory_bytes"] is None
        assert train["power"] is None or train["power"]["devices"] == 1
    assert trains[0]["step_ms"]["first"] == trains[0]["step_ms"]["p50"] and "first" not in trains[1]["step_ms"]

    again = [*words[:2], "--resume", folder]
    done = run([*again, "--max-steps", "3"])
    assert done.returncode == 0, done.stderr
    resumed = next(event for event in events(folder) if event["event"] == "resume")
    same = [
        "framework",
        "framework_version",
        "device",
        "compute",
        "level",
        "channels_last",
        "compile",
        "ranks",
        "batch",
    ]
    same += ["accumulate", "global_batch", "precision", "loss_scale", "optimizer", "eval_batch", "loader", "workers"]
    same += ["threads", "recipe_sha256", "git", "hosts", "arithmetic", "eval_precision"]
    assert {key: resumed[key] for key in same} == {key: begin[key] for key in same} and resumed["step"] == 2

    changes = {"optim.lr": 0.04, "train.batch": 2, "train.accumulate": 2, "train.eval_batch": 4, "data.threads": 2}
    options = [word for key, value in changes.items() for word in ("-o", f"{key}={value}")]
    done = run([*again, "--max-steps", "4", *options, "-o", "train.precision=fp64"])
    assert done.returncode == 0, done.stderr
    changed = [event for event in events(folder) if event["event"] == "resume"][1]
    assert {key for key in same if changed[key] != begin[key]} == {
        *("batch", "accumulate", "eval_batch", "threads", "optimizer", "precision", "compute", "recipe_sha256")
    }
    assert (changed["step"], changed["ranks"], changed["accumulate"], changed["batch"]) == (3, 1, 2, 2)
    assert (changed["precision"], changed["compute"], changed["eval_batch"], changed["threads"]) == (
        "fp64",
        "fp64",
        4,
        2,
    )
    assert changed["optimizer"] == {**begin["optimizer"], "lr": 0.04, "peak_lr": 0.01}
    assert sum(event["event"] == "begin" for event in events(folder)) == 1


def test_a_run_that_an_older_version_began_goes_on(tmp_path):
    """Its record has fewer fields, and its checksum covers no contents."""
    folder = str(tmp_path / "run")
    assert run(command(tmp_path / "clips", "--out", folder, "--max-steps", 2)).returncode == 0
    old = ["framework", "device", "compute", "level", "ranks", "accumulate", "batch", "global_batch", "steps", "lr"]
    old += ["plan", "weights", "loader", "checksum"]
    lines = events(folder)
    for event in lines:
        if event["event"] in ("load", "begin"):
            event["checksum"] = "0123456789abcdef0123456789abcdef"
        if event["event"] == "begin":
            for key in event.keys() - {"event", "time", *old}:
                del event[key]
        if event["event"] == "train":
            for key in ("step_ms", "data_wait_ms", "host_memory_bytes", "device_memory_bytes", "power"):
                del event[key]
    (tmp_path / "run" / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in lines))
    done = run(command(tmp_path / "clips", "--resume", folder, "--max-steps", 3))
    assert done.returncode == 0, done.stderr
    names = [event["event"] for event in events(folder)]
    assert names.count("begin") == names.count("resume") == 1 and names[-1] == "end"
    log = (tmp_path / "run" / "airank.log").read_text()
    assert "load_data, checksum:0123456789abcdef0123456789abcdef" in log and "avg_ips:" in log


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "paddle"])  # the facts of a host are gathered outside of them
def test_two_processes_record_one_host(tmp_path, framework):
    processes.require_framework(framework)
    alone, both = tmp_path / "alone", tmp_path / "both"
    sets = {"tsm": tmp_path / "clips"}
    for size, folder in ((1, alone), (2, both)):
        line = processes.train_arguments(sets, "tsm", folder, framework, "--max-steps", 3)
        processes.run("python" if size == 1 else processes.NATIVE[framework], size, tmp_path / "logs", line)
    (begin,) = [event for event in events(both) if event["event"] == "begin"]
    (host,) = begin["hosts"]
    assert host["ranks"] == [0, 1] and begin["ranks"] == 2 and begin["batch"] == 6 and begin["global_batch"] == 12
    last = {folder: [event for event in events(folder) if event["event"] == "train"][-1] for folder in (alone, both)}
    assert last[both]["host_memory_bytes"] > 1.4 * last[alone]["host_memory_bytes"]
    assert last[both]["step_ms"]["count"] == 1 and last[both]["device_memory_bytes"] is None
