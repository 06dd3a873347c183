"""Tables of a report: rows of plain values."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from zoo.bench.dlperf import result as dlperf_result
from zoo.bench.report import overview
from zoo.bench.report.cases import Ratio, Result, order, single_card, speed_up, time_speed_up
from zoo.bench.report.columns import RATIOS, RUNS, THROUGHPUT, TRAINING, USAGE, Column, Row
from zoo.bench.report.run import COMPLETE, Case, Run


class Table(NamedTuple):
    """A table.

    Attributes:
        name: of its file.
        title: its heading.
        note: how its numbers are defined; may be empty.
        columns: in order; `model` is not among them.
        rows: each with the key `model`.
    """

    name: str
    title: str
    note: str
    columns: Sequence[Column]
    rows: Sequence[Row]

    def of(self, model: str | None) -> "Table":
        """Return the rows of a model, without the columns that tell nothing."""
        return self._replace(rows=[row for row in self.rows if row["model"] == model]).without_empty()

    def without_empty(self) -> "Table":
        """Return the table without columns that are empty, or that are equal in all rows and only there to differ."""
        values = {column.key: {row[column.key] for row in self.rows} for column in self.columns}
        shown = [c for c in self.columns if values[c.key] - {None} and not (c.if_varied and len(values[c.key]) == 1)]
        return self._replace(columns=shown)


def build(runs: Sequence[Run], results: Sequence[Result], ratios: Sequence[Ratio]) -> list[Table]:
    """Return all tables, some of which may have no rows."""
    evaluated = [r._replace(runs=[run for run in r.runs if run.values.evaluations]) for r in results]
    trained = [result for result in evaluated if result.runs]
    return [
        Table("overview", "Samples per second by cards and precision", "", *overview.build(results)),
        Table(
            "throughput",
            "Throughput and scaling",
            "Median over the runs, its 95 % confidence interval, and the coefficient of variation (CV) of the runs. "
            "Speed-up: samples/s relative to one card with the same batch per card; efficiency: speed-up / cards.",
            THROUGHPUT,
            [_throughput_row(result, results) for result in results if result.speed],
        ),
        Table(
            "training",
            "Training to the target",
            "Time2train, throughput (avg_ips) and speed-up by the definitions of AI-Rank, with evaluations; medians of "
            "the runs. Speed-up by Time2train is Time2train of one card / Time2train; reports often print that by "
            "throughput under the same name.",
            TRAINING,
            [_training_row(result, trained) for result in trained],
        ),
        Table(
            "usage",
            "Use of the hardware",
            "MFU: 3 x operations of a forward pass x samples/s / peak of the cards. Step times are those of the loop.",
            USAGE,
            [row for result in results if result.speed and _is_filled(row := _usage_row(result))],
        ),
        Table(
            "ratios",
            "Frameworks compared",
            "Ratio of the medians; below 1 the first framework is slower. An interval with 1 in it shows none.",
            RATIOS,
            [_ratio_row(ratio) for ratio in ratios],
        ),
        Table("runs", "Runs", "", RUNS, [_run_row(run) for run in sorted(runs, key=lambda run: order(run.case))]),
    ]


def _case_row(case: Case) -> Row:
    row = case._asdict()
    return {**row, "accumulate": None if case.accumulate == 1 else case.accumulate}


def _throughput_row(result: Result, results: Sequence[Result]) -> Row:
    assert result.speed
    up, speed, count = speed_up(result, results), result.speed, len(result.speeds)
    several = {"mean": speed.mean, "least": speed.least, "most": speed.most, "cv": speed.cv}
    return {
        **_case_row(result.case),
        "median": speed.median,
        "low": speed.low,
        "high": speed.high,
        **(several if count > 1 else dict.fromkeys(several)),
        "runs": count,
        "speed_up": up,
        "efficiency": up / result.case.cards if up and result.case.cards else None,
    }


def _usage_row(result: Result) -> Row:
    flops, steps = result.flops_per_card, result.steps
    return {
        **_case_row(result.case),
        "p50": steps.p50,
        "p90": steps.p90,
        "p99": steps.p99,
        "data_wait": result.median(lambda run: run.values.data_wait),
        "tflops": flops / 1e12 if flops else None,
        "peak_tflops": result.peak.flops / 1e12 if result.peak else None,
        "peak_source": result.peak.source if result.peak else None,
        "mfu": result.mfu,
        "device_memory": result.median(lambda run: run.values.device_memory),
        "host_memory": result.median(lambda run: run.values.host_memory),
        "watts": result.median(lambda run: run.values.watts),
        "joules_per_sample": result.median(lambda run: run.values.joules_per_sample),
    }


def _is_filled(row: Row) -> bool:
    """Return whether a row has more than its case."""
    return any(value is not None for key, value in row.items() if key not in Case._fields)


def _training_row(result: Result, results: Sequence[Result]) -> Row:
    target = next((run.target for run in result.runs if run.target is not None), None)
    reached = sum(run.values.time_to_target is not None for run in result.runs)
    time_up, ips = time_speed_up(result, results), _avg_ips(result)
    base = single_card(result, results)
    base_ips = _avg_ips(base) if base else None
    return {
        **_case_row(result.case),
        "time_to_target": result.time_to_target,
        "avg_ips": ips,
        "accuracy": result.median(lambda run: run.values.best),
        "metric": next((run.metric for run in result.runs if run.metric), None),
        "target": target,
        "reached": f"{reached} of {len(result.runs)}" if target is not None else None,
        "target_epoch": result.median(lambda run: run.values.target_epoch),
        "time_speed_up": time_up,
        "time_efficiency": time_up / result.case.cards if time_up and result.case.cards else None,
        "ips_speed_up": ips / base_ips if ips and base_ips else None,
        "runs": len(result.runs),
    }


def _avg_ips(result: Result) -> float | None:
    return result.median(lambda run: run.values.avg_ips)


def _ratio_row(ratio: Ratio) -> Row:
    case, base = ratio.case, ratio.base
    names = f"{case.framework} / {base.framework}"
    precisions = [str(one.precision) for one in (case, base) if one.precision]
    return {
        "model": case.model,
        "ratio_of": names,
        "precision": " / ".join(dict.fromkeys(precisions)) or None,
        **{key: getattr(case, key) for key in ("variant", "batch", "nodes", "cards", "device", "counting")},
        "accumulate": _case_row(case)["accumulate"],
        "ratio": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
    }


def _run_row(run: Run) -> Row:
    return {
        **_case_row(run.case),
        "path": run.path,
        "state": run.state,
        "remark": run.remark or None,
        "samples_per_s": run.values.samples_per_s,
        "best": run.values.best,
        "time_to_target": run.values.time_to_target,
        "total_time": run.values.total_time,
        "protocol": run.protocol,
    }


def dlperf(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the results in the JSON of DLPerf's scripts, one for each framework, precision and batch per card."""
    speeds: dict[tuple[str, int], dict[str, dict[str, dict[int, float]]]] = {}
    for run in runs:
        case = run.case
        if run.state != COMPLETE or not run.values.samples_per_s:
            continue
        if case.model and case.batch and case.cards and case.nodes and case.cards % case.nodes == 0:
            title = f"{case.framework} {case.precision} batch {case.batch}"
            models = speeds.setdefault((title, case.batch), {})
            repeats = models.setdefault(case.model, {}).setdefault(f"{case.nodes}n{case.cards // case.nodes}g", {})
            repeats[len(repeats) + 1] = run.values.samples_per_s
    return {
        title: dlperf_result(models, {(model, name): batch for model, cases in models.items() for name in cases})
        for (title, batch), models in speeds.items()
    }
