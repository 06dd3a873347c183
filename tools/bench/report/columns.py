"""Columns of the tables of a report: title, unit, and how a value is printed."""

from collections.abc import Callable
from typing import Any, NamedTuple

Row = dict[str, Any]  # key of a column -> value; None where it is not known
GIBIBYTE = 1 << 30


class Column(NamedTuple):
    """A column.

    Attributes:
        key: of its values in a row.
        title: with the unit.
        format: function that prints a value.
        if_varied: whether the column is left out where all rows of a model have the same value.
    """

    key: str
    title: str
    format: Callable[[Any], str] = str
    if_varied: bool = False


def digits(count: int) -> Callable[[float], str]:
    """Return a function that prints a number with this many decimals."""
    return lambda value: f"{value:.{count}f}" if abs(value) < 1e12 else f"{value:.3g}"


def significant(value: float) -> str:
    """Print at least four significant digits; an exponent only for numbers that nobody measures."""
    size = abs(value)
    if size < 1 or size >= 1e12:
        return f"{value:.4g}"
    return f"{value:.{0 if size >= 1e4 else 1 if size >= 1e3 else 2 if size >= 10 else 3}f}"


def percent(value: float) -> str:
    """Print a fraction in percent."""
    return significant(100 * value) if abs(value) >= 100 else f"{100 * value:.2f}"


def whole_percent(value: float) -> str:
    """Print a fraction in percent with one decimal."""
    return significant(100 * value) if abs(value) >= 100 else f"{100 * value:.1f}"


def gibibytes(value: float) -> str:
    """Print bytes in GiB."""
    return f"{value / GIBIBYTE:.2f}" if value < 1e15 else significant(value / GIBIBYTE)


CASE_COLUMNS = (
    Column("recipe", "recipe", if_varied=True),
    Column("variant", "variant"),
    Column("framework", "framework"),
    Column("precision", "precision"),
    Column("batch", "batch per card"),
    Column("accumulate", "accumulate"),
    Column("nodes", "nodes"),
    Column("cards", "cards"),
)
WHERE_COLUMNS = (Column("device", "device", if_varied=True), Column("counting", "counted", if_varied=True))
THROUGHPUT = (
    *CASE_COLUMNS,
    Column("median", "samples/s", significant),
    Column("low", "95 % from", significant),
    Column("high", "to", significant),
    Column("mean", "mean", significant),
    Column("least", "least", significant),
    Column("most", "most", significant),
    Column("cv", "CV %", percent),
    Column("runs", "runs"),
    Column("speed_up", "speed-up", digits(2)),
    Column("efficiency", "efficiency %", whole_percent),
    *WHERE_COLUMNS,
)
USAGE = (
    *CASE_COLUMNS,
    Column("p50", "ms per step p50", significant),
    Column("p90", "p90", significant),
    Column("p99", "p99", significant),
    Column("data_wait", "waiting for data %", whole_percent),
    Column("tflops", "TFLOP/s per card", significant),
    Column("peak_tflops", "peak", significant),
    Column("peak_source", "peak of"),
    Column("mfu", "MFU %", whole_percent),
    Column("device_memory", "device GiB", gibibytes),
    Column("host_memory", "host GiB", gibibytes),
    Column("watts", "W", significant),
    Column("joules_per_sample", "J/sample", significant),
    *WHERE_COLUMNS,
)
TRAINING = (
    *CASE_COLUMNS,
    Column("time_to_target", "Time2train (s)", significant),
    Column("avg_ips", "throughput (samples/s)", significant),
    Column("accuracy", "accuracy %", percent),
    Column("metric", "metric"),
    Column("target", "target %", percent),
    Column("reached", "reached by"),
    Column("target_epoch", "at epoch", "{:g}".format),
    Column("time_speed_up", "speed-up by Time2train", digits(2)),
    Column("time_efficiency", "efficiency %", whole_percent),
    Column("ips_speed_up", "speed-up by throughput", digits(2)),
    Column("runs", "runs"),
    *WHERE_COLUMNS,
)
RATIOS = (
    Column("variant", "variant"),
    Column("ratio_of", "frameworks"),
    Column("precision", "precision"),
    Column("batch", "batch per card"),
    Column("accumulate", "accumulate"),
    Column("nodes", "nodes"),
    Column("cards", "cards"),
    Column("ratio", "ratio of samples/s", digits(3)),
    Column("low", "95 % from", digits(3)),
    Column("high", "to", digits(3)),
    *WHERE_COLUMNS,
)
RUNS = (
    Column("path", "run"),
    Column("state", "state"),
    Column("remark", "remark"),
    Column("model", "model"),
    *CASE_COLUMNS[1:],
    Column("samples_per_s", "samples/s", significant),
    Column("best", "accuracy %", percent),
    Column("time_to_target", "Time2train (s)", significant),
    Column("total_time", "total time (s)", significant),
    Column("protocol", "protocol"),
)
