"""The diagnosis as text of 100 columns, and as JSON."""

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from zoo.data.errors import UserError
from zoo.doctor.finding import Finding

WIDTH = 100  # columns
TOPIC, STATE = 17, 5  # columns


class Printer:
    """Prints findings as they come, below a heading for each section."""

    def __init__(self) -> None:
        self._section: str | None = None

    def show(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            if finding.section != self._section:
                self._section = finding.section
                print(finding.section)
            print(line(finding), flush=True)


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


def write(path: str, findings: Sequence[Finding], conclusion: dict[str, Any]) -> None:
    """Write the findings and the conclusion to a new JSON file.

    Raises:
        UserError: the file exists or cannot be written.
    """
    try:
        with open(path, "x", encoding="utf-8") as file:
            json.dump({**conclusion, "findings": [finding._asdict() for finding in findings]}, file, indent=2)
            file.write("\n")
    except OSError as error:
        raise UserError(f"--json {path}: {error.strerror}; name another file") from None
