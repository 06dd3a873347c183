"""The tables of `zoo compare seeds`, and its paired t-test."""

import math
import statistics
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from zoo.logs import journal
from zoo.table import table

CONFIDENCE = 0.95


class Result(NamedTuple):
    """A complete run.

    Attributes:
        last: the main metric at its end.
        steps_to_target: updates until the target was reached; None if it was not.
        seconds_to_target: time until then, from the beginning; None if it was not, or if the run was resumed.
    """

    framework: str
    seed: int
    last: float
    best: float
    steps_to_target: int | None = None
    seconds_to_target: float | None = None


class Study(NamedTuple):
    """The runs of a recipe.

    Attributes:
        target: of the main metric; None without one.
    """

    recipe: str
    metric: str
    target: float | None
    results: Sequence[Result]

    @property
    def frameworks(self) -> list[str]:
        return list(dict.fromkeys(result.framework for result in self.results))

    @property
    def seeds(self) -> list[int]:
        return sorted({result.seed for result in self.results})

    def of(self, framework: str) -> list[Result]:
        return sorted((result for result in self.results if result.framework == framework), key=lambda r: r.seed)


class PairedTest(NamedTuple):
    """Mean of paired differences.

    Attributes:
        half_width: of its confidence interval: the least mean difference that is significant.
        p: two-sided probability of a mean this far from 0 if the true one is 0.
    """

    mean: float
    half_width: float
    p: float


def read_result(folder: str, framework: str, seed: int, target: float | None) -> Result | None:
    """Read a run from its journal; None if it has not reached its end."""
    events = journal.history(folder)
    evaluations = journal.named(events, "eval")
    if not evaluations or not journal.first(events, "end"):
        return None
    accuracies = [event["accuracy"] for event in evaluations]
    best = max(filter(math.isfinite, accuracies), default=math.nan)
    reached = next((event for event in evaluations if target is not None and event["accuracy"] >= target), None)
    steps = seconds = None
    if reached:
        steps = reached["step"]
        begin = journal.first(events, "begin")
        if begin and not journal.first(events, "resume"):
            seconds = reached["time"] - begin["time"]
    return Result(framework, seed, accuracies[-1], best, steps, seconds)


def paired_test(differences: Sequence[float]) -> PairedTest:
    """Test whether the mean of at least two differences is 0, by Student's t."""
    from scipy import stats

    if len(set(differences)) == 1:
        return PairedTest(differences[0], 0.0, 0.0 if differences[0] else 1.0)
    test = stats.ttest_1samp(differences, 0.0)
    low, high = test.confidence_interval(CONFIDENCE)
    return PairedTest(statistics.mean(differences), float(high - low) / 2, float(test.pvalue))


def lines(study: Study) -> list[str]:
    """Return the tables in Markdown: a row per framework, then one per pair of frameworks."""
    of_target = f"target {study.target:g}" if study.target is not None else "target"
    columns = ("framework", "mean", "sd", "min", "max", "best: mean", "sd", of_target, "steps", "minutes")
    rows = [_framework_row(framework, study.of(framework)) for framework in study.frameworks]
    text = [f"{study.recipe}: {study.metric} over the seeds {', '.join(map(str, study.seeds))}", ""]
    text += table(rows, columns, markdown=True)
    if len(study.frameworks) > 1:
        of_pairs = ("difference", "mean", f"{CONFIDENCE:.0%} interval", "half width", "p")
        pairs = [_pair_row(study, a, b) for a, b in combinations(study.frameworks, 2)]
        text += ["", *table(pairs, of_pairs, markdown=True)]
    return text


def _framework_row(framework: str, results: Sequence[Result]) -> list[str]:
    last, best = [result.last for result in results], [result.best for result in results]
    steps = [result.steps_to_target for result in results if result.steps_to_target is not None]
    seconds = [result.seconds_to_target for result in results if result.seconds_to_target is not None]
    cells = [framework, *(f"{value:.4f}" for value in (statistics.mean(last), statistics.stdev(last)))]
    cells += [f"{value:.4f}" for value in (min(last), max(last), statistics.mean(best), statistics.stdev(best))]
    cells += [f"{len(steps)} of {len(results)}", f"{statistics.mean(steps):.0f}" if steps else ""]
    cells += [f"{statistics.mean(seconds) / 60:.1f}" if seconds else ""]
    return cells


def _pair_row(study: Study, a: str, b: str) -> list[str]:
    """Return the row of a pair of frameworks, compared over the seeds that both have."""
    metric_of = {result.seed: result.last for result in study.of(b)}
    test = paired_test([result.last - metric_of[result.seed] for result in study.of(a)])
    low, high = test.mean - test.half_width, test.mean + test.half_width
    verdict = "significant" if test.p < 1 - CONFIDENCE else "not significant"
    interval = f"{low:+.4f} to {high:+.4f}"
    return [f"{a} - {b}", f"{test.mean:+.4f}", interval, f"{test.half_width:.4f}", f"{test.p:.3f}, {verdict}"]
