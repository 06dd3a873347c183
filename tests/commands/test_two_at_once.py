"""The same command several times at once, with its default folder: each gets one of its own, or is refused."""

import threading

import pytest

from zoo.commands import finetune, launch, predict
from zoo.data.errors import UserError
from zoo.predict import output
from zoo.run import folder
from zoo.run.folder import FolderLock

COUNT = 8


def train(out=None):
    return folder.open_folder(None, out, "tsm", "seed: 1\n", FolderLock())


CHOICES = {
    "train": train,
    "finetune": lambda: finetune.write_recipe("seed: 1\n", None, "runs/photos")[1],
    "predict": lambda: predict.make_folder(None, "runs/tsm/checkpoints/best"),
    "compare": lambda: folder.new_results(None, "compare", "configs/tsm_demo.yaml"),
    "launch": lambda: launch._new_logs(launch.Path("logs"), False),
}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def at_once(call):
    """Call a function in several threads at once; return the results and the errors."""
    start, results, errors = threading.Barrier(COUNT), [], []

    def work():
        start.wait()
        try:
            results.append(call())
        except UserError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(COUNT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, errors


@pytest.mark.parametrize("command", CHOICES)
def test_each_gets_a_folder_of_its_own(command):
    for _ in range(5):
        results, errors = at_once(CHOICES[command])
        assert len(set(results)) == COUNT and not errors


def test_one_run_gets_the_folder_that_all_ask_for():
    results, errors = at_once(lambda: train("out"))
    assert results == ["out"] and len(errors) == COUNT - 1
    assert all("is being written by" in error or "holds a run already" in error for error in errors)


def test_predictions_have_one_writer(tmp_path):
    rows, file = output.begin("out", {"model": "tsm"}, ["a"])
    with file, pytest.raises(UserError, match="--out: out is being written by another process; choose another folder"):
        output.begin("out", {"model": "tsm"}, ["a"])
    rows, file = output.begin("out", {"model": "tsm"}, ["a"])  # goes on
    file.close()
    assert rows == []


def test_studies_have_one_writer():
    with folder.exclusive("runs/sweep-tsm"), pytest.raises(UserError, match=r"runs/sweep-tsm is being written by pro"):
        folder.exclusive("runs/sweep-tsm").__enter__()
    with folder.exclusive("runs/sweep-tsm"):
        pass
