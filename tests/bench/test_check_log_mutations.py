"""tools/check_log.py on damaged logs: whatever a file holds, it is read to its end and reported on."""

import random
import re
import time
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.bench.airank_log.grammar import parse
from zoo.bench.airank_log.rules import deviations
from zoo.bench.airank_log.values import measure
from zoo.bench.commands.check_log import render

LOGS = [
    path.read_text(encoding="utf-8", errors="replace").splitlines()[:300]
    for path in sorted((Path(__file__).resolve().parents[1] / "airank").glob("*.log"))
]
FRAGMENTS = (
    *("1e99999999999999999999", "1e-99999999999999999999", "1e400", "9" * 400, "-1", "0", "0.00", "nan", "inf"),
    *(".", "-", ":", "\N{FULLWIDTH COLON}", "\0", "sec", ", total_epoch_cnt: 0", "global_step:3", "total_epoch_cnt:1"),
    *(
        "AI-Rank-log",
        "AI-Rank-log 1616416549.0 ",
        "test_begin",
        "test_finish",
        "eval_accuracy:0.5",
        "avg_ips:0images/sec",
    ),
)
NUMBER = re.compile(r"\d+(\.\d+)?")
OPTIONS = [(None, None, 0), (Decimal("0.711"), 234619, 0), (Decimal(78), 2975, 1), (Decimal("0.001"), 1, 5)]


def replace_number(rng, line):
    numbers = list(NUMBER.finditer(line))
    if not numbers:
        return rng.choice(FRAGMENTS)
    found = rng.choice(numbers)
    return line[: found.start()] + rng.choice(FRAGMENTS) + line[found.end() :]


def insert(rng, line):
    at = rng.randrange(len(line) + 1)
    return line[:at] + rng.choice(FRAGMENTS) + line[at:]


def truncate(rng, line):
    return line[: rng.randrange(len(line) + 1)]


def damage(seed):
    """Return a published log with one to six faults: lines lost, added, swapped or changed."""
    rng = random.Random(seed)
    lines = list(rng.choice(LOGS))
    for _ in range(rng.randint(1, 6)):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        kind = rng.randrange(6)
        if kind == 0 and len(lines) > 1:
            del lines[at]
        elif kind == 1:
            lines.insert(at, rng.choice(rng.choice(LOGS)))
        elif kind == 2:
            lines[at], lines[other] = lines[other], lines[at]
        else:
            lines[at] = (replace_number, insert, truncate)[kind - 3](rng, lines[at])
    return lines


def report(lines):
    log = parse(lines)
    for options in OPTIONS:
        values = {"file": "x.log", **measure(log, *options), "deviations": deviations(log, *options)}
        assert render(values).startswith("x.log\n")


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 8))])
def test_damaged_logs_are_reported_on(block):
    for seed in range(block * 500, (block + 1) * 500):
        try:
            report(damage(seed))
        except Exception as error:
            error.add_note(f"log of damage({seed})")
            raise


@pytest.mark.parametrize(
    "line",
    [
        "AI-Rank-log 1616416549.0 eval_accuracy:1e99999999999999999999, total_epoch_cnt:3",
        "AI-Rank-log 1616416549.0 eval_accuracy:0.5, total_epoch_cnt:" + "9" * 4000,
        "AI-Rank-log 1616416549." + "9" * 4000 + " test_begin",
        "AI-Rank-log 1616416549.0 target_quality_time:1e999999sec",
        "AI-Rank-log " * 2000,
        "eval_accuracy:" * 2000,
    ],
)
def test_extreme_lines(line):
    report([line])
    for log in LOGS:
        report([*log[:100], line])


def test_a_log_of_many_evaluations_takes_seconds():
    """The time grows with the number of lines, not with its square: that would be minutes."""
    line = "AI-Rank-log 1616416549.{:06d} eval_accuracy:0.{:06d}, total_epoch_cnt:{}"
    start = time.process_time()
    report(["AI-Rank-log 1616416548.0 test_begin", *(line.format(i, i, i) for i in range(1, 20_001))])
    assert time.process_time() - start < 20


# Lines of the logs, with any text or a damaged number in them, spliced in any order.
LINES = st.sampled_from(sorted({line for log in LOGS for line in log}))
NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(str),
    st.integers(-(10**30), 10**30).map(str),
    st.from_regex(r"[-+]?[0-9]{0,20}\.?[0-9]{0,20}([eE][-+]?[0-9]{1,25})?", fullmatch=True),
)


@st.composite
def damaged_lines(draw):
    line = draw(LINES)
    numbers = list(NUMBER.finditer(line))
    if numbers and draw(st.booleans()):
        found = draw(st.sampled_from(numbers))
        line = line[: found.start()] + draw(NUMBERS) + line[found.end() :]
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(line)))
        line = line[:at] + draw(st.text(max_size=20)) + line[at:]
    return line


@settings(max_examples=200, deadline=None)
@given(st.lists(damaged_lines(), max_size=30))
def test_spliced_lines_are_reported_on(lines):
    report(lines)
