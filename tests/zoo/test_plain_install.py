"""Every command where packages of extras are missing: it does without them, or names what installs them."""

import contextlib
import io
import json
import os
import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT
from tests.zoo import api_cases
from zoo import cli
from zoo.data import extras

OLD_RUN = ROOT / "tests/golden/old_run"
WORKS = [  # without any extra
    *(f"{command} --help" for command in cli.COMMANDS),
    "train --list",
    *(f"train -c {recipe} --print-config" for recipe in ("tsm_k400", "resnet50_imagenet", "deeplabv3plus_cityscapes")),
    *(f"train -c {recipe} --print-config" for recipe in ("arcface_ms1m", "tsm_demo", "resnet50_demo", "arcface_demo")),
    "train -c deeplabv3plus_demo --plan 1,8",
    "weights list",
    "bench estimate -c resnet50_demo",
    "data check -c resnet50_demo -o data.name=synthetic",
    f"runs {OLD_RUN}",
    f"report {OLD_RUN}",
]
LACKS = {  # command -> the package that it names
    "train -c arcface_demo": "PIL",
    "train -c tsm_demo": "cv2",
    "finetune photos": "PIL",
    "evaluate run/checkpoints/last": "PIL",
    "predict photos/cat/0.png --weights run/checkpoints/last": "torch",
    "export run/checkpoints/last --out x.onnx": "onnx",
    "compare seeds -c resnet50_demo": "scipy",
    "sweep -c resnet50_demo -p optim.lr=1,2 --seeds 2": "scipy",
    f"report {OLD_RUN} --html x.html": "matplotlib",
    "bench update -c resnet50_demo": "PIL",
    "bench profile -c resnet50_demo": "PIL",
    "bench stream": "torch",
}


def main() -> None:
    """Print the answers of commands of standard input, one in a line, where no package of an extra is installed."""
    sys.modules.update({package.split(".")[0]: None for package in extras.EXTRAS})
    api_cases.write_checkpoint(".")
    for line in sys.stdin:
        error = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
            try:
                code = cli.main(line.split())
            except SystemExit as exit:
                code = exit.code
        print(json.dumps([line.strip(), code, error.getvalue()]))


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Exit code and errors by command."""
    folder = tmp_path_factory.mktemp("plain")
    for name in ("cat", "dog"):
        (folder / f"photos/{name}").mkdir(parents=True)
        for number in range(4):
            (folder / f"photos/{name}/{number}.png").write_bytes(f"{name}{number}".encode())
    command = [sys.executable, "-c", "from tests.zoo.test_plain_install import main; main()"]
    text, environment = "\n".join([*WORKS, *LACKS]), {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=folder, env=environment, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line: (code, error) for line, code, error in map(json.loads, done.stdout.splitlines())}


def test_what_needs_no_package_of_an_extra(answers):
    assert {line: answers[line] for line in WORKS if answers[line] != (0, "")} == {}


def test_what_needs_one_names_it_and_the_command(answers):
    for line, package in LACKS.items():
        code, error = answers[line]
        assert code == 2 and f"error: {extras.missing(package)}" in error.splitlines()[-1], (line, error)


def test_the_python_api_names_what_it_lacks(tmp_path):
    code = (
        "import sys; sys.modules.update(torch=None, cv2=None, PIL=None); import zoo; zoo.numpy_weights('resnet18', "
        "width=8)\ntry: zoo.create_model('resnet18', width=8)\nexcept zoo.UserError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == (f"{extras.missing('torch')}\n", "")
