"""The command `zoo`: its dispatch, and how it is installed beside a user's own packages."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.helpers.cli import call_zoo
from tests.helpers.paths import ROOT
from zoo import cli

RECIPE = str(ROOT / "configs/tsm_demo.yaml")


def run(*words, cwd, **variables):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env={**environment, **variables}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "words, hint",
    [
        (["trian"], "mean train?"),
        (["data", "chekc"], "mean data check?"),
        (["data"], "data check"),
        (["report", "dlperf", "x"], "error: `zoo report dlperf` is now `python -m evidence dlperf`, in a checkout\n"),
    ],
)
def test_an_unknown_command(capsys, words, hint):
    assert call_zoo(*words) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["bench", "estimate", "--procesess=8"], "arguments: --procesess=8; did you mean --processes?"),
        (["convert", "a.pth", "b.safetensors"], "required: --out; zoo convert --help shows the options"),
        (["compare", "--frameworks", "torch", "--processes", "2x4"], "--processes 2x4: all processes"),
        (["compare", "--frameworks", "torch", "--processes", "two"], "--processes: expected HOSTSxPROCESSES"),
    ],
)
def test_wrong_options_are_answered_in_one_line(capsys, words, message):
    assert call_zoo(*words, *(["-c", RECIPE] if words[0] != "convert" else [])) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


def test_the_list_of_commands(capsys):
    assert call_zoo("--help") == 0
    text = capsys.readouterr().out
    assert all(name in text for name in cli.COMMANDS)
    assert call_zoo("data", "-h") == 0 and "data check" in capsys.readouterr().out
    assert call_zoo() == 2 and call_zoo("--version") == 0


def test_errors_and_interruptions_of_every_command(capsys, monkeypatch):
    assert call_zoo("train", "-c", "no.yaml") == 2
    assert capsys.readouterr().err.startswith("error: no.yaml")

    def interrupt(request):  # before a run handles signals, such as while a demo set is made
        raise KeyboardInterrupt

    monkeypatch.setattr("zoo.commands.train.execute", interrupt)
    assert call_zoo("train", "-c", RECIPE) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    "script, words, title",
    [
        ("bin/zoo", ["compare", "seeds"], "zoo compare seeds"),
        ("tools/predict.py", ["predict"], "predict.py"),
        ("tools/data.py", ["data", "check"], "data.py check"),
        ("tests/x.py", ["train"], "zoo train"),
    ],
)
def test_the_help_shows_what_the_user_typed(monkeypatch, capsys, script, words, title):
    monkeypatch.setattr(sys, "argv", [script])
    with pytest.raises(SystemExit):
        call_zoo(*words, "--help")
    assert f"usage: {title} " in capsys.readouterr().out


def build(kind, folder):
    """Build `wheel` or `editable` from a copy of this checkout, by setuptools itself: pip might change this Python."""
    source = folder / "source"
    run("git", "-C", ROOT, "checkout-index", "-a", f"--prefix={source}/", cwd=folder)
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(folder)!r})"
    run(sys.executable, "-c", code, cwd=source)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(tmp_path):
    names = build("wheel", tmp_path).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"zoo"}
    recipes = {path.name for path in (ROOT / "configs").glob("*.yaml")}
    assert {f"zoo/configs/{name}" for name in recipes} | {"zoo/py.typed", "zoo/data/order.py"} <= set(names)


@pytest.fixture(scope="module", params=["wheel", "editable"])
def python(request, tmp_path_factory):
    """The Python of an environment in which the zoo is installed, beside all other packages of this one."""
    folder = tmp_path_factory.mktemp(request.param)
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv/bin/python"
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    build(request.param, folder).extractall(site)
    others = [path for path in sys.path if path.endswith("site-packages")]
    (Path(site) / "others.pth").write_text("\n".join(others))
    (folder / "venv/bin/zoo").write_text("import sys\nfrom zoo.cli import main\nsys.exit(main())\n")
    return python


@pytest.mark.slow
@pytest.mark.parametrize("has_init", [True, False])
def test_a_project_has_packages_of_the_same_names(python, tmp_path, has_init):
    for name in ("data", "tools", "configs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.py").write_text(f"NAME = {name!r}")
        if has_init:
            (tmp_path / name / "__init__.py").write_text("")
    code = (
        "import data.own, tools.own, configs.own, zoo, zoo.data.order\n"
        "assert (data.own.NAME, tools.own.NAME, configs.own.NAME) == ('data', 'tools', 'configs')\n"
        "print(len(zoo.list_models()), zoo.__file__)"
    )
    (tmp_path / "train.py").write_text(code)
    assert str(python.parents[2]) in run(python, "train.py", cwd=tmp_path)
    assert "tsm_demo" in run(python, python.parent / "zoo", "train", "-c", "tsm_demo", "--print-config", cwd=tmp_path)


@pytest.mark.slow
def test_an_installed_command_starts_ranks(python, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/__init__.py").write_text("raise SystemExit('the data of the user')")
    words = ["-c", "tsm_demo", "--device", "cpu", "--max-steps", "1", "-o", "data.workers=0", "-o", "train.batch=2"]
    words += ["-o", f"data.root={tmp_path}/clips", "-o", "data.train_clips=16", "-o", "data.val_clips=8"]
    run(python, python.parent / "zoo", "launch", "1x2", *words, "--out", tmp_path / "run", cwd=tmp_path)
    assert os.listdir(tmp_path / "run/checkpoints")
