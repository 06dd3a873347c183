"""The hand-made attacks: each is refused with a message, within seconds and its budget of memory."""

import contextlib
import os
import re
import time
from pathlib import Path

import pytest

from data.errors import BadSample, UserError
from tests.campaign.fuzzing.attacks import Attack, attacks
from tests.campaign.fuzzing.readers import READERS
from tests.campaign.fuzzing.watch import MIB, Memory
from tests.campaign.fuzzing.worker import EXPANSION, FREE_MEMORY

ATTACKS = dict(attacks())
LIMIT = 5.0  # seconds of CPU time
NEED_OTHERS = ("Paddle variables", "checkpoints", "prepared packs")  # whose other files are valid
READ_ON = ("events.jsonl",)  # whose reports leave out what is no event


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


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused(name, tmp_path):
    attack = ATTACKS[name]
    size = put(tmp_path, attack)
    memory = Memory()
    memory.start()
    began = time.process_time()
    error = None
    with contextlib.redirect_stdout(None):
        try:
            READERS[attack.kind].read(tmp_path)
        except (UserError, BadSample) as refusal:
            error = str(refusal)
    assert time.process_time() - began < LIMIT
    peak = memory.stop()
    assert peak <= max(FREE_MEMORY, EXPANSION * size), f"{peak / MIB:.0f} MiB"
    if attack.kind not in READ_ON:
        assert error is not None and re.search(attack.message, error)
