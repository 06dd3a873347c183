"""One line of the diagnosis, and its text of 100 columns."""

import textwrap
from collections.abc import Iterable
from typing import NamedTuple

OK, ABSENT, WARNING, FAILURE = "ok", "-", "warn", "FAIL"  # states, as they are printed
WIDTH = 100  # columns
TOPIC, STATE = 17, 5  # columns


class Finding(NamedTuple):
    """What was found out about one part of the machine.

    Attributes:
        section: heading that it stands below.
        topic: part of the machine.
        state: OK; ABSENT, not here and not missed; WARNING, something will be slow or will not work; FAILURE, training
            cannot start here, or not on this device.
        text: what was found, or what is wrong.
        remedy: what to do about it; empty where nothing is to be done.
    """

    section: str
    topic: str
    state: str
    text: str
    remedy: str = ""


def has_failure(findings: Iterable[Finding]) -> bool:
    """Return whether one of them is a FAILURE."""
    return any(finding.state == FAILURE for finding in findings)


def gigabytes(size: float) -> str:
    """Return a number of bytes in words: 64 MB, 1.5 GB, 252 GB."""
    if size < 1e9:
        return f"{size / 1e6:.0f} MB"
    return f"{size / 1e9:.1f} GB" if size < 1e10 else f"{size / 1e9:.0f} GB"


def line(finding: Finding) -> str:
    """Return a finding as a line; where it is longer than WIDTH, it goes on in the column of the text."""
    text = finding.text + (f"; {finding.remedy}" if finding.remedy else "")
    head = f"  {finding.topic:<{TOPIC}} {finding.state:<{STATE}}"
    return textwrap.fill(
        " ".join(text.split()),
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
