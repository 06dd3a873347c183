"""Results of a case: statistics of its repeats, speed-ups, what the device could do at most; what may be compared."""

import re
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from zoo.bench.report import accelerators
from zoo.bench.report.accelerators import Peak
from zoo.bench.report.runs import COUNTED, Case, Run, differing, natural
from zoo.bench.statistics import WIDE, Summary, interval, log_ratio, summarize
from zoo.data.errors import UserError
from zoo.frameworks import FRAMEWORKS

BACKWARD = 3  # operations of an update / those of the forward pass: the backward pass has two products for each of its
MAX_LISTED = 3  # runs that a message names
MAX_EFFICIENCY = 1.2  # of a speed-up that is believed; caches give processes together a little more than alone


class Result(NamedTuple):
    """The complete runs of a case."""

    case: Case  # what they have in common
    runs: Sequence[Run]  # in the order they were given
    speed: Summary | None  # statistics of their throughput; None if none has one
    peak: Peak | None  # of one device; None if not known

    @property
    def speeds(self) -> list[float]:
        """Samples per second of the runs."""
        return [run.values.samples_per_s for run in self.runs if run.values.samples_per_s]

    def median(self, value_of: Callable[[Run], float | None] | str) -> float | None:
        """Return the median over the runs of a value, or of a field of their values; runs without it do not count."""
        of = (lambda run: getattr(run.values, value_of)) if isinstance(value_of, str) else value_of
        values = [value for run in self.runs if (value := of(run)) is not None]
        return statistics.median(values) if values else None

    @property
    def threads(self) -> str | None:
        """Threads of each process that compute, on a CPU, as the framework says."""
        devices = (re.fullmatch(r"cpu \((\d+) .*\)", run.facts.get("device") or "") for run in self.runs)
        return " or ".join(sorted({found[1] for found in devices if found})) or None

    @property
    def mark(self) -> str:
        """What makes the throughput doubtful: busy, noisy, or both."""
        busy = sum(bool(run.facts.get("busy")) for run in self.runs)
        words = [f"busy before {busy} of {len(self.runs)}"] if busy else []
        return ", ".join([*words, "noisy"] if self.speed and self.speed.is_noisy else words)

    @property
    def flops_per_card(self) -> float | None:
        """Operations per second of a card in training: 3 times those of the forward pass."""
        flops = self.median(lambda run: run.flops_per_sample)
        if not (flops and self.speed and self.case.cards):
            return None
        return BACKWARD * flops * self.speed.median / self.case.cards

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization (arXiv:2204.02311): the operations of the model / the peak of the device."""
        return self.flops_per_card / self.peak.flops if self.flops_per_card and self.peak else None

    @property
    def time_to_target(self) -> float | None:
        """Median of the runs' Time2train; None unless all of them reached the target."""
        reached = all(run.values.time_to_target for run in self.runs)
        return self.median("time_to_target") if reached else None


class Ratio(NamedTuple):
    """Throughput of a framework relative to another one's, in otherwise equal cases."""

    case: Case  # of the framework
    base: Case  # that of the other framework
    value: float  # ratio of the medians
    low: float | None  # end of its 95 % confidence interval; None if it says nothing: with one run of either, or WIDE
    high: float | None
    mark: str  # what makes one of them doubtful


def group(runs: Sequence[Run], peak_tflops: float | None = None) -> list[Result]:
    """Return the results of all cases that have a run that counts, sorted; peak_tflops: in place of the table's."""
    members: dict[Case, list[Run]] = {}
    for run in runs:
        if run.state in COUNTED:
            members.setdefault(run.case, []).append(run)
    results = []
    for case in sorted(members, key=order):
        of_case = members[case]
        device = case.device if any(run.facts.get("on_accelerator") for run in of_case) else None
        compute = next((run.compute for run in of_case if run.compute), None)
        peak = accelerators.peak(device, compute, all(run.tf32 for run in of_case), peak_tflops)
        result = Result(case, of_case, None, peak)
        results.append(result._replace(speed=summarize(result.speeds) if result.speeds else None))
    return results


def order(case: Case) -> tuple[list[tuple[int, str]], ...]:
    """Return a key that sorts cases by model, recipe, device, framework, precision, batch and cards."""
    fields = (
        *(case.model, case.recipe, case.device, _rank(case.framework), case.framework),
        *(case.precision != "fp32", case.precision, case.variant),
        *(case.batch or 0, case.accumulate or 0, case.nodes or 0, case.cards or 0, case.counting),
    )
    return tuple(natural(str(value)) for value in fields)


def single_card(result: Result, results: Sequence[Result]) -> Result | None:
    """Return the result on one card that a speed-up is relative to, None without one.

    It has the same batch per card, or else the same global batch.
    """
    case = result.case
    if case.cards is None:
        return None
    anything = dict(batch=None, accumulate=None, nodes=None, cards=None)
    same = [o for o in results if o.case.cards == 1 and o.case._replace(**anything) == case._replace(**anything)]
    per_card = [o for o in same if (o.case.batch, o.case.accumulate) == (case.batch, case.accumulate)]
    overall = [o for o in same if o.case.global_batch is not None and o.case.global_batch == case.global_batch]
    return next(iter(per_card + overall), None)


def speed_up(result: Result, results: Sequence[Result]) -> float | None:
    """Return the throughput relative to that of one card, medians of both; None if it is withheld."""
    base = single_card(result, results)
    if withheld(result, results) or not (base and base.speed and result.speed):
        return None
    return result.speed.median / base.speed.median


def withheld(result: Result, results: Sequence[Result]) -> str | None:
    """Return why no speed-up of a result is believed; None if there is no reason."""
    base = single_card(result, results)
    if not (base and base.speed and result.speed and result.case.cards) or base is result:
        return None
    if base.speed.is_noisy or result.speed.is_noisy:
        return "no speed-up: too noisy"
    return too_fast("speed-up", result.speed.median / base.speed.median, result.case.cards)


def too_fast(name: str, ratio: float | None, cards: int | None) -> str | None:
    """Return why a speed-up is not believed; None if it is."""
    if not ratio or not cards or ratio <= MAX_EFFICIENCY * cards:
        return None
    return f"no {name}: {ratio:.1f} is more than {cards} cards can give"


def time_speed_up(result: Result, results: Sequence[Result]) -> float | None:
    """Return the speed-up by the definition of AI-Rank: Time2train on one card / Time2train."""
    base = single_card(result, results)
    times = (base.time_to_target if base else None), result.time_to_target
    return times[0] / times[1] if times[0] and times[1] else None


def ratios(results: Sequence[Result]) -> list[Ratio]:
    """Compare every framework with the first one that has the same model, precision, batch, cards and device."""
    groups: dict[Case, list[Result]] = {}
    for result in results:
        case = result.case
        if result.speed and case.framework:
            precision = (case.precision or "").partition(" ")[0]  # 16 bits are fp16 in one, bf16 in another
            groups.setdefault(case._replace(framework=None, recipe=None, precision=precision), []).append(result)
    found = []
    for members in groups.values():
        first = min((_rank(result.case.framework), result.case.framework) for result in members)[1]
        bases = [result for result in members if result.case.framework == first]
        for other in members:
            if other.case.framework != first:
                base = next((one for one in bases if one.case.recipe == other.case.recipe), bases[0])
                a, b = base.speeds, other.speeds
                value, several = statistics.median(b) / statistics.median(a), min(len(a), len(b)) > 1
                ends = interval(value, log_ratio(a, b, paired=False).half_width) if several else (0.0, 0.0)
                low, high = ends if ends[1] < WIDE * ends[0] else (None, None)
                mark = "; ".join(dict.fromkeys(filter(None, (other.mark, base.mark))))
                found.append(Ratio(other.case, base.case, value, low, high, mark))
    return sorted(found, key=lambda ratio: order(ratio.case))


def _rank(framework: str | None) -> int:
    return FRAMEWORKS.index(framework) if framework in FRAMEWORKS else len(FRAMEWORKS)


def labels(cases: Sequence[Case]) -> dict[Case, str]:
    """Return a label for each case, of the fields that are not the same in all, and framework and precision."""
    forms = {"nodes": "{} nodes", "cards": "{} cards", "batch": "batch {}", "accumulate": "accumulate {}"}
    fields = [name for name in Case._fields if len({getattr(case, name) for case in cases}) > 1]
    fields = fields if len(fields) > 2 else [n for n in Case._fields if n in (*fields, "framework", "precision")]
    found = {}
    for case in cases:
        words = [(name, getattr(case, name)) for name in fields]
        found[case] = " ".join(forms.get(name, "{}").format(word) for name, word in words if word is not None) or "all"
    return found


ASPECTS: dict[str, Callable[[Run], str | None]] = {
    "targets, so their Time2train cannot be compared": lambda run: None if run.target is None else f"{run.target:g}",
    "data (checksums)": lambda run: run.checksum,
    "architectures (operations of a sample)": lambda run: (
        f"{run.flops_per_sample:.6g}" if run.flops_per_sample else None
    ),
    "devices": lambda run: run.case.device,
    "commits of the code": lambda run: run.facts.get("commit"),
}


def check(shown: Sequence[Run], force: bool) -> list[str]:
    """Return what a reader has to know before comparing runs of the same model. shown: also those that do not count."""
    warnings, runs = [], [run for run in shown if run.state in COUNTED]
    for model in dict.fromkeys(run.case.model for run in shown):
        members = [run for run in runs if run.case.model == model]
        name = model or "a model that is not known"
        protocols = _by_value([run for run in shown if run.case.model == model], lambda run: run.protocol)
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
    resumed = _by_value(runs, lambda run: ", ".join(run.changed) or None)
    return lines + [f"runs of {name} were resumed with another {_listed({key: resumed[key]})}" for key in resumed]


def _repeats(case: Case, runs: Sequence[Run]) -> list[str]:
    """Return a warning if the runs of a case have different settings; none if they are repeats."""
    found = differing([run.settings for run in runs])
    if not found:
        return []
    words = (case.variant, case.framework, case.precision, f"batch {case.batch}", f"{case.cards} card(s)")
    title = f"{case.model or 'a model that is not known'} with {', '.join(word for word in words if word)}"
    paths = _few([run.path for run in runs])
    return [f"the {len(runs)} runs of {title} count as repeats but differ in {', '.join(found)}: {paths}"]


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


def _few(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MAX_LISTED} more" if len(paths) > MAX_LISTED else ""
    return ", ".join(paths[:MAX_LISTED]) + more
