"""Every kind of name mistyped once: the answer is one line that names the right one, or those that there are."""

import os
import subprocess
import sys

import pytest

import zoo
from tests.helpers.cli import call_zoo
from tests.helpers.paths import ROOT
from tests.zoo import api_cases

MISTYPED = {  # command -> the end of its answer
    "trian": "there is no command `zoo trian`; did you mean train?",
    "data chek": "there is no command `zoo data chek`; did you mean data check?",
    "bench": "`zoo bench` needs one of its commands: bench update, bench data,",
    "train": "no recipe: name one with -c",
    "train resnet50_demo": "resnet50_demo: a recipe is named by -c: -c resnet50_demo",
    "train -c resnet50_dmo": "resnet50_dmo: there is no such recipe; did you mean resnet50_demo?",
    "train -c mien.yaml": "mien.yaml: there is no such recipe; did you mean mine.yaml?",
    "train -c mine": "mine.yaml:1: base: ./resnt_demo: there is no such recipe; did you mean resnet50_demo?",
    "train -c resnet50_demo --max-stpes 3": "--max-stpes: there is no such option; did you mean --max-steps?",
    "train -c resnet50_demo -o optim.lrr=1": "-o optim.lrr: unknown key for optim.name=sgd; did you mean optim.lr?",
    "train -c resnet50_demo -o train.precision=fp17": "got 'fp17'; did you mean fp16?",
    "train -c resnet50_demo -o optim.name=sgdd": "-o optim.name: there is no optimizer 'sgdd'; *; did you mean sgd?",
    "train -c resnet50_demo -o model.name=resnt": "there is no model 'resnt'; there are: *; did you mean resnet?",
    "train -c resnet50_demo -o data.name=shaps": "there is no data set 'shaps'; there are: *; did you mean shapes?",
    "train -c resnet50_demo -o task.loss=cros_entropy": "did you mean cross_entropy?",
    "train -c resnet50_demo -o data.augment=[horizontal_flp]": "did you mean horizontal_flip?",
    "train -c resnet50_demo --framework torhc": "'torhc' (choose from 'torch', 'paddle', 'mindspore', 'jax')",
    "train -c resnet50_demo --device cudda -o data.name=synthetic": "cuda:N, mps or mps:N, got 'cudda'",
    "train -c resnet50_demo --weights resnet50.tv_in1k_v11": "did you mean resnet50.tv_in1k_v1?",
    "train --resume run/rnu": "--resume: there is no folder run/rnu",
    "evaluate run/checkpoints/lst": "run/checkpoints/lst: there is no such file or folder of weights; did you mean *",
    "predict photo.png --weights rnu": "rnu: there is no such file or folder of weights; did you mean run?",
    "predict photo.png --weights run --weigths x": "arguments: --weigths x; did you mean --weights?",
    "finetune phtos": "phtos: there is no such folder; did you mean photos?",
    "finetune": "the following arguments are required: FOLDER",
    "runs rnu": "rnu does not exist; did you mean run?",
    "weights download resnet50.tv_in1k_v11": "did you mean resnet50.tv_in1k_v1?",
    "compare -c resnet50_demo --frameworks torhc": "there is no 'torhc'; there are: torch, paddle, mindspore, jax",
    "bench matrix -c resnet50_dmo --out results": "resnet50_dmo: there is no such recipe; did you mean resnet50_demo?",
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    api_cases.write_checkpoint(".")
    (tmp_path / "photos").mkdir()
    (tmp_path / "mine.yaml").write_text("base: ./resnt_demo\n")
    return tmp_path


def test_a_mistyped_name_is_answered_with_the_right_one(here, capsys):
    for line, answer in MISTYPED.items():
        assert call_zoo(*line.split()) == 2, line
        error = capsys.readouterr().err
        at = error.find("error: ")
        for part in answer.split("*"):
            assert error.find(part, at) >= 0, (line, error)
            at = error.find(part, at)
        assert error.count("\n") == 1, (line, error)


@pytest.mark.parametrize("module", [["-m", "zoo"], [str(ROOT / "zoo")], [str(ROOT / "train.py"), "-c", "resnet50_dmo"]])
def test_the_program_by_its_other_names(module, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *module], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "did you mean resnet50_demo?" in done.stderr if "-c" in module else "usage: zoo COMMAND" in done.stdout


@pytest.mark.parametrize(
    "call, answer",
    [
        (lambda: zoo.create_model("resnet51"), "there is no model 'resnet51'; there are: *; did you mean resnet50?"),
        (lambda: zoo.create_model("resnet50.tv_in1k_v11"), "did you mean resnet50.tv_in1k_v1?"),
        (lambda: zoo.create_model("resnet18", "torhc"), "has no implementation for 'torhc'; choose one of: torch"),
        (lambda: zoo.create_model("resnet18", pretrained="rnu"), "rnu"),
        (lambda: zoo.load("rnu"), "rnu: there is no such file or folder of weights; did you mean run?"),
        (lambda: zoo.Run("resnet50_dmo"), "resnet50_dmo: there is no such recipe; did you mean resnet50_demo?"),
        (lambda: zoo.Run("resnet50_demo", {"optim.lrr": 1}), "overrides: optim.lrr: unknown key"),
        (lambda: zoo.batches("resnet50_demo", {"trian.batch": 1}), "did you mean train.batch?"),
    ],
)
def test_the_python_api(here, call, answer):
    with pytest.raises(zoo.UserError) as caught:
        call()
    assert all(part in str(caught.value) for part in answer.split("*")), str(caught.value)


def test_a_mistyped_function_is_suggested():
    """By Python itself, from the names of the package."""
    code = "import zoo; zoo.creat_model('resnet18')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stderr.splitlines()[-1].endswith("has no attribute 'creat_model'. Did you mean: 'create_model'?")
