"""The campaign against readers of files: its short part for every reader, and that it notices what it should."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.campaign import fuzz
from tests.campaign.fuzzing import worker
from tests.campaign.fuzzing.readers import READERS

COUNT = 5000  # inputs per reader in this test
FAULTS = {  # reader of tests/campaign/fuzzing/faulty.py -> beginning of the failure
    "refuses": None,
    "names no file": "message without a file: refused",
    "need not name it": None,
    "traceback": "traceback: Traceback",
    "exit": "traceback: Traceback",
    "shell": "code: os.system",
    "writes": "code: open ('/tmp/vision-zoo-fuzz'",
    "canary": "code: the canary was executed",
    "eval": "code: compile",
    "memory": "memory: 300 MiB for",
    "crash": "crash: exit code -6",
    "hang": "slow: ",
}


@pytest.mark.slow
def test_no_mutated_file_does_harm(tmp_path):
    halves = fuzz.KINDS[::2], fuzz.KINDS[1::2]
    folders = [tmp_path / str(number) for number in range(2)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(2) as pool:  # of threads that wait for a process each
        found = pool.map(lambda kinds, folder: fuzz.attack(kinds, 0, folder, COUNT), halves, folders)
    trials = [trial for half in found for trial in half]
    assert [failure for trial in trials for failure in trial.failures] == []
    assert {trial.kind for trial in trials} == set(READERS)
    assert all(trial.figures["seconds"] > 0 for trial in trials)


@pytest.mark.slow
def test_harm_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz, "LIMIT", 0.5)
    trials = fuzz.attack(list(FAULTS), 0, tmp_path, 2, module="tests.campaign.fuzzing.faulty", warm_up=0)
    for trial in trials:
        beginning = FAULTS[trial.kind]
        if beginning is None:
            assert trial.failures == []
        else:
            assert len(trial.failures) >= 1
            for failure in trial.failures:
                assert failure.startswith(f"{trial.kind}: input "), failure
            assert any(beginning in failure for failure in trial.failures), trial.failures


def test_an_input_follows_from_its_number():
    valid = READERS["lists"].seeds()
    inputs = [worker.make(valid, "lists", 3, number) for number in range(50)]
    assert inputs == [worker.make(valid, "lists", 3, number) for number in range(50)]
    assert sum(files not in valid for files in inputs) > 40
    assert worker.make(valid, "lists", 4, 0) != inputs[0]


@pytest.mark.parametrize("kind", [kind for kind in READERS if kind not in (".pth", "videos")])
def test_seeds_are_read(kind, tmp_path):
    """Each in its own way: a format that all readers refused would test nothing."""
    for number, files in enumerate(READERS[kind].seeds()):
        for name, content in files.items():
            path = tmp_path / str(number) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        READERS[kind].read(tmp_path / str(number))
