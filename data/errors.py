"""The two errors that are about the user's input and not about our code."""


class UserError(Exception):
    """Something the user can mend: the message names file/key/sample and the remedy. Exit code 2, no traceback."""


class BadSample(Exception):
    """One sample cannot be read (corrupt, truncated, too short ...). The stream decides what becomes of it."""
