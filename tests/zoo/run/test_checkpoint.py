"""Checkpoints are complete or absent, whatever happens to the process that writes them."""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.paths import ROOT
from zoo.data.errors import UserError
from zoo.logs.journal import Journal
from zoo.run import checkpoint, recorded_recipe, resume
from zoo.run.checkpoint import (
    UPDATE,
    latest,
    load_checkpoint,
    load_record,
    path_of,
    save_checkpoint,
    save_evaluation,
    set_damaged_aside,
)
from zoo.weights import files, recorded
from zoo.weights.files import DamagedFile
from zoo.weights.recorded import AVERAGE, FOLDER, MODEL, has_averages, model_file

FILES = (MODEL, UPDATE)
RECORD = {"classes": ["tango dancing", 'köln "ü"'], "epoch": 1.5, "recipe": "seed: 1\n"}
METRICS = {"accuracy": 0.5, "iou": {"road": 0.25}}
WRITER = """\
import sys
import numpy as np
from zoo.run.checkpoint import latest, load_checkpoint, save_checkpoint, save_evaluation
run, path = sys.argv[1], latest(sys.argv[1])
step = load_checkpoint(path)[1]["step"] if path else 0
print("ready", flush=True)
while True:
    step += 1
    tensors = {f"layer{i}.weight": np.full((64, 50, i + 1), step, np.float32) for i in range(8)}
    tensors.update({f"momentum/layer{i}.weight": np.full((64, 50), step, np.float32) for i in range(8)})
    save_checkpoint(run, step, tensors, {"classes": ["a"], "step": step}, 2)
    save_evaluation(run, step, {"accuracy": 0.5}, step % 3 == 0, 2)
"""


def tensors(value=0.0):
    rng = np.random.default_rng(7)
    arrays = {
        "fc.weight": rng.standard_normal((3, 5), dtype=np.float32),
        "bn1.running_var": np.ones(4, np.float32),
        "momentum/fc.weight": rng.standard_normal((3, 5), dtype=np.float32),
        "scaler/scale": np.float32(65536.0).reshape(()),
        "scaler/good": np.array(17, np.int64),
        "odd": np.array([np.nan, np.inf, -0.0, 1e-45, np.finfo(np.float32).max], np.float32),
    }
    arrays["fc.bias"] = np.full(3, value, np.float32)
    return arrays


def save(run, step, best=False, keep=3, value=0.0):
    path = save_checkpoint(str(run), step, tensors(value), RECORD, keep)
    if best:
        save_evaluation(str(run), step, METRICS, True, keep)
    return path


def step_folders(run):
    """The steps of a run's checkpoints; temporary folders and links are no checkpoints."""
    return sorted(int(name[5:]) for name in os.listdir(run / FOLDER) if name.startswith("step-"))


def test_bits_and_shapes_come_back(tmp_path):
    path = save(tmp_path, 500)
    got, record = load_checkpoint(path)
    want = tensors()
    assert set(got) == set(want)
    for name, array in want.items():
        assert got[name].shape == array.shape and got[name].dtype == array.dtype, name
        assert got[name].tobytes() == array.tobytes(), name
    assert record["step"] == 500 and {key: record[key] for key in RECORD} == RECORD
    assert path == str(tmp_path / FOLDER / "step-00000500") == latest(str(tmp_path))


def test_arrays_that_are_views_come_back(tmp_path):
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    path = save_checkpoint(str(tmp_path), 1, {"t": whole.T, "s": whole[::2, 1:3], "momentum/r": whole[::-1]}, RECORD, 1)
    got, _ = load_checkpoint(path)
    assert np.array_equal(got["t"], whole.T) and np.array_equal(got["s"], whole[::2, 1:3])
    assert np.array_equal(got["momentum/r"], whole[::-1])


def test_weights_and_the_state_of_the_update_are_apart(tmp_path):
    path = save(tmp_path, 1)
    model, _ = files.read(os.path.join(path, "model.safetensors"))
    update, _ = files.read(os.path.join(path, "update.safetensors"))
    assert set(model) == {"fc.weight", "fc.bias", "bn1.running_var", "odd"}
    assert set(update) == {"momentum/fc.weight", "scaler/scale", "scaler/good"}


def test_moving_averages_are_weights_of_their_own_file(tmp_path):
    """They have the names of the weights there, and are those that a model is loaded with."""
    plain = save(tmp_path / "plain", 1)
    assert not has_averages(plain) and model_file(plain) == model_file(plain, raw=True) == f"{plain}/{MODEL}"
    average = {"ema/fc.bias": np.full(3, 7.0, np.float32)}
    path = save_checkpoint(str(tmp_path), 1, {**tensors(), **average}, RECORD, 1)
    assert (
        has_averages(path) and model_file(path) == f"{path}/{AVERAGE}" and model_file(path, True) == f"{path}/{MODEL}"
    )
    assert model_file(f"{path}/{UPDATE}") == f"{path}/{UPDATE}"
    found, metadata = files.read(model_file(path))
    assert found.keys() == {"fc.bias"} and json.loads(metadata["classes"]) == RECORD["classes"]
    got, record = load_checkpoint(path)
    assert (
        got.keys() == tensors().keys() | average.keys() and got["ema/fc.bias"][0] == 7.0 and AVERAGE in record["files"]
    )


def test_the_same_tensors_give_the_same_bytes(tmp_path):
    one, two = save(tmp_path / "a", 1), save(tmp_path / "b", 1)
    for name in FILES:
        assert Path(one, name).read_bytes() == Path(two, name).read_bytes()


def test_the_last_few_and_the_best_are_kept(tmp_path):
    for step in range(1, 9):
        save(tmp_path, step, best=step == 2, keep=3)
    assert step_folders(tmp_path) == [2, 6, 7, 8]
    assert os.readlink(tmp_path / FOLDER / "best") == "step-00000002"
    assert os.readlink(tmp_path / FOLDER / "last") == "step-00000008"
    save(tmp_path, 9, best=True, keep=3)
    assert step_folders(tmp_path) == [7, 8, 9]
    assert load_checkpoint(str(tmp_path / FOLDER / "best"))[1]["step"] == 9


def test_links_lead_to_whole_checkpoints_and_move_with_the_folder(tmp_path):
    save(tmp_path / "run", 1, best=True, value=1.0), save(tmp_path / "run", 2, value=2.0)
    os.rename(tmp_path / "run", tmp_path / "moved")
    for name, value in (("best", 1.0), ("last", 2.0)):
        assert load_checkpoint(str(tmp_path / "moved" / FOLDER / name))[0]["fc.bias"][0] == value


def test_metrics_are_written_beside_the_checkpoint(tmp_path):
    path = save(tmp_path, 4, best=True)
    assert json.loads(Path(path, "evaluation.json").read_text()) == {"step": 4, **METRICS}
    save(tmp_path, 5)
    save_evaluation(str(tmp_path), 5, {"accuracy": 0.4}, False, 3)
    assert os.readlink(tmp_path / FOLDER / "best") == "step-00000004"
    assert json.loads((tmp_path / FOLDER / "step-00000005/evaluation.json").read_text()) == {"step": 5, "accuracy": 0.4}
    save_evaluation(str(tmp_path), 5, {"accuracy": float("nan")}, False, 3)
    assert '"accuracy": null' in (tmp_path / FOLDER / "step-00000005/evaluation.json").read_text()
    assert load_checkpoint(path)[1]["step"] == 4  # what else lies in the folder is no part of the checkpoint


def test_a_former_best_is_removed_when_another_takes_its_place(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step, best=step == 1, keep=1)
    assert step_folders(tmp_path) == [1, 3]
    save_evaluation(str(tmp_path), 3, METRICS, True, 1)
    assert step_folders(tmp_path) == [3]


def test_no_checkpoint_at_all(tmp_path):
    assert latest(str(tmp_path)) is None and latest(str(tmp_path / "nowhere")) is None
    os.makedirs(tmp_path / FOLDER)
    assert latest(str(tmp_path)) is None


def test_leftovers_are_never_taken_for_checkpoints(tmp_path):
    save(tmp_path, 3)
    for name in (".writing-00000009", ".dropping-step-00000008", "step-1", "step-00000007.part", "notes"):
        os.makedirs(tmp_path / FOLDER / name)
    assert latest(str(tmp_path)).endswith("step-00000003")
    save(tmp_path, 9, value=9.0)  # over what a kill left of the same step
    assert load_checkpoint(latest(str(tmp_path)))[0]["fc.bias"][0] == 9.0
    assert not (tmp_path / FOLDER / ".writing-00000009").exists()


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip_header(path):
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])


def flip_bit(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # of a number of the last tensor: sizes and header stay as they were
    path.write_bytes(content)


def written(text):
    return lambda path: path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    "file, damage",
    [
        (FILES[0], cut),
        (FILES[1], cut),
        (FILES[0], flip_bit),
        (FILES[1], flip_bit),
        (FILES[0], flip_header),
        (FILES[0], os.remove),
        (FILES[1], os.remove),
        ("checkpoint.json", os.remove),
        ("checkpoint.json", cut),
        ("checkpoint.json", written("")),
        ("checkpoint.json", written("{}")),
        ("checkpoint.json", written("null")),
        ("checkpoint.json", written("[]")),
        ("checkpoint.json", written('{"files": 3}')),
        ("checkpoint.json", lambda path: path.write_bytes(b"\xff\xfe")),
    ],
    ids=[
        "cut weights",
        "cut update",
        "another bit in the weights",
        "another bit in the update",
        "broken header",
        "no weights",
        "no update",
        "no json",
        "cut json",
        "empty json",
        "{}",
        "null",
        "[]",
        "no files",
        "no utf-8",
    ],
)
def test_a_damaged_checkpoint_is_refused(tmp_path, file, damage):
    path = save(tmp_path, 1)
    damage(Path(path, file))
    with pytest.raises(UserError) as caught:
        load_checkpoint(path)
    assert path in str(caught.value)
    with pytest.raises(DamagedFile) as caught:  # there is no whole one to go on from
        set_damaged_aside(str(tmp_path))
    assert path in str(caught.value) and step_folders(tmp_path) == [1]
    save(tmp_path, 2)
    assert set_damaged_aside(str(tmp_path)) == []  # the newest is whole


def test_damaged_checkpoints_are_set_aside_and_their_steps_can_be_saved_again(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step, value=step)
    for step in (2, 3):
        flip_bit(tmp_path / FOLDER / f"step-{step:08d}" / MODEL)
    lines = set_damaged_aside(str(tmp_path))
    assert step_folders(tmp_path) == [1] and latest(str(tmp_path)).endswith("step-00000001")
    for line, step in zip(lines, (3, 2), strict=True):
        assert f"step-{step:08d}/model.safetensors is damaged" in line and f"damaged-step-{step:08d}" in line
        assert (tmp_path / FOLDER / f"damaged-step-{step:08d}" / MODEL).exists()
    flip_bit(Path(save(tmp_path, 2), MODEL))
    assert set_damaged_aside(str(tmp_path))[0].endswith("damaged-step-00000002-1")
    assert load_checkpoint(save(tmp_path, 3))[1]["step"] == 3


def test_a_checkpoint_without_hashes_is_one_of_an_older_version(tmp_path):
    record = Path(save(tmp_path, 1), "checkpoint.json")
    values = json.loads(record.read_text())
    assert values.pop("sha256").keys() == set(FILES)
    record.write_text(json.dumps(values))
    assert set_damaged_aside(str(tmp_path)) == [] and load_checkpoint(str(record.parent))[1]["step"] == 1


def test_a_checkpoint_that_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    def refuse(_):
        raise PermissionError(13, "Permission denied")

    save(tmp_path, 1)
    monkeypatch.setattr(os.path, "getsize", refuse)
    with pytest.raises(UserError, match="Permission denied") as caught:
        set_damaged_aside(str(tmp_path))
    assert not isinstance(caught.value, DamagedFile) and step_folders(tmp_path) == [1]


def test_a_full_disk_leaves_the_old_checkpoints(tmp_path, monkeypatch):
    save(tmp_path, 1, best=True)

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError):
            save(tmp_path, 2, best=True)
    assert step_folders(tmp_path) == [1] and load_checkpoint(latest(str(tmp_path)))[1]["step"] == 1
    save(tmp_path, 2)
    assert load_checkpoint(latest(str(tmp_path)))[1]["step"] == 2


@pytest.mark.slow
def test_killed_at_any_moment_the_newest_checkpoint_is_whole(tmp_path):
    """Five kills of a process that does nothing but save; each one continues what the last one left."""
    rng, steps = random.Random(5), []
    for _ in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            assert process.stdout.readline() == b"ready\n", process.stderr.read().decode()
            time.sleep(rng.uniform(0.01, 0.2))
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        path = latest(str(tmp_path))
        if path is None:
            continue
        got, record = load_checkpoint(path)
        assert len(got) == 16 and all((array == record["step"]).all() for array in got.values())
        for link in ("last", "best"):
            if os.path.lexists(tmp_path / FOLDER / link):
                assert load_checkpoint(str(tmp_path / FOLDER / link))[1]["step"] <= record["step"]
        assert len(step_folders(tmp_path)) <= 2 + 1 + 1  # kept, best, and one not yet dropped
        steps.append(record["step"])
    assert steps == sorted(steps) and steps[-1] > len(steps)  # it was saving when it was killed


def _without_links(run: Path) -> None:
    """Replace links by files with the names of their targets, as archives without links do."""
    for name in ("last", "best"):
        link = run / FOLDER / name
        target = os.readlink(link)
        link.unlink()
        link.write_text(target + "\n")


def test_files_with_the_name_of_a_checkpoint_are_as_good_as_links(tmp_path):
    for step in (1, 2):
        save_checkpoint(str(tmp_path), step, tensors(step), RECORD, 1)
        save_evaluation(str(tmp_path), step, METRICS, step == 1, 1)
    _without_links(tmp_path)
    best, last = (str(tmp_path / FOLDER / name) for name in ("best", "last"))
    assert model_file(best) == path_of(str(tmp_path), 1) + "/" + MODEL and not has_averages(best)
    assert load_record(best)["step"] == 1 and load_record(last)["step"] == 2
    assert recorded_recipe.is_checkpoint(best) and recorded.read(best) == recorded.read(path_of(str(tmp_path), 1))
    save_checkpoint(str(tmp_path), 3, tensors(3), RECORD, 1)
    assert os.readlink(last) == "step-00000003"
    assert load_record(best)["step"] == 1  # kept, although it is old
    assert not os.path.exists(path_of(str(tmp_path), 2))


@pytest.mark.parametrize(
    "content", ["step-00000009", "../step-00000001", "/etc", "", "step-00000001" + " " * 80, "\xff"]
)
def test_other_files_stand_for_themselves(tmp_path, content):
    (tmp_path / "step-00000001").mkdir()
    (tmp_path / "best").write_text(content)
    assert recorded.resolve_pointer(str(tmp_path / "best")) == str(tmp_path / "best")


def test_a_run_stands_for_its_best_checkpoint_or_its_last(tmp_path):
    folder = tmp_path / "run/checkpoints"
    (folder / "step-00000001").mkdir(parents=True)
    for name in ("last", "best"):  # a link, and a file in place of one
        path = folder / name
        path.symlink_to("step-00000001") if name == "last" else path.write_text("step-00000001")
        found = recorded.resolve_pointer(str(tmp_path / "run"))
        assert os.path.realpath(found) == str(folder / "step-00000001")
    assert recorded.resolve_pointer(str(tmp_path)) == str(tmp_path)


def test_without_links_the_run_writes_such_files(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "symlink", refuse)
    for step in (1, 2):
        save_checkpoint(str(tmp_path), step, tensors(step), RECORD, 1)
        save_evaluation(str(tmp_path), step, METRICS, step == 1, 1)
    assert (tmp_path / FOLDER / "last").read_text() == "step-00000002"
    assert (tmp_path / FOLDER / "best").read_text() == "step-00000001"
    assert sorted(os.listdir(tmp_path / FOLDER)) == ["best", "last", "step-00000001", "step-00000002"]


def test_links_that_were_copied_as_folders_become_links_again(tmp_path):
    for step in (1, 2):
        save_checkpoint(str(tmp_path / "a"), step, tensors(step), RECORD, 2)
        save_evaluation(str(tmp_path / "a"), step, METRICS, step == 1, 2)
    run = tmp_path / "b"
    shutil.copytree(tmp_path / "a", run)
    assert latest(str(run)) == path_of(str(run), 2) and load_record(str(run / FOLDER / "best"))["step"] == 1
    save_checkpoint(str(run), 3, tensors(3), RECORD, 1)
    save_evaluation(str(run), 3, METRICS, True, 1)
    assert sorted(os.listdir(run / FOLDER)) == ["best", "last", "step-00000003"]
    assert os.readlink(run / FOLDER / "best") == os.readlink(run / FOLDER / "last") == "step-00000003"


@pytest.fixture
def folder(tmp_path):
    """A run with checkpoints of the steps 4, 8 and 12."""
    for step in (4, 8, 12):
        os.makedirs(checkpoint.path_of(str(tmp_path), step))
    return str(tmp_path)


def test_the_best_that_exist(folder):
    def best(evaluations, **options):
        found = checkpoint.find_best(folder, evaluations, **options)
        return found and (found.step, found.rank[0])

    assert best({2: 0.9, 4: 0.5, 8: 0.7, 12: 0.7}) == (8, 0.7)  # the first of equals
    for step, loss in ((4, 0.1), (8, 0.4), (12, 0.3)):
        save_evaluation(folder, step, {"accuracy": 0.0, "loss": loss}, False, 3)
    assert best({2: 0.9, 4: 0.5, 8: 0.7, 12: 0.7}) == (12, 0.7)  # or that with the lower loss
    assert best({4: 0.5, 8: 0.7}, before=8) == (4, 0.5)
    assert best({4: math.nan, 8: 0.1}) == (8, 0.1)
    assert best({4: math.nan}) is best({}) is None


@pytest.mark.parametrize(
    "evaluations, logged, steps",
    [
        ({4: 0.9, 8: 0.7}, [("eval", 4), ("eval", 8)], [4]),  # a kill has prevented the event `best`
        ({4: 0.5, 8: 0.7}, [("eval", 4), ("best", 4)], [4]),  # the evaluation is repeated and adds the event itself
        ({4: 0.5, 8: 0.7}, [("eval", 4), ("best", 4), ("eval", 8)], [4, 8]),
    ],
)
def test_a_resume_links_the_best_and_adds_its_event(folder, evaluations, logged, steps):
    with Journal(folder, []) as journal:
        for name, step in logged:
            journal.add(name, step=step, **({"accuracy": evaluations[step]} if name == "eval" else {}))
        resume.restore_links(folder, journal, evaluations, 8)
        assert [event["step"] for event in journal.events if event["event"] == "best"] == steps
    best = max(evaluations, key=evaluations.get)
    assert os.readlink(f"{folder}/checkpoints/best") == f"step-{best:08d}"
