"""Whether results may stand in the same table."""

from collections.abc import Callable, Sequence

from zoo.bench.report.labels import shorten
from zoo.bench.report.run import Case, Run
from zoo.bench.report.settings import differing
from zoo.data.errors import UserError

MAX_LISTED = 3  # runs that a message names per value
MAX_SETTINGS = 8  # that a message names
MAX_VALUE = 40  # characters of a setting's value in a message
ELSEWHERE = ("framework_version", "commit")  # settings that have messages of their own


def check(runs: Sequence[Run], force: bool) -> list[str]:
    """Return what a reader has to know before comparing runs of the same model.

    Args:
        runs: those to compare.
        force: give a warning instead of an error for different protocols.

    Raises:
        UserError: runs of a model have different protocols.
    """
    warnings = []
    for model in dict.fromkeys(run.case.model for run in runs):
        members = [run for run in runs if run.case.model == model]
        name = model or "a model that is not known"
        protocols = _values(members, lambda run: run.protocol)
        if len(protocols) > 1:
            listed = _listed(protocols)
            if not force:
                raise UserError(
                    f"the results of {name} have different protocols and cannot be compared: {listed}. Report them one "
                    "at a time, or give --force for tables that are marked"
                )
            warnings.append(f"NOT COMPARABLE, forced: the results of {name} have different protocols: {listed}")
        warnings += [*_differences(name, members), *_resumed(name, members)]
    for case in dict.fromkeys(run.case for run in runs):
        warnings += _repeats(case, [run for run in runs if run.case == case])
    return warnings


def _differences(name: str, runs: Sequence[Run]) -> list[str]:
    """List what differs between the runs of a model beside the protocol."""
    aspects: tuple[tuple[str, Callable[[Run], str | None]], ...] = (
        (
            "targets, so their Time2train cannot be compared",
            lambda run: None if run.target is None else f"{run.target:g}",
        ),
        ("data (checksums)", lambda run: run.checksum),
        ("architectures (operations of a sample)", _operations),
        ("devices", lambda run: run.case.device),
        ("commits of the code", lambda run: run.facts.get("commit")),
    )
    lines = []
    for aspect, value_of in aspects:
        values = _values(runs, value_of)
        if len(values) > 1:
            lines.append(f"the results of {name} have different {aspect}: {_listed(values)}")
    for framework in sorted({run.case.framework for run in runs if run.case.framework}):
        members = [run for run in runs if run.case.framework == framework]
        versions = _values(members, lambda run: run.facts.get("framework_version"))
        if len(versions) > 1:
            lines.append(f"the results of {name} have different versions of {framework}: {_listed(versions)}")
    return lines


def _resumed(name: str, runs: Sequence[Run]) -> list[str]:
    """List what resumes changed in complete runs."""
    found = _values(runs, lambda run: ", ".join(run.changed[:MAX_SETTINGS]) or None)
    return [f"runs of {name} were resumed with another {_listed({names: paths})}" for names, paths in found.items()]


def _repeats(case: Case, runs: Sequence[Run]) -> list[str]:
    """Return a warning if the runs of a case have different settings; none if they are repeats."""
    found = differing([run.settings for run in runs])
    shown = [f"{name} ({_several(values)})" for name, values in found.items() if name not in ELSEWHERE]
    if not shown:
        return []
    more = f" and {len(shown) - MAX_SETTINGS} more settings" if len(shown) > MAX_SETTINGS else ""
    return [
        f"the {len(runs)} runs of {_title(case)} count as repeats but differ in {', '.join(shown[:MAX_SETTINGS])}"
        f"{more}: {_paths([run.path for run in runs])}"
    ]


def _several(values: Sequence[str]) -> str:
    more = ["..."] if len(values) > MAX_LISTED else []
    return "; ".join([*(shorten(value, MAX_VALUE) for value in values[:MAX_LISTED]), *more])


def _title(case: Case) -> str:
    words = (case.variant, case.framework, case.precision, f"batch {case.batch}", f"{case.cards} card(s)")
    return f"{case.model or 'a model that is not known'} with {', '.join(word for word in words if word)}"


def _operations(run: Run) -> str | None:
    return None if run.flops_per_sample is None else f"{run.flops_per_sample:.6g}"


def _values(runs: Sequence[Run], value_of: Callable[[Run], str | None]) -> dict[str, list[str]]:
    """Return the paths of the runs by a value; runs that do not have it are left out."""
    found: dict[str, list[str]] = {}
    for run in runs:
        value = value_of(run)
        if value is not None:
            found.setdefault(value, []).append(run.path)
    return found


def _listed(values: dict[str, list[str]]) -> str:
    return "; ".join(f"{value} ({_paths(paths)})" for value, paths in values.items())


def _paths(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MAX_LISTED} more" if len(paths) > MAX_LISTED else ""
    return ", ".join(paths[:MAX_LISTED]) + more
