"""Check AI-Rank training logs, of any project: read their events and list their deviations from the rules."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from zoo import program
from zoo.commands.new_file import add_json_argument, print_report, require_new
from zoo.data.errors import UserError
from zoo.program import count, natural

EPILOG = """\
time_to_target, total_time and samples_per_s are computed from the time stamps by the definitions of the rules
(github.com/AI-Rank/AI-Rank); where test_finish is missing, samples_per_s counts up to the last evaluation.

example: %(prog)s runs/tsm_k400/airank.log --target 0.711 --samples 234619

Exit codes: 0 no deviation, 1 a log deviates, 2 a file cannot be read."""
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
COLON, SEC = r"\s*[:：]\s*", r"\s*(?:sec)?"
TAG = re.compile("(?=AI-Rank-log)", re.I)
STAMP = re.compile(r"AI-Rank-log\s+(?P<time>\d{10}(?:\.\d+)?)\s+")
EVENTS = {
    name: re.compile(name + rest)
    for name, rest in {  # in the order of the rules
        "load_data": rf"(?:\s*(?:,\s*)?checksum{COLON}(?P<text>\S*))?",
        "test_begin": "",
        "eval_accuracy": rf"{COLON}(?P<value>{NUMBER}|[-+]?inf|nan)"
        rf"(?:\s*,\s*(?P<text>total_epoch_cnt|global_step){COLON}(?P<counter>\d+(?:\.\d+)?))?",
        "target_quality_time": rf"{COLON}(?P<value>{NUMBER}){SEC}",
        "test_finish": "",
        "total_use_time": rf"{COLON}(?P<value>{NUMBER}){SEC}",
        "avg_ips": rf"{COLON}(?P<value>{NUMBER})\s*(?P<text>(?:[A-Za-z]+\s*)?/\s*s(?:ec)?)?",
    }.items()
}
EXACT = re.compile(
    r"AI-Rank-log \d{10}\.\d+ (load_data, checksum:\S+|test_begin|eval_accuracy:N, total_epoch_cnt:N|test_finish|"
    r"target_quality_time:Nsec|total_use_time:Nsec|avg_ips:Nimages/sec)".replace("N", r"\d+(\.\d+)?")
)
INFERENCE = re.compile(r"sampleid|test_end|total_accuracy|total_samples_cnt|warmup_|\w*latency|target_qps|samples_cnt_")
MAX_MAGNITUDE = 15  # decimal digits before the point, or zeros behind it, of a number that can be meant
POSITION = dict(zip(EVENTS, (0, 1, 2, 2, 3, 4, 5)))  # target_quality_time may come between evaluations
REPEATABLE = "eval_accuracy"
DECLARED = ("target_quality_time", "total_use_time", "avg_ips")
PLACEHOLDER = re.compile(r"[xX?*._<>-]*|missing|none|null|todo|tbd|checksum|md5", re.I)
TIME_TOLERANCE = Decimal("0.001")  # seconds
MAX_SPEEDUP = 100  # an epoch that is so much faster than the median one is implausible


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parser().parse_args(argv)
    require_new(arguments.json, "--json")
    options = (arguments.target, arguments.samples, arguments.warmup_epochs)
    reports = []
    for path in arguments.files:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                log = parse(file)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
        reports.append({"file": path, **measure(log, *options), "deviations": deviations(log, *options)})
    print_report([line for report in reports for line in describe(report)], reports, arguments.json)
    return int(any(report["deviations"] for report in reports))


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+")
    add("--target", type=accuracy, metavar="ACCURACY", help="a fraction, or percent if above 1")
    add("--samples", type=count, metavar="N", help="training samples per epoch, to compute avg_ips")
    add("--warmup-epochs", type=natural, default=0, metavar="N", help="epochs that avg_ips leaves out; default 0")
    add_json_argument(parser)
    return parser


def describe(report: dict[str, Any]) -> list[str]:
    values = {key: value for key, value in report.items() if key not in ("file", "deviations") and value is not None}
    lines = [f"  {key:<19} {f'{value:.10g}' if isinstance(value, float) else value}" for key, value in values.items()]
    return [report["file"], *lines, *(f"  deviates: {text}" for text in report["deviations"] or ["nowhere"])]


def accuracy(text: str) -> Decimal:
    """Parse an accuracy above 0. Raises ValueError."""
    if not re.fullmatch(r"\d{0,9}\.?\d{1,20}", text) or not float(text):
        raise ValueError
    return Decimal(text)


class Event(NamedTuple):
    name: str  # one of EVENTS
    time: Decimal  # its time stamp, in seconds
    line: int  # its number, from 1
    # accuracy as printed, seconds or samples per second; None if it is no number that can be meant
    value: Decimal | None = None
    text: str | None = None  # checksum, name of the counter, or unit
    counter: Decimal | None = None  # epochs or steps as printed


@dataclass(frozen=True)
class Log:
    kind: str  # training, inference or other
    events: list[Event]  # in the order of their lines
    form: dict[str, list[int]]  # deviation of the form of a line -> numbers of the lines

    @cached_property
    def evals(self) -> list[Event]:
        return [event for event in self.events if event.name == "eval_accuracy"]

    @cached_property
    def percent(self) -> bool:
        """Accuracies are in percent, not fractions."""
        return any(event.value is not None and event.value > 1 for event in self.evals)

    def first(self, name: str) -> Event | None:
        return next((event for event in self.events if event.name == name), None)

    def epochs(self, event: Event | None) -> Decimal | None:
        """Return the epochs done at an evaluation: one more than a counter that starts at 0. None for steps."""
        if event is None or event.counter is None or event.text != "total_epoch_cnt":
            return None
        return event.counter + self._starts_at_0

    @cached_property
    def _starts_at_0(self) -> bool:
        return next((event.counter for event in self.evals if event.counter is not None), None) == 0


def parse(lines: Iterable[str]) -> Log:
    """Read the events of a training log, wherever the tag is in a line; a log of inference has none."""
    events: list[Event] = []
    form: dict[str, list[int]] = {}
    is_inference = False
    for number, line in enumerate(lines, 1):
        prefix, *pieces = TAG.split(line.rstrip("\r\n"))  # several: lines of several ranks may be joined
        for piece in pieces:
            stamp = STAMP.match(piece)
            text = piece[stamp.end() :] if stamp else ""
            is_inference |= bool(INFERENCE.match(text))
            is_inference |= piece.startswith("AI-Rank-Log") and prefix.strip().endswith("[")
            event, rest = _event(text, Decimal(stamp["time"]), number) if stamp else (None, "")
            if event:
                events.append(event)
            for deviation in _form_deviations(event, prefix, piece, rest):
                form.setdefault(deviation, []).append(number)
            prefix = piece
    kind = "inference" if is_inference else "training" if events else "other"
    return Log(kind, [] if is_inference else events, form)


def _event(text: str, time: Decimal, line: int) -> tuple[Event | None, str]:
    """Return the event that a text begins with, and the text behind it."""
    for name, pattern in EVENTS.items():
        match = pattern.match(text)
        if match:
            groups = match.groupdict()
            value, counter = (_number(groups.get(key)) for key in ("value", "counter"))
            return Event(name, time, line, value, groups.get("text"), counter), text[match.end() :].strip(" -")
    return None, ""


def _number(text: str | None) -> Decimal | None:
    """Convert the text of a number; None without one, or for one so large or small that arithmetic might fail."""
    try:
        number = Decimal(text or "nan")
    except InvalidOperation:  # an exponent of many digits
        return None
    return number if number.is_finite() and abs(number.adjusted()) <= MAX_MAGNITUDE else None


def _form_deviations(event: Event | None, prefix: str, piece: str, rest: str) -> list[str]:
    """List the differences between a line and the form of the rules."""
    if event is None:
        return ["the tag without a time stamp and an event"]
    deviations = []
    if prefix.strip("- "):  # the example of the rules has dashes, their text has none
        deviations.append("other text in front of the tag")
    if rest:
        deviations.append("other text directly behind the event")
    elif not EXACT.fullmatch(piece):
        deviations.append("blanks, names or units unlike the rules'")
    return deviations


class Stretch(NamedTuple):
    """The part of a run that avg_ips counts."""

    epochs: Decimal
    seconds: Decimal
    rounding: Decimal  # largest error of `epochs` from the counters' decimals


def reached(log: Log, target: Decimal | None) -> Event | None:
    """Return the first evaluation at or above a target; log and target are fractions, or percent if above 1."""
    if not target:
        return None
    fraction = target / 100 if target > 1 else target
    threshold = fraction * (100 if log.percent else 1)
    return next((event for event in log.evals if event.value is not None and event.value >= threshold), None)


def stretch(log: Log, warmup: int) -> Stretch | None:
    """Return the part of a run from the end of its warm-up to test_finish, or else to the last evaluation.

    The warm-up ends with the last evaluation in it, or is left out where there is none.
    """
    evals = [(event, epochs) for event in log.evals if (epochs := log.epochs(event)) is not None]
    start, skipped, rounding = log.first("test_begin"), Decimal(0), Decimal(0)
    for event, epochs in evals:
        if epochs <= warmup:
            start, skipped, rounding = event, epochs, rounding_error(event.counter)
    if not evals or start is None:
        return None
    last, epochs = evals[-1]
    seconds = (log.first("test_finish") or last).time - start.time
    if seconds <= 0 or epochs <= skipped:
        return None
    return Stretch(epochs - skipped, seconds, rounding + rounding_error(last.counter))


def rounding_error(counter: Decimal | None) -> Decimal:
    """Return by how much a printed counter may differ from the real one: whole ones are exact."""
    return half_of_last_digit(counter) if counter is not None and counter % 1 else Decimal(0)


def half_of_last_digit(value: Decimal) -> Decimal:
    """Return by how much a printed value may differ from what was rounded to it."""
    return Decimal(1).scaleb(int(value.as_tuple().exponent)) / 2


def measure(log: Log, target: Decimal | None, samples: int | None = None, warmup: int = 0) -> dict[str, Any]:
    """Return the declared values of a log and those computed from its time stamps; None for missing ones."""
    begin, finish, reach = log.first("test_begin"), log.first("test_finish"), reached(log, target)
    counters = [str(event.counter) for event in log.evals if event.counter is not None]
    accuracies = [(event.value, event) for event in log.evals if event.value is not None]
    accuracy, best = max(accuracies, key=lambda pair: pair[0], default=(None, None))
    declared = {name: log.first(name) or Event(name, Decimal(0), 0) for name in EVENTS}
    counted = stretch(log, warmup)
    values = {
        "kind": log.kind,
        "checksum": declared["load_data"].text,
        "evaluations": len(log.evals),
        "counters": f"{counters[0]}..{counters[-1]}" if counters else None,
        "accuracy_unit": best and ("percent" if log.percent else "fraction"),
        "best": accuracy,
        "best_counter": best and best.counter,
        "best_epoch": log.epochs(best),
        "target_quality_time": declared["target_quality_time"].value,
        "target_epoch": log.epochs(reach),
        "time_to_target": reach.time - begin.time if reach and begin else None,
        "total_use_time": declared["total_use_time"].value,
        "total_time": finish.time - begin.time if finish and begin else None,
        "avg_ips": declared["avg_ips"].value,
        "avg_ips_unit": declared["avg_ips"].text,
        "samples_per_s": counted.epochs * samples / counted.seconds if samples and counted else None,
    }
    return {key: float(value) if isinstance(value, Decimal) else value for key, value in values.items()}


def deviations(log: Log, target: Decimal | None, samples: int | None = None, warmup: int = 0) -> list[str]:
    """List the deviations of a log from the rules; empty if there are none.

    Args:
        target: accuracy as a fraction, or percent if above 1; None not to check it.
        samples: training samples per epoch; None not to check avg_ips.
        warmup: epochs that avg_ips leaves out.
    """
    if log.kind == "inference":
        return ["a log of inference, not of training"]
    if log.kind != "training":
        return [f"no event of the rules; {sum(map(len, log.form.values()))} lines carry the tag"]
    form = [f"{deviation}: {len(lines)} times, first in line {lines[0]}" for deviation, lines in log.form.items()]
    return form + _order(log) + _numbers(log) + _evaluations(log) + _times(log, target) + _speed(log, samples, warmup)


def _order(log: Log) -> list[str]:
    names = [event.name for event in log.events]
    lines = [f"no {name}" for name in EVENTS if name not in names and name != "target_quality_time"]
    lines += [f"{name} {names.count(name)} times" for name in EVENTS if name != REPEATABLE and names.count(name) > 1]
    for before, after in pairwise(log.events):
        if POSITION[after.name] < POSITION[before.name]:
            lines.append(f"line {after.line}: {after.name} comes after {before.name}")
        if after.time < before.time and POSITION[after.name] <= POSITION["test_finish"]:
            lines.append(f"line {after.line}: its time stamp is before that of line {before.line}")
    data = log.first("load_data")
    checksum = (data.text or "missing") if data else ""
    return lines + ([f"the checksum is {checksum}"] if data and PLACEHOLDER.fullmatch(checksum) else [])


def _numbers(log: Log) -> list[str]:
    """List the numbers that cannot be used, because they are too large or too small."""
    unusable = [(event, event.name) for event in log.events if event.name in DECLARED and event.value is None]
    unusable += [(event, event.text) for event in log.evals if event.text and event.counter is None]
    return [f"line {event.line}: {name} is not a number that can be meant" for event, name in unusable]


def _evaluations(log: Log) -> list[str]:
    lines = [f"line {event.line}: the accuracy is not a number" for event in log.evals if event.value is None]
    lines += ["accuracies are in percent"] if log.percent else []
    other_counters = {event.text or "nothing" for event in log.evals if event.text != "total_epoch_cnt"}
    if other_counters or not log.evals:
        return lines + [f"evaluations count {name}, not epochs" for name in sorted(other_counters)]
    epochs = [count for event in log.evals if (count := log.epochs(event)) is not None]
    lines += ["the epoch counter starts at 0"] if log.evals[0].counter == 0 else []
    if any(after <= before for before, after in pairwise(epochs)):
        lines.append("the epoch counter does not rise with every evaluation")
    elif all(count % 1 == 0 for count in epochs[:-1]):  # a run may end within an epoch
        lines += [
            f"the epoch counter does not go 1, 2, 3 ...: {log.evals[i].counter} at evaluation {i + 1}"
            for i, count in enumerate(epochs)
            if count % 1 == 0 and count != i + 1
        ][:1]
    starts = [log.first("test_begin") or log.evals[0], *log.evals]
    intervals = zip(starts, log.evals, [Decimal(0), *epochs], epochs)
    seconds = sorted((end.time - start.time) / (b - a) for start, end, a, b in intervals if b > a)
    if seconds and seconds[0] * MAX_SPEEDUP < seconds[len(seconds) // 2]:
        lines.append(f"an epoch in {seconds[0]:.3f} s, far below the others: time stamps made by hand?")
    return lines


def _times(log: Log, target: Decimal | None) -> list[str]:
    lines, declared, reach = [], log.first("target_quality_time"), reached(log, target)
    index = log.events.index(declared) if declared else 0
    before = log.events[index - 1] if index and log.events[index - 1].name == "eval_accuracy" else None
    if declared and not before:
        lines.append("target_quality_time is not right behind an evaluation")
    if reach and before != reach:
        lines.append(f"line {reach.line} reaches the target {target}, but target_quality_time is not right behind it")
    if target is not None and declared and not reach:
        lines.append(f"target_quality_time is declared, but no evaluation reaches the target {target}")
    begin, total, finish = (log.first(name) for name in ("test_begin", "total_use_time", "test_finish"))
    for event, end in ((declared, reach or before), (total, finish)):
        if event and event.value is not None and begin and end:
            seconds = end.time - begin.time
            if abs(event.value - seconds) > max(TIME_TOLERANCE, half_of_last_digit(event.value)):
                lines.append(f"{event.name} is {event.value} s, by the time stamps {seconds} s")
    return lines


def _speed(log: Log, samples: int | None, warmup: int) -> list[str]:
    """Compare avg_ips with its definition, as closely as time stamps and the decimals of the counters allow."""
    declared, counted = log.first("avg_ips"), stretch(log, warmup)
    if not samples or declared is None or declared.value is None:
        return []
    if counted is None:
        return ["avg_ips cannot be checked: no evaluation ends the warm-up, or nothing comes behind it"]
    speed = counted.epochs * samples / counted.seconds
    relative = counted.rounding / counted.epochs + 2 * TIME_TOLERANCE / counted.seconds
    is_off = abs(declared.value - speed) > speed * relative + half_of_last_digit(declared.value)
    return [f"avg_ips is {declared.value}, by definition {speed:.3f}"] if is_off else []
