"""Sections that code/README.md of a submission must have."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from zoo.bench.submission.rules import SECTIONS

HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
TITLE = re.compile(
    r" {0,3}[^\s#>|*+`~-].*"
)  # a line of text, a heading if UNDERLINE is below it and a blank line above
UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*")
FENCE = re.compile(r"\s*(```|~~~)")
COMMANDS = "Training commands"
CONTENT = re.compile(r"^(?!#|\W*(todo|tbd|tba|xxx+)?\W*$).", re.IGNORECASE)
COMMAND = re.compile(
    r"`|~~~|^( {4}|\t)\s*\S|python|docker|mpirun|srun|\b(ba)?sh\b|\.(sh|py)\b", re.IGNORECASE | re.MULTILINE
)
# 8 cards, 8-GPU, 8 V100 GPUs, 8 x V100, 8卡, GPUx8
CARDS = (
    r"(?<![\dx]){0}[ -]*((([a-z]\w{{0,30}}[ -]{{1,3}}){{0,2}}(cards?|gpus?))|卡)"
    r"|(?<![\dx]){0} ?[x×*] ?[a-z]|gpux?{0}(?!\d)"
)


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
        heading = None if is_code else _heading(lines, number)
        if heading:
            found.append((number, *heading))
    pages = []
    for index, (number, level, title, length) in enumerate(found):
        end = next((later for later, other, *_ in found[index + 1 :] if other <= level), len(lines))
        pages.append(Heading(level, title, "\n".join(lines[number + length : end])))
    return pages


def _heading(lines: Sequence[str], number: int) -> tuple[int, str, int] | None:
    """Return level, text and number of lines of the heading that begins with a line, None if none does."""
    line, below = lines[number], lines[number + 1] if number + 1 < len(lines) else ""
    match, underline = HEADING.match(line), UNDERLINE.fullmatch(below)
    if match:
        return len(match[1]), match[2].strip(), 1
    if underline and TITLE.fullmatch(line) and not (number and lines[number - 1].strip()):
        return 1 if underline[1][0] == "=" else 2, line.strip(), 2
    return None


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
        elif not any(CONTENT.match(line) for body in bodies for line in body.splitlines()):
            lines.append(f"the section `{section.title}` is empty")
        elif section.title == COMMANDS:
            lines += _commands("\n".join(bodies), scales)
            lines += [] if any(map(COMMAND.search, bodies)) else [f"the section `{COMMANDS}` has no command"]
    return lines


def _commands(body: str, scales: Sequence[int]) -> list[str]:
    """List the scales for which no command is given."""
    absent = [
        cards
        for cards in sorted(set(scales))
        if not re.search(CARDS.format(cards), body, re.IGNORECASE)
        and not (cards == 1 and re.search(r"单卡|single", body, re.IGNORECASE))
    ]
    return [f"the section `{COMMANDS}` has none for {cards} card(s)" for cards in absent]
