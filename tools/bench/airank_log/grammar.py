"""Grammar of AI-Rank's training logs: the events of a log of any project, and how its lines deviate in form."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import NamedTuple

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


class Event(NamedTuple):
    """An event of a log.

    Attributes:
        name: one of EVENTS.
        time: its time stamp, in seconds.
        line: its number, from 1.
        value: accuracy as printed, seconds or samples per second; None if it is no number that can be meant.
        text: checksum, name of the counter, or unit.
        counter: epochs or steps as printed.
    """

    name: str
    time: Decimal
    line: int
    value: Decimal | None = None
    text: str | None = None
    counter: Decimal | None = None


@dataclass(frozen=True)
class Log:
    """The events of a log.

    Attributes:
        kind: training, inference or other.
        events: in the order of their lines.
        form: deviation of the form of a line -> numbers of the lines.
    """

    kind: str
    events: list[Event]
    form: dict[str, list[int]]

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
