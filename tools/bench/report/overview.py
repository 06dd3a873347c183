"""Overview of a report: samples per second by nodes and cards (rows), framework and precision (columns)."""

from collections.abc import Sequence

from zoo.bench.report.cases import Result
from zoo.bench.report.columns import Column, Row, significant
from zoo.bench.report.run import Case

MAX_COLUMNS = 12  # of a model, which is left out where it would have more


def build(results: Sequence[Result]) -> tuple[list[Column], list[Row]]:
    """Return the columns and the rows of all models; a model with too many columns has no rows."""
    columns: dict[str, Column] = {}
    rows: list[Row] = []
    for model in dict.fromkeys(result.case.model for result in results):
        members = [result for result in results if result.case.model == model and result.speed and result.case.cards]
        several_recipes = len({result.case.recipe for result in members}) > 1
        of_case = _columns([result.case for result in members], several_recipes)
        of_model: dict[tuple[int, int], Row] = {}
        for result in members:
            case, speed = result.case, result.speed
            place = (case.cards or 0, case.nodes or 0)
            row = of_model.setdefault(place, {"model": model, "nodes": case.nodes, "cards": case.cards})
            row[of_case[_of_column(case)].key] = speed.median if speed else None
        if len(of_case) <= MAX_COLUMNS:
            columns |= {column.key: column for column in of_case.values()}
            rows += [of_model[place] for place in sorted(of_model)]
    filled = [{**dict.fromkeys(columns), **row} for row in rows]
    every = [Column("nodes", "nodes", if_varied=True), Column("cards", "cards"), *columns.values()]
    return every, filled


def _of_column(case: Case) -> Case:
    """Return what the cases of a column of the overview have in common."""
    return case._replace(nodes=None, cards=None)


def _columns(cases: Sequence[Case], several_recipes: bool) -> dict[Case, Column]:
    """Return the columns by what their cases have in common.

    Titles are short, with accumulate, device and counting only where they would be the same without.
    """
    grouped: dict[str, list[Case]] = {}
    for case in dict.fromkeys(map(_of_column, cases)):
        words = (case.recipe if several_recipes else None, case.variant, case.framework, case.precision)
        batch = f"batch {case.batch}" if case.batch else None
        grouped.setdefault(" ".join(word for word in (*words, batch) if word) or "samples/s", []).append(case)
    columns = {}
    for title, members in grouped.items():
        differing = [key for key in Case._fields if len({getattr(case, key) for case in members}) > 1]
        for case in members:
            parts = ((key, getattr(case, key) or "not known") for key in differing)
            details = ", ".join(f"accumulate {value}" if key == "accumulate" else str(value) for key, value in parts)
            whole = f"{title}, {details}" if details else title
            key = " ".join(map(str, (whole, case.accumulate, case.device, case.counting)))
            columns[case] = Column(key, whole, significant)
    return columns
