"""The Python API: names, weights and errors; the cases of api_cases.py in every framework."""

import importlib.util
import os
import pickle
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import zoo
from tests.helpers import frameworks
from tests.helpers.exported import export
from tests.helpers.paths import ROOT
from tests.zoo import api_cases
from zoo.data.errors import Option, UserError
from zoo.frameworks import FRAMEWORKS
from zoo.logs.journal import Journal
from zoo.notebook import argument_names
from zoo.run import training
from zoo.weights import files, imagenet


@pytest.mark.parametrize("framework, module, case", frameworks.parameters("zoo.api_cases"))
def test_api(framework, module, case):
    frameworks.check(framework, module, case)


def test_importing_and_numpy_weights_load_no_framework():
    code = (
        "import sys, zoo; zoo.numpy_weights('resnet18', width=8); zoo.list_models(); zoo.Run('configs/tsm_demo.yaml'); "
        f"assert not set({FRAMEWORKS}) & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    light = "import sys, zoo; assert 'numpy' not in sys.modules and not hasattr(zoo, 'x')"
    subprocess.run([sys.executable, "-c", light], check=True, cwd=ROOT)


def test_names():
    assert zoo.list_models("tsm_*") == ["tsm_r18", "tsm_r34", "tsm_r50", "tsm_r101", "tsm_r152", "tsm_mobilenet_v2"]
    assert {"resnet152", "deeplabv3plus_r101", "iresnet100"} < set(zoo.list_models())
    with pytest.raises(
        UserError, match="there is no model 'resnet51'; there are: .*, resnet18, .*; did you mean resnet50"
    ):
        zoo.create_model("resnet51")


def test_the_package_shows_its_python_api_and_nothing_else():
    assert dir(zoo) == sorted(zoo.__all__) and all(hasattr(zoo, name) for name in dir(zoo))


def test_options():
    assert zoo.numpy_weights("resnet18", width=8)["conv1.weight"].shape == (8, 3, 7, 7)
    with pytest.raises(UserError, match="widht: resnet has no such option; there are: depth, num_classes, width"):
        zoo.numpy_weights("resnet18", widht=8)
    with pytest.raises(UserError, match="width: must be at least 1"):
        zoo.numpy_weights("resnet18", width=0)
    with pytest.raises(UserError, match="width: expected a whole number, got 'x'"):
        zoo.numpy_weights("resnet18", width="x")
    with pytest.raises(UserError, match="padding: expected one of symmetric, same_pool, same; got 'weird'"):
        zoo.numpy_weights("resnet18", padding="weird")
    with pytest.raises(UserError, match="depth: is part of the model's name; choose one of: resnet18, resnet34"):
        zoo.numpy_weights("resnet18", depth=50)


def test_impossible_arguments():
    for arguments, message in (
        ({"num_classes": "ten"}, "num_classes: expected a whole number or null, got 'ten'"),
        ({"num_classes": 0}, "num_classes: must be at least"),
        ({"seed": 1.5}, "seed: expected a whole number"),
    ):
        with pytest.raises(UserError, match=message):
            zoo.numpy_weights("resnet18", **arguments)
    with pytest.raises(UserError, match="num_classes: iresnet18 gives embeddings"):
        zoo.numpy_weights("iresnet18", num_classes=5)
    with pytest.raises(UserError, match="overrides: expected values by key"):
        zoo.load("weights", overrides="data.size=3")


def test_a_checkpoint_gives_its_weights_and_outputs(tmp_path):
    path, tensors = api_cases.write_checkpoint(tmp_path)
    loaded = zoo.numpy_weights("resnet18", pretrained=path, width=8)
    assert loaded.keys() == tensors.keys() and all(np.array_equal(loaded[name], tensors[name]) for name in tensors)
    other = zoo.numpy_weights("resnet18", pretrained=path, width=8, num_classes=4, seed=9)
    initial = zoo.numpy_weights("resnet18", width=8, num_classes=4, seed=9)
    for name, array in other.items():
        expected = initial if name.startswith("fc.") else tensors
        assert np.array_equal(array, expected[name])


def test_weights_of_another_model(tmp_path):
    path, _ = api_cases.write_checkpoint(tmp_path)
    with pytest.raises(UserError, match="step-00000004 is a resnet, but tsm_r18 is a tsm; choose another name or file"):
        zoo.numpy_weights("tsm_r18", pretrained=path, width=8)
    with pytest.raises(UserError, match="does not match this model") as error:
        zoo.numpy_weights("resnet34", pretrained=path, width=8)
    assert "layer1.2.conv1.weight" in str(error.value)
    with pytest.raises(UserError, match="has no checkpoint.json"):
        zoo.load(str(tmp_path))


def test_arguments_of_a_run():
    recipe = "configs/tsm_demo.yaml"
    run = zoo.Run(recipe, {"optim.lr": 0.5, "train.eval_every": "2 epochs", "data.scales": (1, 0.5)}, seed=3, amp=True)
    assert (run.recipe["optim.lr"], run.recipe["data.scales"], run.recipe["seed"]) == (0.5, (1.0, 0.5), 3)
    assert run.recipe["train.precision"] == "amp" and str(run.recipe["train.eval_every"]) == "2 epochs"
    for changes, options, message in (
        ({"optim.lrr": 1}, {}, "overrides: optim.lrr: unknown key"),
        (["optim.lr=1"], {}, "overrides: expected values by key"),
        ({}, {"framework": "keras"}, "framework: expected one of torch, paddle, mindspore, jax"),
        ({}, {"max_steps": 0}, "max_steps: must be at least 1"),
        ({}, {"weights": "nowhere"}, "nowhere"),
        ({}, {"resume": "nowhere"}, "resume: there is no folder nowhere"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            zoo.Run(None if {"weights", "resume"} & options.keys() else recipe, changes, **options)
    with pytest.raises(UserError, match="evaluate: name what to evaluate"):
        run.evaluate()


@pytest.mark.parametrize(
    "option, command, argument",
    [
        (Option("optim.lrr"), "-o optim.lrr", "overrides: optim.lrr"),
        (Option("data.num_classes", 10), "-o data.num_classes=10", "overrides={'data.num_classes': 10}"),
        (Option("data.names", "a b;c.txt"), "-o 'data.names=a b;c.txt'", "overrides={'data.names': 'a b;c.txt'}"),
        (
            Option("data.verification", ["a.bin", "b.bin"]),
            "-o 'data.verification=[a.bin, b.bin]'",
            "overrides={'data.verification': ['a.bin', 'b.bin']}",
        ),
        (Option("model.pretrained", None), "-o model.pretrained=null", "overrides={'model.pretrained': None}"),
        (Option("data.void_masks", True), "-o data.void_masks=true", "overrides={'data.void_masks': True}"),
        (Option("--out", "DIR"), "--out DIR", "out=DIR"),
        (Option("--resume"), "--resume", "resume"),
        (Option("--accept-changed-data", True), "--accept-changed-data", "accept_changed_data=True"),
    ],
)
def test_the_command_line_and_the_api_word_the_options_of_a_message(option, command, argument):
    error = UserError("a.yaml: ", UserError("it is wrong; give ", option), "; --deep is no argument")
    assert str(error) == f"a.yaml: it is wrong; give {command}; --deep is no argument"
    with pytest.raises(UserError) as caught, argument_names():
        raise pickle.loads(pickle.dumps(error))
    assert str(caught.value) == f"a.yaml: it is wrong; give {argument}; --deep is no argument"


def test_a_model_that_is_built_late_words_its_errors_as_those_of_load():
    def fail():
        raise UserError("device: there is no cuda:0 here; use ", Option("--device", "cpu"))

    predictor = SimpleNamespace(frame_template=lambda settings: "")
    loaded = zoo.Loaded(None, (), None, {}, None, None, predictor, fail)
    for call in (loaded.predict, loaded.features):
        with pytest.raises(UserError, match="use device=cpu$"):
            call("photo.jpg")


def test_the_metrics_of_a_result_are_those_of_its_checkpoint(monkeypatch, tmp_path):
    with Journal(str(tmp_path), []) as journal:
        for step, accuracy in ((2, 0.5), (4, 0.75), (6, 0.25)):
            journal.add("eval", step=step, epoch=step / 2, accuracy=accuracy, samples=8)
            if step < 6:
                journal.add("best", step=step, path="x")
    finished = SimpleNamespace(exit_code=0, metrics=None, folder=str(tmp_path), journal=journal)
    monkeypatch.setattr(training, "execute", lambda request: finished)
    result = zoo.Run("configs/tsm_demo.yaml").train()
    assert result.metrics == {"accuracy": 0.75, "samples": 8}
    assert result.last_metrics == {"accuracy": 0.25, "samples": 8}


@pytest.mark.slow
def test_a_script_without_a_main_guard_trains_with_reading_processes(tmp_path):
    settings = {**api_cases.RUN, "data.workers": 2, "train.steps": 2}
    (tmp_path / "script.py").write_text(
        f"import zoo\nprint('once')\nzoo.Run('resnet50_demo', {settings}, framework='torch', out='run').train()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300
    )
    assert (done.returncode, done.stderr, done.stdout.count("once")) == (0, "", 1)


def test_a_signal_stops_a_run_and_is_then_delivered(monkeypatch, tmp_path):
    stopped = SimpleNamespace(exit_code=128 + signal.SIGINT, metrics=None, folder=str(tmp_path))
    monkeypatch.setattr(training, "execute", lambda request: stopped)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have ignored it
    try:
        with pytest.raises(KeyboardInterrupt):
            zoo.Run("configs/tsm_demo.yaml").train()
    finally:
        signal.signal(signal.SIGINT, before)


def test_imagenet_weights(monkeypatch, tmp_path):
    published = zoo.numpy_weights("resnet18", width=8, seed=7)
    path = str(tmp_path / "resnet18.safetensors")
    files.write(path, published)
    monkeypatch.setattr(imagenet, "find_weights", lambda depth, variant: (path, f"{variant} {depth}"))
    for name, classes, fresh in (("resnet18", 1000, ()), ("resnet18", 10, ("fc.",)), ("tsm_r18", 1000, ("fc.",))):
        found = zoo.numpy_weights(name, pretrained="imagenet", width=8, num_classes=classes)
        initial = zoo.numpy_weights(name, width=8, num_classes=classes)
        for key, array in found.items():
            expected = initial if key.startswith(fresh) and fresh else published
            assert np.array_equal(array, expected[key]), key
    with pytest.raises(UserError, match="there are no ImageNet weights for arcface"):
        zoo.numpy_weights("iresnet18", pretrained="imagenet")


EXAMPLES = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/predicting.md").read_text(encoding="utf-8"), re.M | re.S)
LOOPS = {re.findall(r'framework="(\w+)"', block)[0]: block for block in EXAMPLES if "zoo.batches(" in block}


@pytest.mark.slow
@pytest.mark.skipif(not all(map(importlib.util.find_spec, LOOPS)), reason="compares all frameworks")
def test_loops_of_the_docs_have_the_same_loss(tmp_path):
    losses = {}
    for framework, code in LOOPS.items():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        losses[framework] = float(done.stdout.splitlines()[-1].split()[0])
    assert losses.keys() == set(FRAMEWORKS) and np.ptp([*losses.values()]) < 1e-4, losses


@pytest.mark.slow
def test_the_examples_of_the_docs_run(tmp_path):
    blocks = [block for block in EXAMPLES if "onnxruntime" not in block and block not in LOOPS.values()]
    assert len(blocks) == 6
    scenes, faces = api_cases.write_other_checkpoints(tmp_path)
    for name, path in (("resnet50", api_cases.write_checkpoint(tmp_path)[0]), ("deeplabv3plus", scenes)):
        (tmp_path / f"runs/{name}_demo/checkpoints").mkdir(parents=True)
        (tmp_path / f"runs/{name}_demo/checkpoints/best").symlink_to(path)
    export(faces, tmp_path / "faces.onnx")
    rng = np.random.default_rng(0)
    for file in ("a.jpg", "b.jpg", "street.png", "ann.jpg", "ben.jpg"):
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(tmp_path / file)
    code = "".join(blocks) + "\nassert logits.shape == (2, 10)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, prediction, *labels, share, cosine = done.stdout.splitlines()[:6]
    log = done.stdout.splitlines()[6:]
    assert first == str(zoo.list_models("resnet*"))
    assert prediction.split()[0] in api_cases.CLASSES and prediction.endswith(" 18")
    assert all(re.fullmatch(rf"({'|'.join(api_cases.CLASSES)}): 0\.\d\d", label) for label in labels)
    assert re.fullmatch(r"\d+% of the pixels are road", share) and re.fullmatch(r"cosine -?[01]\.\d\d", cosine)
    trained = re.search(r"^([0-9.]+) runs/resnet50_demo-2$", done.stdout, re.M)
    assert trained and float(trained[1]) == float(log[-1])
