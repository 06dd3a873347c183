"""Sections that code/README.md of a submission must have."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from tools.submission.rules import SECTIONS

HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
FENCE = re.compile(r"\s*(```|~~~)")
COMMANDS = "Training commands"


class Heading(NamedTuple):
    """A heading of a page: its level from 1, its text, and the text below it up to the next of its level or above."""

    level: int
    title: str
    body: str


def headings(text: str) -> list[Heading]:
    """Return the headings of a Markdown page; lines of code have none."""
    lines = text.splitlines()
    found, is_code = [], False
    for number, line in enumerate(lines):
        if FENCE.match(line):
            is_code = not is_code
        match = HEADING.match(line)
        if match and not is_code:
            found.append((number, len(match[1]), match[2].strip()))
    pages = []
    for index, (number, level, title) in enumerate(found):
        end = next((later for later, other, _ in found[index + 1 :] if other <= level), len(lines))
        pages.append(Heading(level, title, "\n".join(lines[number + 1 : end])))
    return pages


def problems(text: str, scales: Sequence[int]) -> list[str]:
    """List the sections that a page lacks.

    Args:
        text: of the page.
        scales: numbers of cards of the logs beside it, for each of which it must give a command.
    """
    pages, lines = headings(text), []
    for section in SECTIONS:
        bodies = [page.body for page in pages if re.search(section.pattern, page.title, re.IGNORECASE)]
        if not bodies:
            lines.append(f"no section `{section.title}`")
        elif not any(re.search(r"^(?!#)[^\S\n]*\S", body, re.MULTILINE) for body in bodies):
            lines.append(f"the section `{section.title}` is empty")
        elif section.title == COMMANDS:
            lines += _commands("\n".join(bodies), scales)
    return lines


def _commands(body: str, scales: Sequence[int]) -> list[str]:
    """List the scales for which no command is given."""
    absent = [
        cards
        for cards in sorted(set(scales))
        if not re.search(rf"(?<![\dx]){cards}[ -]*(cards?|gpus?|卡)|gpux?{cards}(?!\d)", body, re.IGNORECASE)
        and not (cards == 1 and re.search(r"单卡|single", body, re.IGNORECASE))
    ]
    return [f"the section `{COMMANDS}` has none for {cards} card(s)" for cards in absent]
