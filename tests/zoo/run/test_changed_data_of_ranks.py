"""Two processes whose data are damaged, mended and changed: rank 0 decides, and both end with the same message."""

import shutil

import pytest

from tests.helpers import ranks
from tests.helpers.processes import train_arguments
from tests.helpers.training import events

EVERY = {"train__eval_every": "1 epochs", "train__epochs": 2, "optim__warmup": "0 steps"}
REFUSED = ([2, 2], [1, 2], [2, 1])  # 1 where the other rank was quicker to end both


def run(root, folder, *words):
    """Return the exit codes and the outputs of both ranks."""
    arguments = train_arguments({"resnet50": str(root)}, "resnet50", folder, "torch", *words, **EVERY)[1:]
    if "--resume" in words:
        arguments = [word for word in arguments if word not in ("--out", str(folder))] + [str(folder)]
    processes = ranks.start_ranks(arguments)
    outputs = [process.communicate(timeout=200)[0] for process in processes]
    return [process.returncode for process in processes], outputs


@pytest.mark.slow
def test_two_processes_stop_mend_and_go_on(demo_sets, tmp_path):
    root, folder = shutil.copytree(demo_sets["resnet50"], tmp_path / "data"), tmp_path / "run"
    images = sorted(path for path in (root / "val").rglob("*.JPEG"))
    bad, content = images[4], images[4].read_bytes()  # which rank 1 reads
    bad.write_bytes(b"")
    codes, outputs = run(root, folder)
    name = str(bad.relative_to(root))
    assert codes in REFUSED and all(f"evaluation: {name}: the file is empty" in output for output in outputs), outputs
    assert [event["name"] for event in events(folder) if event["event"] == "unreadable"] == [name]
    done = [event["step"] for event in events(folder) if event["event"] == "train"]

    bad.write_bytes(content)
    other = next(iter(sorted((root / "train").rglob("*.JPEG"))))
    before = other.read_bytes()
    other.write_bytes(content)
    codes, outputs = run(root, folder, "--resume")
    message = f"training: 1 with other contents: {other.relative_to(root)}"
    assert codes in REFUSED and all(message in output for output in outputs), outputs

    other.write_bytes(before)
    codes, outputs = run(root, folder, "--resume")
    assert codes == [0, 0] and "mended since they could not be read" in outputs[0], outputs
    steps = [event["step"] for event in events(folder) if event["event"] == "train"]
    assert done == [1, 2] and steps == [1, 2, 3, 4]
    assert [event["step"] for event in events(folder) if event["event"] == "eval"] == [2, 4]
