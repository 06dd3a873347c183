"""Tables of a report: rows of plain values, and how each column is titled and printed."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from zoo.bench.report.results import (
    Ratio,
    Result,
    labels,
    order,
    single_card,
    speed_up,
    time_speed_up,
    too_fast,
    withheld,
)
from zoo.bench.report.runs import Case, Run

Row = dict[str, Any]  # key of a column -> value; None where it is not known
MAX_COLUMNS = 12  # of a model in the overview, which is left out where it would have more
CASE = ("recipe", "variant", "framework", "precision", "batch", "accumulate", "nodes", "cards")
ONLY_TO_DIFFER = ("model", "recipe", "nodes", "device", "counting")  # left out where all rows have the same value


def significant(value: float) -> str:
    """Print at least four significant digits; an exponent only for numbers that nobody measures."""
    size = abs(value)
    if not 1 <= size < 1e12:
        return f"{value:.4g}"
    return f"{value:.{0 if size >= 1e4 else 1 if size >= 1e3 else 2 if size >= 10 else 3}f}"


def percent(value: float) -> str:
    return significant(100 * value) if abs(value) >= 100 else f"{100 * value:.2f}"


def gibibytes(value: float) -> str:
    """Print bytes in GiB."""
    return significant(value / 2**30)


COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {  # titles with units, and functions that print a value
    "batch": ("batch per card", str),
    "threads": ("threads per process", str),
    "median": ("samples/s", significant),
    "low": ("95 % from", significant),
    "high": ("to", significant),
    "mean": ("mean", significant),
    "least": ("least", significant),
    "most": ("most", significant),
    "cv": ("CV %", percent),
    "speed_up": ("speed-up", "{:.2f}".format),
    "efficiency": ("efficiency %", percent),
    "p50": ("ms per step p50", significant),
    "p90": ("p90", significant),
    "p99": ("p99", significant),
    "data_wait": ("waiting for data %", percent),
    "tflops": ("TFLOP/s per card", significant),
    "peak_tflops": ("peak", significant),
    "peak_source": ("peak of", str),
    "mfu": ("MFU %", percent),
    "device_memory": ("device GiB", gibibytes),
    "host_memory": ("host GiB", gibibytes),
    "watts": ("W", significant),
    "joules_per_sample": ("J/sample", significant),
    "wh": ("Wh", significant),
    "price": ("price", significant),
    "co2": ("g CO2", significant),
    "time_to_target": ("Time2train (s)", significant),
    "avg_ips": ("throughput (samples/s)", significant),
    "accuracy": ("accuracy %", percent),
    "target": ("target %", percent),
    "reached": ("reached by", str),
    "target_epoch": ("at epoch", "{:g}".format),
    "time_speed_up": ("speed-up by Time2train", "{:.2f}".format),
    "time_efficiency": ("efficiency %", percent),
    "ips_speed_up": ("speed-up by throughput", "{:.2f}".format),
    "frameworks": ("frameworks", str),
    "ratio": ("ratio of samples/s", significant),
    "path": ("run", str),
    "samples_per_s": ("samples/s", significant),
    "total_time": ("total time (s)", significant),
    "counting": ("counted", str),
}


class Table(NamedTuple):
    name: str  # of its file
    title: str  # its heading
    note: str  # how its numbers are defined; may be empty
    rows: Sequence[Row]  # all with the same keys, one of which is `model`

    def of(self, model: str | None) -> "Table":
        return self._replace(rows=[row for row in self.rows if row["model"] == model])

    @property
    def keys(self) -> list[str]:
        """The columns without those that are empty, or that are equal in all rows and only there to differ."""
        values = {key: {row[key] for row in self.rows} - {None} for key in (self.rows[0] if self.rows else ())}
        varied = {key: len({row[key] for row in self.rows}) > 1 for key in values}
        return [key for key in values if values[key] and (varied[key] or key not in ONLY_TO_DIFFER)]

    @property
    def titles(self) -> list[str]:
        return [COLUMNS[key][0] if key in COLUMNS else key for key in self.keys]

    @property
    def cells(self) -> list[list[str | None]]:
        """The printed values of `keys`; None for one that is not known."""
        return [[None if row[key] is None else _printed(key, row[key]) for key in self.keys] for row in self.rows]


def build(
    runs: Sequence[Run],
    results: Sequence[Result],
    ratios: Sequence[Ratio],
    per_kwh: Mapping[str, float] = MappingProxyType({}),
) -> list[Table]:
    """Return all tables. per_kwh: `price` and grams of `co2` of a kWh, those that the user knows."""
    evaluated = [r._replace(runs=[run for run in r.runs if run.values.evaluations]) for r in results]
    trained = [result for result in evaluated if result.runs]
    usage = [_usage_row(result, per_kwh) for result in results if result.speed]
    return [
        Table("overview", "Samples per second by cards and precision", "", overview(results)),
        Table(
            "throughput",
            "Throughput and scaling",
            "Median over the runs, its 95 % confidence interval, and the coefficient of variation (CV) of the runs. "
            "Speed-up: samples/s relative to one card with the same batch per card; efficiency: speed-up / cards.",
            [_throughput_row(result, results) for result in results if result.speed],
        ),
        Table(
            "training",
            "Training to the target",
            "Time2train, throughput (avg_ips) and speed-up by the definitions of AI-Rank, with evaluations; medians of "
            "the runs. Speed-up by Time2train is Time2train of one card / Time2train; reports often print that by "
            "throughput under the same name.",
            [_training_row(result, trained) for result in trained],
        ),
        Table(
            "usage",
            "Use of the hardware",
            "MFU: 3 x operations of a forward pass x samples/s / peak of the cards. Step times are those of the loop. "
            "Energy is that of the devices that were measured (NVML, RAPL) during training, without the machine.",
            [row for row in usage if any(row[key] is not None for key in row if key not in Case._fields)],
        ),
        Table(
            "ratios",
            "Frameworks compared",
            "Ratio of the medians; below 1 the first framework is slower. An interval with 1 in it shows none.",
            [_ratio_row(ratio) for ratio in ratios],
        ),
        Table("runs", "Runs", "", [_run_row(run) for run in sorted(runs, key=lambda run: order(run.case))]),
    ]


def overview(results: Sequence[Result]) -> list[Row]:
    """Return samples per second by nodes and cards (rows), framework and precision (columns).

    A model with more than MAX_COLUMNS columns has no rows.
    """
    rows: list[Row] = []
    for model in dict.fromkeys(result.case.model for result in results):
        members = [result for result in results if result.case.model == model and result.speed and result.case.cards]
        columns = dict.fromkeys(result.case._replace(nodes=None, cards=None) for result in members)
        titles = labels(list(columns))
        of_model: dict[tuple[int, int], Row] = {}
        for result in members:
            case = result.case
            place = (case.cards or 0, case.nodes or 0)
            row = of_model.setdefault(place, {"model": model, "nodes": case.nodes, "cards": case.cards})
            row[titles[case._replace(nodes=None, cards=None)]] = _with_interval(result)
        if len(titles) <= MAX_COLUMNS:
            rows += [of_model[place] for place in sorted(of_model)]
    keys = dict.fromkeys(key for row in rows for key in row)
    return [{**keys, **row} for row in rows]


def _with_interval(result: Result) -> str | float:
    """Return the median, with its interval where there are several runs, and what makes it doubtful."""
    speed = result.speed
    assert speed
    if speed.low is None or speed.high is None:
        return f"{significant(speed.median)} {result.mark}" if result.mark else speed.median
    limits = "" if speed.is_noisy else f" ({significant(speed.low)} to {significant(speed.high)})"
    return f"{significant(speed.median)}{limits} {result.mark}".rstrip()


def file_name(model: str | None) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", (model or "")[:60]).strip("-") or "unknown"


def _printed(key: str, value: Any) -> str:
    if key in COLUMNS:
        return COLUMNS[key][1](value)
    return significant(value) if isinstance(value, float) else str(value)  # a column of the overview


def _case_row(case: Case) -> Row:
    row = {"model": case.model, **{key: getattr(case, key) for key in CASE}}
    return {**row, "accumulate": None if case.accumulate == 1 else case.accumulate}


def _where(case: Case, *remarks: str | None) -> Row:
    return {"device": case.device, "counting": case.counting, "remark": "; ".join(filter(None, remarks)) or None}


def _throughput_row(result: Result, results: Sequence[Result]) -> Row:
    assert result.speed
    up, speed, count = speed_up(result, results), result.speed, len(result.speeds)
    several = {"mean": speed.mean, "least": speed.least, "most": speed.most, "cv": speed.cv}
    return {
        **_case_row(result.case),
        "threads": result.threads,
        "median": speed.median,
        "low": None if speed.is_noisy else speed.low,
        "high": None if speed.is_noisy else speed.high,
        **(several if count > 1 else dict.fromkeys(several)),
        "runs": count,
        "speed_up": up,
        "efficiency": up / result.case.cards if up and result.case.cards else None,
        **_where(result.case, result.mark, withheld(result, results)),
    }


def _usage_row(result: Result, per_kwh: Mapping[str, float]) -> Row:
    flops, wh, mfu = result.flops_per_card, result.median("wh"), result.mfu
    doubt = f"no MFU: {mfu:.3g} times the peak" if mfu and mfu > 1 else None
    return {
        **_case_row(result.case),
        **{key: result.median(key) for key in ("p50", "p90", "p99", "data_wait")},
        "tflops": flops / 1e12 if flops else None,
        "peak_tflops": result.peak.flops / 1e12 if result.peak else None,
        "peak_source": result.peak.source if result.peak else None,
        "mfu": None if doubt else mfu,
        **{key: result.median(key) for key in ("device_memory", "host_memory", "watts", "joules_per_sample")},
        "wh": wh,
        **{key: factor * wh / 1000 if wh else None for key, factor in per_kwh.items()},
        **_where(result.case, result.mark, doubt),
    }


def _training_row(result: Result, results: Sequence[Result]) -> Row:
    target = next((run.target for run in result.runs if run.target is not None), None)
    reached = sum(run.values.time_to_target is not None for run in result.runs)
    time_up, ips = time_speed_up(result, results), result.median("avg_ips")
    base = single_card(result, results)
    base_ips = base.median("avg_ips") if base and not withheld(result, results) else None
    ips_up, cards = ips / base_ips if ips and base_ips else None, result.case.cards
    doubts = [
        too_fast("speed-up by Time2train", time_up, cards),
        too_fast("speed-up by throughput", ips_up, cards),
    ]
    time_up, ips_up = (None if doubt else ratio for doubt, ratio in zip(doubts, (time_up, ips_up)))
    return {
        **_case_row(result.case),
        "time_to_target": result.time_to_target,
        "avg_ips": ips,
        "accuracy": result.median("best"),
        "metric": next((run.metric for run in result.runs if run.metric), None),
        "target": target,
        "reached": f"{reached} of {len(result.runs)}" if target is not None else None,
        "target_epoch": result.median("target_epoch"),
        "time_speed_up": time_up,
        "time_efficiency": time_up / cards if time_up and cards else None,
        "ips_speed_up": ips_up,
        "runs": len(result.runs),
        **_where(result.case, result.mark, *doubts),
    }


def _ratio_row(ratio: Ratio) -> Row:
    case, base = ratio.case, ratio.base
    precisions = [str(one.precision) for one in (case, base) if one.precision]
    row = _case_row(case)
    del row["recipe"], row["framework"]
    return {
        **row,
        "frameworks": f"{case.framework} / {base.framework}",
        "precision": " / ".join(dict.fromkeys(precisions)) or None,
        "ratio": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        **_where(case, ratio.mark),
    }


def _run_row(run: Run) -> Row:
    row = _case_row(run.case)
    del row["recipe"]
    return {
        "path": run.path,
        "state": run.state,
        "remark": "; ".join(filter(None, (run.remark, "busy" if run.facts.get("busy") else ""))) or None,
        **row,
        "samples_per_s": run.values.samples_per_s,
        "accuracy": run.values.best,
        "time_to_target": run.values.time_to_target,
        "total_time": run.values.total_time,
        "protocol": run.protocol,
    }
