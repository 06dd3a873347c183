"""The errors that are caused by the user's input rather than by this code, what they say of names, and `parsing`.

Libraries raise almost anything for damaged files, also MemoryError and RecursionError. `parsing` encloses a parser and
nothing else, so that mistakes of this code elsewhere stay tracebacks.
"""

import difflib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, NamedTuple

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # but for tab and line feed: terminals obey them
MAX_REASON = 160  # characters
NATURAL = re.compile("[0-9]{1,9}")
PLACE = re.compile(r"^(\[[\d:]+\] \S+?:\d+: )+")  # time stamps and source locations in front of decord's messages
MAX_ENTRIES = 10_000  # of a folder that are compared with a name


def known_names(name: str, names: Sequence[str]) -> str:
    """Return the end of a message on an unknown name: the names that there are, and the most similar of them."""
    return f"; there are: {', '.join(names)}{similar_name(name, names)}"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of some names, whatever the case; None if none is."""
    folded = {other.casefold(): other for other in names}
    similar = difflib.get_close_matches(name.casefold(), folded, 1)
    return folded[similar[0]] if similar else None


def similar_name(name: str, names: Iterable[str], folder: str = "") -> str:
    """Return a question for the most similar of some names of a folder; "" if none is."""
    similar = nearest(name, names)
    return f"; did you mean {os.path.join(folder, similar)}?" if similar is not None else ""


def similar_path(path: str) -> str:
    """Return a question for the path beside one that does not exist which is most like it, "" if none is.

    Where the folder of the path does not exist either, it is a folder.
    """
    folder, name = os.path.split(path)
    while folder and not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    with suppress(OSError), os.scandir(folder or ".") as entries:
        return similar_name(name, [entry.name for entry in islice(entries, MAX_ENTRIES)], folder)
    return ""


def printable(text: str) -> str:
    """Return a text whose names may hold any bytes, without control characters and in valid Unicode."""
    escaped = CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
    return escaped.encode(errors="backslashreplace").decode()


class Option(NamedTuple):
    """An option that a message names; who shows the message words it.

    Attributes:
        name: `--out`, an option of `zoo train`, or a key of the recipe.
        value: that the message proposes; "" for none, True of an option that takes none.
    """

    name: str
    value: Any = ""

    def __str__(self) -> str:
        """Return the words of a command line: -o data.train=FILE, --out DIR."""
        value = self.value if isinstance(self.value, str) else json.dumps(self.value).replace('"', "")
        if self.name.startswith("--"):
            return self.name if self.value == "" or self.value is True else f"{self.name} {value}"
        return "-o " + (self.name if self.value == "" else shlex.quote(f"{self.name}={value}"))


Part = str | Option | Exception  # of a message


class UserError(Exception):
    """An error that the user can fix.

    Its arguments are the parts of the message, which names the file, key or sample and the remedy: texts, options, and
    errors that it quotes. Programs print it without a traceback.

    Attributes:
        words: returns an option as those who read the message write it.
    """

    exit_code = 2
    words: Callable[[Option], str] = str

    def __init__(self, *parts: Part):
        super().__init__(*parts)

    def __str__(self) -> str:
        return "".join(self._said(self.words))

    def _said(self, words: Callable[[Option], str]) -> Iterator[str]:
        for part in self.args:
            if isinstance(part, UserError):
                yield from part._said(words)
            else:
                yield words(part) if isinstance(part, Option) else str(part)


class Finding(UserError):
    """An answer that is no: something that a program was asked to check does not hold."""

    exit_code = 1


class UnreadableData(UserError):
    """Samples that cannot be read end the run.

    Attributes:
        unreadable: why, by the name of the sample; at least those that the run has not named before.
    """

    def __init__(self, *parts: Part, unreadable: Mapping[str, str] | None = None):
        super().__init__(*parts)
        self.unreadable = dict(unreadable or {})  # pickling restores it without this argument


class BadSample(Exception):
    """One sample cannot be read: it is corrupt, truncated, too short or of a wrong size.

    The stream catches it: training takes another sample instead, an evaluation stops or counts the sample as wrong.
    """


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
    return line[:MAX_REASON]


def natural(text: str) -> int | None:
    """Return the whole number of up to nine digits that an argument or a variable is; None if it is none."""
    return int(text) if NATURAL.fullmatch(text) else None
