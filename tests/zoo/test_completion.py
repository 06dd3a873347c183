"""The scripts that complete the command line in a shell."""

import subprocess
import sys

import pytest

from tests.helpers.cli import call_zoo

ASK = """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
_shtab_zoo
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    pytest.importorskip("shtab", reason="shtab, which makes the scripts, is not installed")
    path = tmp_path_factory.mktemp("completion") / "zoo.bash"
    with pytest.MonkeyPatch.context() as patch, path.open("w") as file:
        patch.setattr(sys, "stdout", file)
        assert call_zoo("completion", "bash") == 0
    return path


@pytest.mark.parametrize(
    "words, expected",
    [
        ("tr", ["train"]),
        ("data al", ["align"]),
        ("compare se", ["seeds"]),
        ("train --fra", ["--framework"]),
        ("train --framework p", ["paddle"]),
        ("sweep -c resnet50_d", ["resnet50_demo"]),
        ("train -o optim.warmup_o", ["optim.warmup_offset="]),
        ("launch 1x8 --am", ["--amp"]),  # an option of train
        ("airank submit --ru", ["--runs"]),
        ("train --turnip", []),
    ],
)
def test_bash_completes(script, words, expected, tmp_path):
    line = ["bash", "-c", f"source {script}\n{ASK}", "bash", "zoo", *words.split(" ")]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, timeout=30)
    assert (done.stdout.split(), done.stderr) == (expected, "")


def test_the_scripts_are_those_of_their_shells(script, capsys):
    subprocess.run(["bash", "-n", script], check=True, timeout=30)
    assert call_zoo("completion", "zsh") == 0 and capsys.readouterr().out.startswith("#compdef zoo\n")
    assert call_zoo("completion", "fish-and-chips") == 2


def test_a_missing_shtab_is_named_with_the_command_that_installs_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert call_zoo("completion", "bash") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: shtab is not installed here: pip install ") and "[completion]" in error
