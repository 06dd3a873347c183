"""What was measured of each model and contender, and the Markdown table of it."""

from collections.abc import Sequence
from typing import NamedTuple

from zoo.bench.timing.deploy.turns import Calls

HEADER = (
    "| model, input | computed by | file, MB | latency p50, ms | p99, ms | of PyTorch's p50 | CPU time, ms "
    "| of PyTorch's | samples/s, batch {batch} | of PyTorch's |"
)


class Row(NamedTuple):
    """A contender.

    Attributes:
        name: such as ONNX Runtime fp32.
        size: of its file in bytes.
        one: calls with one sample.
        many: calls with several.
    """

    name: str
    size: int
    one: Calls
    many: Calls


class Measured(NamedTuple):
    """A model with its contenders, of which the first one is what the others are compared with."""

    name: str
    shape: tuple[int, ...]
    parameters: int
    flops: int
    rows: Sequence[Row]


def table(models: Sequence[Measured], batch: int) -> list[str]:
    """Return the lines of a Markdown table. batch: samples of the calls whose throughput is listed."""
    lines = [HEADER.format(batch=batch), "|" + "---|" * (HEADER.count("|") - 1)]
    for model in models:
        size = " x ".join(map(str, model.shape[:-1]))
        subject = f"{model.name}, {size}: {model.parameters / 1e6:.1f} M parameters, {model.flops / 1e9:.1f} GFLOPs"
        base = model.rows[0]
        for row in model.rows:
            lines.append(f"| {subject} | {_cells(row, base)} |")
            subject = ""
    return lines


def as_json(models: Sequence[Measured]) -> list[dict[str, object]]:
    """Return everything that was measured in types of JSON."""
    return [
        {
            **model._asdict(),
            "rows": [{**row._asdict(), "one": vars(row.one), "many": vars(row.many)} for row in model.rows],
        }
        for model in models
    ]


def _cells(row: Row, base: Row) -> str:
    p50, base_p50 = row.one.percentile(50), base.one.percentile(50)
    cpu, base_cpu = row.one.cpu_per_sample, base.one.cpu_per_sample
    speed, base_speed = row.many.samples_per_s, base.many.samples_per_s
    cells = [
        row.name,
        f"{row.size / 1e6:.1f}",
        f"{1e3 * p50:.1f}",
        f"{1e3 * row.one.percentile(99):.1f}",
        f"{p50 / base_p50:.2f}",
        f"{1e3 * cpu:.1f}",
        f"{cpu / base_cpu:.2f}",
        f"{speed:.3g}",
        f"{speed / base_speed:.2f}",
    ]
    return " | ".join(cells)
