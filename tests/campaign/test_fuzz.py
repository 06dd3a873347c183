"""The campaign against readers of files: mutated inputs and hand-made attacks for every reader."""

import contextlib
import os
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.campaign import fuzz
from tests.campaign.fuzzing.attacks import PARTS, Attack
from tests.campaign.fuzzing.readers import READERS, Reader
from tests.campaign.fuzzing.worker import EXPANSION, FREE_MEMORY, MIB, Memory
from zoo.data.errors import BadSample, UserError

COUNT = 500  # inputs per reader in this test
LIMIT = 5.0  # seconds of CPU time of a hand-made attack
NEED_OTHERS = ("Paddle variables", "checkpoints", "prepared packs")  # whose other files are valid
READ_ON = ("events.jsonl",)  # whose reports leave out what is no event


def _hang() -> None:
    end = time.process_time() + 30
    while time.process_time() < end:
        pass


FAULTS = {  # what a reader does with a mutated file -> part of the failure
    "names no file": (lambda: _refuse("refused"), "message without a file: refused"),
    "traceback": (lambda: [][0], "traceback: Traceback"),
    "shell": (lambda: os.system("true"), "code: os.system"),
    "memory": (lambda: len(bytearray(b"x") * (300 << 20)), "memory: 300 MiB for"),
    "crash": (os.abort, "crash: exit code -6"),
    "hang": (_hang, "slow: "),
}


def _refuse(text: str) -> None:
    raise UserError(text)


def _faulty(kind: str) -> Reader:
    def read(folder: Path) -> None:
        if (folder / "a.txt").read_bytes() != b"a valid file":
            FAULTS[kind][0]()

    return Reader(lambda: [{"a.txt": b"a valid file"}], read)


FAULTY = {kind: _faulty(kind) for kind in FAULTS}


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
    monkeypatch.setattr(fuzz, "LIMIT", 2.0)  # many times what the fault that takes memory needs
    trials = fuzz.attack(list(FAULTS), 0, tmp_path, 2, readers="tests.campaign.test_fuzz:FAULTY", warm_up=0)
    for trial in trials:
        assert any(FAULTS[trial.kind][1] in failure for failure in trial.failures), trial


@pytest.mark.parametrize("kind", [kind for kind in READERS if kind not in (".pth", "videos")])
def test_seeds_are_read(kind, tmp_path):
    """Each in its own way: a format that all readers refused would test nothing."""
    for number, files in enumerate(READERS[kind].seeds()):
        put(tmp_path / str(number), files)
        READERS[kind].read(tmp_path / str(number))


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS, ids=[part.__name__ for part in PARTS])
def test_attacks_are_refused(part, tmp_path):
    found = {name: harm(attack, tmp_path / str(number)) for number, (name, attack) in enumerate(part())}
    assert len(found) > 5 and {name: problems for name, problems in found.items() if problems} == {}


def harm(attack: Attack, folder: Path) -> list[str]:
    """Carry out an attack, and return what is wrong with how it ends."""
    valid = READERS[attack.kind].seeds()[0] if attack.kind in NEED_OTHERS else {}
    size = put(folder, {**valid, **attack.files})
    memory, error = Memory(), None
    memory.start()
    began = time.process_time()
    with contextlib.redirect_stdout(None):
        try:
            READERS[attack.kind].read(folder)
        except (UserError, BadSample) as refusal:
            error = str(refusal)
    seconds, peak = time.process_time() - began, memory.stop()
    problems = [f"{seconds:.1f} s"] if seconds > LIMIT else []
    if peak > max(FREE_MEMORY, EXPANSION * size):
        problems.append(f"{peak / MIB:.0f} MiB for {size} bytes")
    if attack.kind not in READ_ON and (error is None or not re.search(attack.message, error)):
        problems.append(f"message: {error}")
    return problems


def put(folder: Path, files: Mapping[str, bytes | str | None]) -> int:
    """Write files (None: a pipe, text: a link), and return their bytes."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            os.mkfifo(path)
        elif isinstance(content, str):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
    return sum(len(content) for content in files.values() if isinstance(content, bytes))
