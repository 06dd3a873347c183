"""What a GPU must show: pytest -m gpu; pytest tests/gpu --device cpu tries the tests themselves.

Every run is a process of its own, on random pixels, so nothing but a framework is needed.
"""

import importlib.util
import math
import re
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.gpu.day import DEMOS, STEPS, settings
from tests.helpers.paths import ROOT
from zoo import program
from zoo.bench.report import runs
from zoo.compare import worker
from zoo.doctor import child
from zoo.frameworks import FRAMEWORKS
from zoo.logs import journal

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
SAVED = 4  # updates after which a run is saved
WEIGHTS = "checkpoints/last/model.safetensors"
LIMIT = 1e-3  # of a loss, relative: a GPU adds in an order of its own, and rounding grows from update to update
LIMIT_16 = 2e-2  # the same in 16 bits, where a compiler fuses operations that round one by one otherwise


@cache
def problem(framework, device):
    """Return why a framework cannot use a device; None if it can."""
    if importlib.util.find_spec(framework) is None:
        return f"{framework} is not installed"
    return child.ask(300, "device", framework, device).failure


@pytest.fixture(params=FRAMEWORKS)
def framework(request, device):
    """A framework that can use the device."""
    reason = problem(request.param, device)
    if reason:
        pytest.skip(reason)
    return request.param


@pytest.fixture
def torch(device):
    if reason := problem("torch", device):
        pytest.skip(reason)
    return "torch"


def call(words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, cwd=ROOT, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def train(folder, framework, device, recipe, *words, **changes):
    """Run train.py; return its losses by update."""
    options = [*settings(recipe, **changes), "--framework", framework, "--device", device, "--max-steps", str(STEPS)]
    call([sys.executable, str(ROOT / "train.py"), *options, "--out", str(folder), *words])
    return {event["step"]: event["loss"] for event in events(folder) if event["event"] == "train"}


def events(folder):
    return journal.history(str(folder))


def same_weights(one, other):
    a, b = load_file(one / WEIGHTS), load_file(other / WEIGHTS)
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("words", [(), ("--amp",)], ids=["fp32", "amp"])
@pytest.mark.parametrize("recipe", DEMOS)
def test_every_model_trains_and_is_evaluated_as_it_was_saved(recipe, words, framework, device, tmp_path):
    if words and (framework, device) == ("paddle", "cpu"):
        pytest.skip("Paddle has no 16 bits on a CPU")
    out = tmp_path / "run"
    losses = train(out, framework, device, recipe, *words, **{"train.eval_every": f"{STEPS} steps"})
    assert list(losses) == list(range(1, STEPS + 1)) and all(map(math.isfinite, losses.values()))
    run = runs.read(str(out))
    assert run.values.evaluations == 1 and run.case.framework == framework
    if device != "cpu":
        assert run.facts["accelerators"] == 1 and run.values.device_memory > 2**20
    words = ["--weights", str(out / WEIGHTS), "--framework", framework, "--device", device]
    printed = call(program.command("evaluate", *words))
    again = float(re.search(r"evaluation: \S+ ([0-9.]+)", printed)[1])
    before = next(event["accuracy"] for event in events(out) if event["event"] == "eval")
    assert again == pytest.approx(before, abs=1e-3)


@pytest.mark.parametrize("recipe", DEMOS)
def test_updates_agree_with_the_cpu(recipe, framework, device, tmp_path):
    """By the proof of zoo compare, in fp64 where the framework has it, and by the losses of the first updates."""
    options = [*settings(recipe), "--frameworks", framework, "--steps", str(STEPS), "--within", str(STEPS)]
    call(program.command("compare", *options, "--device", "cpu", "--out", str(tmp_path / "cpu")))
    against = ["--out", str(tmp_path / "gpu"), "--against", str(tmp_path / "cpu")]
    call(program.command("compare", *options, "--device", device, *against))


def test_a_run_goes_on_where_it_was_saved(framework, device, tmp_path):
    saving = {"train.save_every": f"{SAVED} steps"}
    whole = train(tmp_path / "whole", framework, device, "resnet50_demo", **saving)
    first = train(tmp_path / "run", framework, device, "resnet50_demo", "--max-steps", str(SAVED), **saving)
    assert max(first) == SAVED
    options = ["--resume", str(tmp_path / "run"), "--device", device, "--max-steps", str(STEPS)]
    call([sys.executable, str(ROOT / "train.py"), *options])
    found = {event["step"]: event["loss"] for event in events(tmp_path / "run") if event["event"] == "train"}
    assert found == pytest.approx(whole, rel=LIMIT)


@pytest.mark.parametrize("recipe", DEMOS)
def test_deterministic_runs_are_equal_to_the_last_bit(recipe, framework, device, tmp_path):
    """In 16 bits, whose kernels are usually chosen by their time."""
    precision = "fp32" if device == "cpu" else "amp"
    one, other = (
        train(tmp_path / name, framework, device, recipe, "--deterministic", **{"train.precision": precision})
        for name in ("one", "other")
    )
    assert one == other and same_weights(tmp_path / "one", tmp_path / "other")


@pytest.mark.parametrize("recipe", DEMOS)
def test_two_processes_compute_what_one_does(recipe, torch, device, tmp_path):
    one = train(tmp_path / "one", torch, device, recipe, **{"train.sync_bn": "true"})
    changes = {"train.batch": 2, "train.global_batch": 4, "train.sync_bn": "true"}
    options = [*settings(recipe, **changes), "--framework", torch, "--device", device, "--max-steps", str(STEPS)]
    words = [sys.executable, str(ROOT / "tests/gpu/gloo.py"), *options, "--out", str(tmp_path / "two")]
    code, end = worker.run_ranks(words, 2, str(tmp_path / "two.log"))
    assert code == 0, end
    found = {event["step"]: event["loss"] for event in events(tmp_path / "two") if event["event"] == "train"}
    assert found == pytest.approx(one, rel=LIMIT)


@pytest.mark.parametrize("mode", ["true", "reduce-overhead"])
@pytest.mark.parametrize("recipe", DEMOS)
def test_compiled_updates_are_those_of_eager_mode(recipe, mode, torch, device, tmp_path):
    if device == "cpu":
        pytest.skip("compiling takes minutes on a CPU")
    changes = {"train.precision": "amp", "train.channels_last": "true"}
    eager = train(tmp_path / "eager", torch, device, recipe, **changes)
    compiled = train(tmp_path / "compiled", torch, device, recipe, **changes, **{"train.compile": mode})
    assert compiled == pytest.approx(eager, rel=LIMIT_16)


def test_activations_that_are_computed_again_take_less_memory(torch, device, tmp_path):
    if device == "cpu":
        pytest.skip("a CPU's memory is not that of its tensors alone")
    recipe = ["-c", str(ROOT / "tests/gpu/recipes/resnet50.yaml"), "-o", "train.batch=32", "-o", "data.workers=0"]
    recipe += ["-o", "train.cudnn_benchmark=false"]  # which tries kernels with workspaces of any size
    memory = []
    for again in ("false", "true"):
        words = ["-o", f"train.checkpoint_activations={again}", "--framework", torch, "--device", device]
        call(program.command("train", *recipe, *words, "--speed", "--drop", "1", "--out", str(tmp_path / again)))
        memory.append(runs.read(str(tmp_path / again)).values.device_memory)
    assert memory[1] < 0.6 * memory[0]


def test_dali_decodes_on_the_device(torch, device, tmp_path):
    pytest.importorskip("nvidia.dali")
    pytest.importorskip("cv2")
    losses = {}
    for loader in ("reference", "dali"):
        options = ["-c", "resnet50_demo", "-o", f"data.root={tmp_path / 'shapes'}", "-o", f"data.loader={loader}"]
        options += ["-o", "train.log_every=1", "--max-steps", str(STEPS), "--device", device]
        options += ["-o", "data.dali_device=gpu"] if loader == "dali" and device != "cpu" else []
        out = tmp_path / loader
        call([sys.executable, str(ROOT / "train.py"), *options, "--out", str(out)])
        losses[loader] = {event["step"]: event["loss"] for event in events(out) if event["event"] == "train"}
    assert losses["dali"] == pytest.approx(losses["reference"], rel=0.05)  # decoders differ by a level of a pixel
