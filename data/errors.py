"""The two errors that are caused by the user's input rather than by this code, and what their messages say of names."""

import difflib
from collections.abc import Sequence


def known_names(name: str, names: Sequence[str]) -> str:
    """Return the end of a message on an unknown name: the names that there are, and the most similar of them."""
    similar = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {similar[0]}?" if similar else ""
    return f"; there are: {', '.join(names)}{hint}"


class UserError(Exception):
    """An error that the user can fix.

    The message names the file, key or sample and the remedy. Programs print it without a traceback and exit with 2.
    """


class BadSample(Exception):
    """One sample cannot be read: it is corrupt, truncated, too short or of a wrong size.

    The stream catches it: training takes another sample instead, an evaluation stops or counts the sample as wrong.
    """
