"""Checkouts as people get them: without symbolic links, as on Windows and from some zip files."""

import os
import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT

TINY = (
    "data.train_images=16",
    "data.val_images=16",
    "data.size=16",
    "data.workers=0",
    "model.width=4",
    "data.root=set",
)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["resnet50_demo", "configs/resnet50_demo.yaml"])
def test_a_checkout_without_symbolic_links_trains(recipe, tmp_path):
    """The files of this checkout, whether they are committed or not; a link becomes a file that holds its target."""
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if name.startswith(("zoo/", "train.py", "data", "configs")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            source = ROOT / name
            (tmp_path / name).write_bytes(
                os.fsencode(os.readlink(source)) if source.is_symlink() else source.read_bytes()
            )
    assert (tmp_path / "configs").read_text() == "zoo/configs"
    words = [word for pair in TINY for word in ("-o", pair)]
    command = [sys.executable, "train.py", "-c", recipe, *words, "--max-steps", "1", "--out", "run", "--device", "cpu"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run/checkpoints/last").exists()
