"""The hand-made attacks: each is refused with a message, within seconds and its budget of memory."""

import contextlib
import os
import re
import time
from pathlib import Path

import pytest

from tests.campaign.fuzzing.attacks import PARTS, Attack
from tests.campaign.fuzzing.readers import READERS
from tests.campaign.fuzzing.watch import MIB, Memory
from tests.campaign.fuzzing.worker import EXPANSION, FREE_MEMORY
from zoo.data.errors import BadSample, UserError

LIMIT = 5.0  # seconds of CPU time
NEED_OTHERS = ("Paddle variables", "checkpoints", "prepared packs")  # whose other files are valid
READ_ON = ("events.jsonl",)  # whose reports leave out what is no event


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS, ids=[part.__name__ for part in PARTS])
def test_attacks_are_refused(part, tmp_path):
    found = {name: harm(attack, tmp_path / str(number)) for number, (name, attack) in enumerate(part())}
    assert len(found) > 10 and {name: problems for name, problems in found.items() if problems} == {}


def harm(attack: Attack, folder: Path) -> list[str]:
    """Carry out an attack, and return what is wrong with how it ends."""
    size = put(folder, attack)
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


def put(folder: Path, attack: Attack) -> int:
    """Write the files of an attack, and return their bytes."""
    files = {**(READERS[attack.kind].seeds()[0] if attack.kind in NEED_OTHERS else {}), **attack.files}
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
