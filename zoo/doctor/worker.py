"""The child process of a probe: python -m zoo.doctor.worker PROBE ARGUMENT ...

What a probe finds out is printed at once, so that it is known even if the process crashes afterwards.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

Tell = Callable[..., None]  # facts by name
MARK = "diagnosis: "  # of a line with facts, among what libraries print
STAGE, ERROR, DONE = "stage", "error", "done"  # names of facts: what is done next, why it failed, whether it ended
MAX_ERROR = 400  # characters
PROBES = {  # name -> module with probe(tell, *arguments)
    "driver": "zoo.doctor.driver_probe",
    "device": "zoo.doctor.device_probe",
    "update": "zoo.doctor.update_probe",
    "libraries": "zoo.doctor.cuda_libraries",
    "module": "zoo.doctor.modules",
}


def tell(**facts: Any) -> None:
    """Print facts for the parent process; a library may have left a line unfinished."""
    print("\n" + MARK + json.dumps(facts), flush=True)


def first_line(error: BaseException) -> str:
    """Return the message of an error in one line; its type too where the message alone says little."""
    from zoo.data.errors import UserError

    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else "no message"
    known = isinstance(error, UserError | OSError | ImportError)
    return (text if known and lines else f"{type(error).__name__}: {text}")[:MAX_ERROR]


def main(probe: str, *arguments: str) -> None:
    """Run a probe and end the process at once: not every framework ends well where nothing was computed."""
    try:
        importlib.import_module(PROBES[probe]).probe(tell, *arguments)
        tell(done=True)
    except BaseException as error:  # a library may raise anything, SystemExit included
        tell(error=first_line(error))
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
