"""Tables of predictions as Markdown, JSON and CSV."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.bench.scale.model import Prediction
from zoo.bench.scale.uncertainty import Interval
from zoo.bench.scale.validation import ANCHOR, Errors, Row, errors

FORMATS = ("markdown", "json", "csv")
Cells = dict[str, Any]


def predictions(
    predicted: Sequence[Prediction], intervals: Sequence[Interval], alone: Prediction, as_: str = "markdown"
) -> str:
    """Format predictions.

    Args:
        predicted: one per row.
        intervals: their error bars.
        alone: the prediction of one process, which efficiency refers to.
        as_: one of FORMATS.
    """
    rows = [_cells(prediction, interval, alone) for prediction, interval in zip(predicted, intervals)]
    return rendered(rows, as_)


def rendered(rows: Sequence[Cells], as_: str) -> str:
    """Format rows with equal keys: numbers rounded in Markdown, complete elsewhere."""
    if as_ == "json":
        return json.dumps(rows, indent=2) + "\n"
    if as_ == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()
    return markdown(list(rows[0]), [[_rounded(value) for value in row.values()] for row in rows])


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table whose first column is text and whose others are aligned to the right."""
    widths = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [cell.ljust(widths[0]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(cells)]
        return "| " + " | ".join(padded) + " |"

    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join([line(head), line(rule), *map(line, rows)]) + "\n"


def validation(report: Mapping[str, Any]) -> str:
    """Format the result of tools/bench/scale/validation.py as text with Markdown tables."""
    held_out, one_host = report["held_out"], report["one_host"]
    independent = [["32 cards from 8 and 16: " + name, *_errors(value)] for name, value in report["forms"].items()]
    independent.append(["8 cards from 1 and 4: 2(p-1)/p", *_errors(report["within"])])
    independent += [
        [f"{cards} cards from one host, constant of the other READMEs", *_errors(value)]
        for cards, value in report["left_out"].items()
    ]
    own = ", ".join(f"{name} {1000 * value:.3f}" for name, value in report["own_constants"].items())
    return "\n".join(
        [
            f"32 cards from rows of up to 16; {report['parameters']} fitted numbers",
            "",
            _row_table(held_out),
            f"{_summary(errors(held_out))}; the anchor: {ANCHOR['parameters']} numbers, max {ANCHOR['max']:.1%}, "
            f"mean {ANCHOR['mean']:.1%}",
            "",
            "16 and 32 cards from rows of one host",
            "",
            _row_table(one_host),
            _summary(errors(one_host)),
            "",
            "89 other tables, by which the form of growth and the constant were chosen",
            "",
            markdown(["", "rows", "max", "mean", "median", "68 % within"], independent),
            f"the constant: the second host adds {1000 * report['seconds_per_mb']:.3f} ms per MB of gradients, the "
            f"median of these tables; in the reports it would be (ms per MB): {own}",
            "",
        ]
    )


def validation_json(report: Mapping[str, Any]) -> str:
    """Format the result of tools/bench/scale/validation.py as JSON."""
    rows = {name: [{**row._asdict(), "error": row.error} for row in report[name]] for name in ("held_out", "one_host")}
    summaries = {name: {key: value._asdict() for key, value in report[name].items()} for name in ("forms", "left_out")}
    return json.dumps({**report, **rows, **summaries, "within": report["within"]._asdict()}, indent=2) + "\n"


def _cells(prediction: Prediction, interval: Interval, alone: Prediction) -> Cells:
    ideal = alone.samples_per_s * prediction.cluster.size
    return {
        "cards": str(prediction.cluster),
        "samples/s": prediction.samples_per_s,
        "5 %": interval.low,
        "95 %": interval.high,
        "efficiency %": 100 * prediction.samples_per_s / ideal,
        "step ms": 1000 * prediction.seconds,
        "compute ms": 1000 * prediction.compute,
        "slowest ms": 1000 * prediction.waiting,
        "all-reduce ms": 1000 * prediction.all_reduce,
        "input ms": 1000 * prediction.input,
        "limit": prediction.limit,
    }


def _rounded(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def _row_table(rows: Sequence[Row]) -> str:
    return markdown(
        ["workload", "cards", "published", "predicted", "error"],
        [
            [row.name, str(row.cards), f"{row.published:.1f}", f"{row.predicted:.1f}", f"{row.error:+.1%}"]
            for row in rows
        ],
    )


def _errors(value: Errors) -> list[str]:
    return [str(value.rows), *(f"{number:.1%}" for number in value[1:])]


def _summary(value: Errors) -> str:
    return f"max {value.largest:.1%}, mean {value.mean:.1%}, median {value.median:.1%}"
