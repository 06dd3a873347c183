"""Check of the closed form against published tables: rows of 16 and 32 cards that nothing was fitted to.

published.csv holds samples per second over all cards, on hosts of 8 V100 cards. `report`: AI-Rank's TSM in Paddle and
DeepLabV3+ in PyTorch (2 samples per card in fp32, as its log list has it; the fp16 table has 4), and of
Oneflow-Inc/DLPerf ResNet50 in MindSpore and ArcFace in Paddle. ArcFace's row of 8 cards, 2545.3, is left out: 16 cards
would be faster per update than 8, because the published extractor averages batches 0 and 10 of a log to which 8 ranks
write. `independent`: all other tables in DLPerf's READMEs, commit c89430b, that have rows of 1, 8, 16 and 32 cards; to
fit and to choose by without looking at the reports. Megabytes are those of the gradients in fp32, without a split
classifier.
"""

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evidence.scale import model

HOST = 8  # cards per host in all tables
LARGEST = 32  # cards


class Table(NamedTuple):
    """A table of throughput."""

    name: str  # model, framework and precision, or the README
    batch: int  # samples per card
    megabytes: float  # size of the gradients
    synchronized: bool  # whether batch norms are synchronized over all cards
    rows: dict[int, float]  # cards -> samples per second

    def seconds(self, cards: int) -> float:
        """Return the time of an update."""
        return cards * self.batch / self.rows[cards]

    def predicted(self, cards: int, seconds: float) -> "Row":
        """Return the row of a predicted time of an update."""
        return Row(self.name, cards, self.rows[cards], cards * self.batch / seconds)


class Row(NamedTuple):
    """A held-out row: published and predicted samples per second."""

    name: str
    cards: int
    published: float
    predicted: float

    @property
    def error(self) -> float:
        return self.predicted / self.published - 1


def tables(kind: str) -> list[Table]:
    """Read the tables of a kind, `report` or `independent`."""
    with open(Path(__file__).with_name("published.csv"), encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["set"] == kind]
    return [
        Table(
            row["name"],
            int(row["batch"]),
            float(row["megabytes"]),
            row["synchronized"] == "1",
            {int(key): float(value) for key, value in row.items() if key.isdigit() and value},
        )
        for row in rows
    ]


def validate() -> dict[str, Any]:
    """Make all predictions.

    Returns:
        held_out: rows of 32 cards from those of up to 16; one_host: rows of 16 and 32 from those of up to 8;
        seconds_per_mb: the constant that all workloads share; parameters: how many numbers were fitted for held_out.
    """
    reports, constant = tables("report"), seconds_per_mb(tables("independent"))
    rows_taken = [(1 if HOST in table.rows else 2) + (2 * HOST in table.rows) for table in reports]
    return {
        "seconds_per_mb": constant,
        "parameters": sum(rows_taken) + 1,
        "held_out": [predict_largest(table, constant) for table in reports],
        "one_host": [row for table in reports for row in predict_from_host(table, constant)],
    }


def seconds_per_mb(of: Sequence[Table]) -> float:
    """Return the median over tables of what the second host adds to an update, per megabyte of gradients."""
    return float(np.median([(table.seconds(2 * HOST) - one_host(table)) / table.megabytes for table in of]))


def predict_largest(table: Table, constant: float) -> Row:
    """Predict the row of 32 cards from those of up to 16.

    T(h) = T(1) + (T(2) - T(1)) growth(h) / growth(2). Gradients grow with the bytes that a host sends, 2(h-1)/h, many
    small all-reduces with the messages one after the other, log2(h). Without a row of two hosts, T(2) - T(1) is the
    bytes of the gradients times a constant that all workloads share.
    """
    if 2 * HOST not in table.rows:
        return predict_from_host(table, constant)[-1]
    return predict_by_growth(table, math.log2 if table.synchronized else model.share_sent)


def predict_by_growth(table: Table, growth: Callable[[int], float]) -> Row:
    """Predict 32 cards from 8 and 16 with a form of growth with the hosts."""
    base = one_host(table)
    seconds = base + (table.seconds(2 * HOST) - base) * growth(LARGEST // HOST) / growth(2)
    return table.predicted(LARGEST, seconds)


def predict_from_host(table: Table, constant: float) -> list[Row]:
    """Predict the rows of several hosts from those of one; constant: seconds per megabyte that the second host adds."""
    base, rows = one_host(table), []
    for hosts in (cards // HOST for cards in table.rows if cards > HOST):
        seconds = base + constant * table.megabytes * model.share_sent(hosts)
        if table.synchronized:  # rounds between hosts take as long as those within a host at least
            seconds += (base - table.seconds(1)) / math.log2(HOST) * math.log2(hosts)
        rows.append(table.predicted(hosts * HOST, seconds))
    return rows


def one_host(table: Table) -> float:
    """Return the seconds of an update on one host of 8 cards; without that row, a ring continued from 1 and 4 cards."""
    return table.seconds(HOST) if HOST in table.rows else continue_ring(table)


def continue_ring(table: Table) -> float:
    """Predict the seconds of an update on 8 cards of a host from those on 1 and 4."""
    alone, four = table.seconds(1), table.seconds(4)
    return alone + (four - alone) * model.share_sent(HOST) / model.share_sent(4)


def errors(rows: Iterable[Row]) -> np.ndarray:
    """Return the absolute relative errors of rows."""
    return np.abs([row.error for row in rows])
