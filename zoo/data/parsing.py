"""The guard around parsers: whatever a file makes them raise becomes the clear error of that file.

Libraries raise almost anything for damaged files, also MemoryError and RecursionError. The guard encloses a parser and
nothing else, so that mistakes of this code elsewhere stay tracebacks.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from zoo.data.errors import BadSample, Part, UserError

MAX_LENGTH = 160  # characters of a reason
NATURAL = re.compile("[0-9]{1,9}")
PLACE = re.compile(r"^(\[[\d:]+\] \S+?:\d+: )+")  # time stamps and source locations in front of decord's messages


@contextmanager
def parsing(problem: str, *remedy: Part, kind: type[UserError] | type[BadSample] = UserError) -> Iterator[None]:
    """Turn every exception of the block into an error of the file, but KeyboardInterrupt, SystemExit and the like.

    Args:
        problem: the message up to the reason, with the name of the file where the error is a UserError.
        kind: UserError or BadSample. Errors of this kind, and UserErrors, which name their file, pass as they are.
    """
    try:
        yield
    except (kind, UserError):
        raise
    except Exception as error:
        raise kind(f"{problem} ({reason(error)})", *(("; ", *remedy) if remedy else ())) from None


def reason(error: BaseException) -> str:
    """Return the first line of what an exception says, with its type where this may say too little."""
    text = str(getattr(error, "strerror", None) or error).strip()
    line = PLACE.sub("", (text.splitlines() or [""])[0]).strip()
    if not isinstance(error, OSError | ValueError | BadSample | UserError) or not line:
        line = f"{type(error).__name__}: {line}".removesuffix(": ")
    return line[:MAX_LENGTH]


def natural(text: str) -> int | None:
    """Return the whole number of up to nine digits that an argument or a variable is; None if it is none."""
    return int(text) if NATURAL.fullmatch(text) else None
