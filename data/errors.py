"""The two errors that are caused by the user's input rather than by this code."""


class UserError(Exception):
    """An error that the user can fix.

    The message names the file, key or sample and the remedy. Programs print it without a traceback and exit with 2.
    """


class BadSample(Exception):
    """One sample cannot be read: it is corrupt, truncated, too short or of a wrong size.

    The stream catches it: training takes another sample instead, an evaluation stops or counts the sample as wrong.
    """
