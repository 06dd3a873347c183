"""The command `zoo` within the process of a test."""

from zoo import cli


def call_zoo(*words: object) -> int:
    """Run `zoo WORDS` and return its exit code; errors for the user are on stderr, as in a shell."""
    return cli.main(list(map(str, words)))
