"""Check of the closed form against published tables: rows of 16 and 32 cards that nothing was fitted to."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from zoo.bench.scale import collectives, dlperf, published
from zoo.bench.scale.calibration import Messages
from zoo.bench.scale.model import growth
from zoo.bench.scale.published import Table

HOST = 8  # cards per host in all tables
LARGEST = 32  # cards
ANCHOR = {"parameters": 27, "max": 0.153, "mean": 0.054}  # a model of more parameters on the same rows
FORMS: dict[str, Callable[[int], float]] = {
    "bytes that a host sends, 2(h-1)/h": collectives.share_sent,
    "rounds of messages, log2(h)": math.log2,
    "all hosts in a ring, h-1": lambda hosts: float(hosts - 1),
    "once, as soon as there are two hosts": lambda hosts: float(hosts > 1),
}


class Row(NamedTuple):
    """A held-out row. error: of the predicted samples per second, relative to the published ones."""

    name: str
    cards: int
    published: float
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.published - 1


class Errors(NamedTuple):
    """Absolute relative errors."""

    rows: int
    largest: float
    mean: float
    median: float
    percentile_68: float


def validate() -> dict[str, Any]:
    """Make all predictions.

    Returns:
        held_out: rows of 32 cards from those of up to 16; one_host: rows of 16 and 32 from those of up to 8;
        forms: errors of each form of growth on 32 cards of the independent tables, from 8 and 16; within: of 8 cards
        there, from 1 and 4; left_out: of 16 and 32 cards there from one host, with the constant of all other READMEs;
        seconds_per_mb: the shared constant; parameters: how many numbers were fitted for held_out; own_constants: what
        the constant would be in each report.
    """
    tables, independent = published.REPORTS, dlperf.TABLES
    constant = seconds_per_mb(independent)
    return {
        "seconds_per_mb": constant,
        "parameters": sum(map(count_parameters, tables)) + 1,
        "held_out": [predict_largest(table, constant) for table in tables],
        "one_host": [row for table in tables for row in predict_from_host(table, constant)],
        "forms": {name: errors(_with_form(table, form) for table in independent) for name, form in FORMS.items()},
        "within": errors(_row(table, HOST, continue_ring(table)) for table in independent if 4 in table.rows),
        "left_out": {
            cards: errors(row for row in _left_out(independent) if row.cards == cards) for cards in (16, LARGEST)
        },
        "own_constants": {table.name: _per_mb(table) for table in tables if 16 in table.rows},
    }


def seconds_per_mb(tables: Sequence[Table]) -> float:
    """Return the median over tables of what the second host adds to an update, per megabyte of gradients."""
    return float(np.median([_per_mb(table) for table in tables]))


def predict_largest(table: Table, constant: float) -> Row:
    """Predict the row of 32 cards from those of up to 16.

    T(h) = T(1) + (T(2) - T(1)) growth(h) / growth(2). Without a row of two hosts, T(2) - T(1) is the bytes of the
    gradients times a constant that all workloads share.
    """
    hosts = LARGEST // HOST
    if 2 * HOST not in table.rows:
        return predict_from_host(table, constant)[-1]
    base = one_host(table)
    between = (table.seconds(2 * HOST) - base) * _growth(table, hosts) / _growth(table, 2)
    return _row(table, LARGEST, base + between)


def predict_from_host(table: Table, constant: float) -> list[Row]:
    """Predict the published rows of several hosts from those of one host.

    Args:
        table: of one workload.
        constant: seconds per megabyte that the second host adds.
    """
    base, rows = one_host(table), []
    for hosts in (cards // HOST for cards in table.rows if cards > HOST):
        seconds = base + constant * table.megabytes * collectives.share_sent(hosts)
        if table.synchronized:  # rounds between hosts take as long as those within a host at least
            seconds += (base - table.seconds(1)) / math.log2(HOST) * math.log2(hosts)
        rows.append(_row(table, hosts * HOST, seconds))
    return rows


def one_host(table: Table) -> float:
    """Return the seconds of an update on one host of 8 cards; without that row, a ring continued from 1 and 4 cards."""
    return table.seconds(HOST) if HOST in table.rows else continue_ring(table)


def continue_ring(table: Table) -> float:
    """Predict the seconds of an update on 8 cards of a host from those on 1 and 4."""
    alone, four = table.seconds(1), table.seconds(4)
    return alone + (four - alone) * collectives.share_sent(HOST) / collectives.share_sent(4)


def count_parameters(table: Table) -> int:
    """Return how many numbers of a table's rows of up to 16 cards the prediction of 32 takes."""
    return (1 if HOST in table.rows else 2) + (2 * HOST in table.rows)


def errors(rows: Iterable[Row]) -> Errors:
    """Summarize the errors of rows."""
    values = np.abs([row.error for row in rows])
    return Errors(
        len(values),
        float(values.max()),
        float(values.mean()),
        float(np.median(values)),
        float(np.percentile(values, 68)),
    )


def _growth(table: Table, hosts: int) -> float:
    return growth(hosts, Messages(0, synchronized=int(table.synchronized)))


def _per_mb(table: Table) -> float:
    return (table.seconds(2 * HOST) - one_host(table)) / table.megabytes


def _row(table: Table, cards: int, seconds: float) -> Row:
    return Row(table.name, cards, table.rows[cards], cards * table.batch / seconds)


def _with_form(table: Table, form: Callable[[int], float]) -> Row:
    """Predict 32 cards from 8 and 16 with a form of growth."""
    base = one_host(table)
    seconds = base + (table.seconds(2 * HOST) - base) * form(LARGEST // HOST) / form(2)
    return _row(table, LARGEST, seconds)


def _left_out(tables: Sequence[Table]) -> list[Row]:
    """Predict the tables of each README from one host, with the constant of all other READMEs."""
    rows = []
    for name in sorted({table.name for table in tables}):
        constant = seconds_per_mb([table for table in tables if table.name != name])
        rows += [row for table in tables if table.name == name for row in predict_from_host(table, constant)]
    return rows
