"""Whether results may stand in the same table."""

from collections.abc import Callable, Sequence

from zoo.bench.report.runs import Case, Run, differing
from zoo.data.errors import UserError

MAX_LISTED = 3  # runs or values that a message names
MAX_SETTINGS = 8  # that a message names
ELSEWHERE = ("framework_version", "commit")  # settings that have messages of their own
ASPECTS: dict[str, Callable[[Run], str | None]] = {
    "targets, so their Time2train cannot be compared": lambda run: None if run.target is None else f"{run.target:g}",
    "data (checksums)": lambda run: run.checksum,
    "architectures (operations of a sample)": lambda run: (
        f"{run.flops_per_sample:.6g}" if run.flops_per_sample else None
    ),
    "devices": lambda run: run.case.device,
    "commits of the code": lambda run: run.facts.get("commit"),
}


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
        protocols = _by_value(members, lambda run: run.protocol)
        if len(protocols) > 1:
            problem = f"the results of {name} have different protocols"
            if not force:
                raise UserError(
                    f"{problem} and cannot be compared: {_listed(protocols)}. Report them one at a time, or give "
                    "--force for tables that are marked"
                )
            warnings.append(f"NOT COMPARABLE, forced: {problem}: {_listed(protocols)}")
        warnings += _differences(name, members)
    for case in dict.fromkeys(run.case for run in runs):
        warnings += _repeats(case, [run for run in runs if run.case == case])
    return warnings


def _differences(name: str, runs: Sequence[Run]) -> list[str]:
    """List what differs between the runs of a model beside the protocol, and what resumes changed."""
    found = {aspect: _by_value(runs, value_of) for aspect, value_of in ASPECTS.items()}
    for framework in sorted({run.case.framework for run in runs if run.case.framework}):
        members = [run for run in runs if run.case.framework == framework]
        found[f"versions of {framework}"] = _by_value(members, lambda run: run.facts.get("framework_version"))
    lines = [
        f"the results of {name} have different {aspect}: {_listed(values)}"
        for aspect, values in found.items()
        if len(values) > 1
    ]
    resumed = _by_value(runs, lambda run: ", ".join(run.changed[:MAX_SETTINGS]) or None)
    return lines + [f"runs of {name} were resumed with another {_listed({key: resumed[key]})}" for key in resumed]


def _repeats(case: Case, runs: Sequence[Run]) -> list[str]:
    """Return a warning if the runs of a case have different settings; none if they are repeats."""
    found = differing([run.settings for run in runs])
    shown = [f"{name} ({_few(values, '; ')})" for name, values in found.items() if name not in ELSEWHERE]
    if not shown:
        return []
    more = f" and {len(shown) - MAX_SETTINGS} more settings" if len(shown) > MAX_SETTINGS else ""
    words = (case.variant, case.framework, case.precision, f"batch {case.batch}", f"{case.cards} card(s)")
    title = f"{case.model or 'a model that is not known'} with {', '.join(word for word in words if word)}"
    return [
        f"the {len(runs)} runs of {title} count as repeats but differ in {', '.join(shown[:MAX_SETTINGS])}"
        f"{more}: {_few([run.path for run in runs])}"
    ]


def _by_value(runs: Sequence[Run], value_of: Callable[[Run], str | None]) -> dict[str, list[str]]:
    """Return the paths of the runs by a value; runs that do not have it are left out."""
    found: dict[str, list[str]] = {}
    for run in runs:
        value = value_of(run)
        if value:
            found.setdefault(value, []).append(run.path)
    return found


def _listed(values: dict[str, list[str]]) -> str:
    return "; ".join(f"{value} ({_few(paths)})" for value, paths in values.items())


def _few(values: Sequence[str], comma: str = ", ") -> str:
    more = f" and {len(values) - MAX_LISTED} more" if len(values) > MAX_LISTED else ""
    return comma.join(values[:MAX_LISTED]) + more
