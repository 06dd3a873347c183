"""Reads AI-Rank training logs as people submit them: what they say, and where they leave the rules."""

import argparse
import json
import re
import sys
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple

EPILOG = """\
time_to_target, total_time and samples_per_s are worked out from the time stamps by the definitions of the rules
(github.com/AI-Rank/AI-Rank); where test_finish is missing, samples_per_s goes up to the last evaluation.

example: python tools/check_log.py runs/tsm_k400/airank.log --target 0.711 --samples 234619 --strict

Exit codes: 0 read, 1 --strict and a log deviates, 2 a file cannot be read."""
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
COLON, SEC = r"\s*[:：]\s*", r"\s*(?:sec)?"
TAG = re.compile("(?=AI-Rank-log)", re.I)
STAMP = re.compile(r"AI-Rank-log\s+(?P<time>\d{10}(?:\.\d+)?)\s+")
EVENTS = {
    kind: re.compile(kind + rest)
    for kind, rest in {  # in the order of the rules
        "load_data": rf"(?:\s*,?\s*checksum{COLON}(?P<text>\S*))?",
        "test_begin": "",
        "eval_accuracy": rf"{COLON}(?P<value>{NUMBER}|[-+]?inf|nan)"
        rf"(?:\s*,\s*(?P<text>total_epoch_cnt|global_step){COLON}(?P<counter>\d+(?:\.\d+)?))?",
        "target_quality_time": rf"{COLON}(?P<value>{NUMBER}){SEC}",
        "test_finish": "",
        "total_use_time": rf"{COLON}(?P<value>{NUMBER}){SEC}",
        "avg_ips": rf"{COLON}(?P<value>{NUMBER})\s*(?P<text>[A-Za-z]*\s*/\s*s(?:ec)?)?",
    }.items()
}
PLACE = dict(zip(EVENTS, (0, 1, 2, 2, 3, 4, 5)))  # a target may stand between evaluations
EXACT = re.compile(
    r"AI-Rank-log \d{10}\.\d+ (load_data, checksum:\S+|test_begin|eval_accuracy:N, total_epoch_cnt:N|test_finish|"
    r"target_quality_time:Nsec|total_use_time:Nsec|avg_ips:Nimages/sec)".replace("N", r"\d+(\.\d+)?")
)
INFERENCE = re.compile(r"sampleid|test_end|total_accuracy|total_samples_cnt|warmup_|\w*latency|target_qps|samples_cnt_")
PLACEHOLDER = re.compile(r"[xX?*._<>-]*|missing|none|null|todo|tbd|checksum|md5", re.I)


class Event(NamedTuple):
    kind: str
    time: Decimal
    line: int
    value: Decimal | None = None  # accuracy as printed, seconds or samples per second; None if not a number
    text: str | None = None  # checksum, name of the counter, or unit
    counter: Decimal | None = None  # as printed


class Log(NamedTuple):
    kind: str  # training, inference or other
    events: list[Event]
    form: dict[str, list[int]]  # how lines differ from the form of the rules -> their numbers

    @property
    def evals(self) -> list[Event]:
        return [event for event in self.events if event.kind == "eval_accuracy"]

    @property
    def percent(self) -> bool:
        return any(event.value is not None and event.value > 1 for event in self.evals)

    def first(self, kind: str) -> Event | None:
        return next((event for event in self.events if event.kind == kind), None)

    def epochs(self, event: Event | None) -> Decimal | None:
        """Epochs done at an evaluation: one more than the counter where it starts at 0. None for other counters."""
        if event is None or event.counter is None or event.text != "total_epoch_cnt":
            return None
        return event.counter + (next(other.counter for other in self.evals if other.counter is not None) == 0)


def parse(lines: Iterable[str]) -> Log:
    """The events of a training log, wherever the tag stands in a line; an inference log has none."""
    events: list[Event] = []
    form: dict[str, list[int]] = {}
    inference = False
    for number, line in enumerate(lines, 1):
        before, *pieces = TAG.split(line.rstrip("\r\n"))  # several: lines of several ranks may be glued together
        for piece in pieces:
            stamp = STAMP.match(piece)
            text = piece[stamp.end() :] if stamp else ""
            inference |= bool(INFERENCE.match(text)) or (piece.startswith("AI-Rank-Log") and before.strip().endswith("["))
            event, rest = _event(text, Decimal(stamp["time"]), number) if stamp else (None, "")
            events += [event] if event else []
            differs = {
                "the tag without a time stamp and an event": event is None,
                "a dash in front of the tag": event and before.strip() == "-",
                "other text in front of the tag": event and before.strip("- "),
                "other text glued behind the event": event and rest,
                "blanks, names or units unlike the rules'": event and not rest and not EXACT.fullmatch(piece),
            }
            for what in (what for what, does in differs.items() if does):
                form.setdefault(what, []).append(number)
            before = piece
    return Log("inference" if inference else "training" if events else "other", [] if inference else events, form)


def _event(text: str, time: Decimal, line: int) -> tuple[Event | None, str]:
    """The event a text begins with, and what is glued behind it."""
    for kind, pattern in EVENTS.items():
        match = pattern.match(text)
        if match:
            given = match.groupdict()
            value, counter = (None if given.get(key) is None else Decimal(given[key]) for key in ("value", "counter"))
            value = value if value is not None and value.is_finite() else None
            return Event(kind, time, line, value, given.get("text"), counter), text[match.end() :].strip(" -")
    return None, ""


def reached(log: Log, target: Decimal | None) -> Event | None:
    """The first evaluation at or above the target; each is a fraction, or percent if above 1."""
    want = target and (target / 100 if target > 1 else target) * (100 if log.percent else 1)
    return next((event for event in log.evals if want and event.value is not None and event.value >= want), None)


def throughput(log: Log, samples: int | None, warmup: int) -> Decimal | None:
    """avg_ips by definition, up to test_finish or else the last evaluation."""
    evals = [event for event in log.evals if log.epochs(event) is not None]
    since = next((event for event in evals if log.epochs(event) == warmup), None) if warmup else log.first("test_begin")
    if not (samples and evals and since):
        return None
    seconds = (log.first("test_finish") or evals[-1]).time - since.time
    return (log.epochs(evals[-1]) - warmup) * samples / seconds if seconds > 0 else None


def measure(log: Log, target: Decimal | None, samples: int | None = None, warmup: int = 0) -> dict[str, Any]:
    """What a log declares, and the same worked out from its time stamps; None for what is not there."""
    begin, finish, reach = log.first("test_begin"), log.first("test_finish"), reached(log, target)
    counters = [str(event.counter) for event in log.evals if event.counter is not None]
    best = max((event for event in log.evals if event.value is not None), key=lambda event: event.value, default=None)
    said = {kind: log.first(kind) or Event(kind, Decimal(0), 0) for kind in EVENTS}
    return {
        key: float(value) if isinstance(value, Decimal) else value
        for key, value in {
            "kind": log.kind,
            "checksum": said["load_data"].text,
            "evaluations": len(log.evals),
            "counters": f"{counters[0]}..{counters[-1]}" if counters else None,
            "accuracy_unit": best and ("percent" if log.percent else "fraction"),
            "best": best and best.value,
            "best_counter": best and best.counter,
            "best_epoch": log.epochs(best),
            "target_quality_time": said["target_quality_time"].value,
            "target_epoch": log.epochs(reach),
            "time_to_target": reach.time - begin.time if reach and begin else None,
            "total_use_time": said["total_use_time"].value,
            "total_time": finish.time - begin.time if finish and begin else None,
            "avg_ips": said["avg_ips"].value,
            "avg_ips_unit": said["avg_ips"].text,
            "samples_per_s": throughput(log, samples, warmup),
        }.items()
    }


def deviations(log: Log, target: Decimal | None, samples: int | None = None, warmup: int = 0) -> list[str]:
    """Every way in which a log does not keep to the rules; empty if it keeps to all."""
    if log.kind != "training":
        tagged = f"no event of the rules; {sum(map(len, log.form.values()))} lines carry the tag"
        return ["a log of inference, not of training" if log.kind == "inference" else tagged]
    form = [f"{what}: {len(at)} times, first in line {at[0]}" for what, at in log.form.items()]
    return form + _order(log) + _evaluations(log) + _times(log, target) + _speed(log, samples, warmup)


def _order(log: Log) -> list[str]:
    kinds = [event.kind for event in log.events]
    found = [f"no {kind}" for kind in EVENTS if kind not in kinds and kind != "target_quality_time"]
    found += [f"{kind} {kinds.count(kind)} times" for kind in EVENTS if kind[0] != "e" and kinds.count(kind) > 1]
    for before, after in zip(log.events, log.events[1:]):
        if PLACE[after.kind] < PLACE[before.kind]:
            found.append(f"line {after.line}: {after.kind} comes after {before.kind}")
        if after.time < before.time and PLACE[after.kind] <= PLACE["test_finish"]:
            found.append(f"line {after.line}: its time stamp lies before that of line {before.line}")
    sums = [event.text or "missing" for event in log.events if event.kind == "load_data"]
    return found + [f"the checksum is {text}" for text in sums[:1] if PLACEHOLDER.fullmatch(text)]


def _evaluations(log: Log) -> list[str]:
    found = [f"line {event.line}: the accuracy is not a number" for event in log.evals if event.value is None]
    found += ["accuracies are in percent"] if log.percent else []
    others = {event.text or "nothing" for event in log.evals if event.text != "total_epoch_cnt"}
    if others or not log.evals:
        return found + [f"evaluations count {name}, not epochs" for name in sorted(others)]
    done = [log.epochs(event) for event in log.evals]
    found += ["the epoch counter starts at 0"] if log.evals[0].counter == 0 else []
    if any(after <= before for before, after in zip(done, done[1:])):
        found.append("the epoch counter does not rise with every evaluation")
    elif all(count % 1 == 0 for count in done[:-1]):  # a run may end within an epoch
        found += [
            f"the epoch counter does not go 1, 2, 3 ...: {log.evals[i].counter} at evaluation {i + 1}"
            for i, count in enumerate(done)
            if count % 1 == 0 and count != i + 1
        ][:1]
    marks = zip([0] + done, done, [log.first("test_begin") or log.evals[0]] + log.evals, log.evals)
    paces = sorted((after.time - before.time) / (now - then) for then, now, before, after in marks if now > then)
    odd = paces and paces[0] * 100 < paces[len(paces) // 2]
    return found + ([f"an epoch in {paces[0]:.3f} s, far below the others: time stamps made by hand?"] if odd else [])


def _times(log: Log, target: Decimal | None) -> list[str]:
    found, declared, reach = [], log.first("target_quality_time"), reached(log, target)
    index = log.events.index(declared) if declared else 0
    behind = log.events[index - 1] if index and log.events[index - 1].kind == "eval_accuracy" else None
    if declared and not behind:
        found.append("target_quality_time does not stand right behind an evaluation")
    if reach and behind != reach:
        found.append(f"line {reach.line} reaches the target {target}, but target_quality_time is not right behind it")
    if target is not None and declared and not reach:
        found.append(f"target_quality_time is declared, but no evaluation reaches the target {target}")
    begin, total, finish = (log.first(kind) for kind in ("test_begin", "total_use_time", "test_finish"))
    for said, end in ((declared, reach or behind), (total, finish)):
        if said and begin and end and abs(said.value - (end.time - begin.time)) > Decimal("0.001"):
            found.append(f"{said.kind} is {said.value} s, by the time stamps {end.time - begin.time} s")
    return found


def _speed(log: Log, samples: int | None, warmup: int) -> list[str]:
    said, speed = log.first("avg_ips"), throughput(log, samples, warmup)
    if samples is None or said is None:
        return []
    if speed is None:
        return ["avg_ips cannot be checked: no evaluation ends the warm-up, or nothing comes behind it"]
    rounding = Decimal(1).scaleb(said.value.as_tuple().exponent) / 2  # and that of the counter, of two decimals
    slack = rounding + speed / 1000 + (speed / log.evals[-1].counter / 200 if log.evals[-1].counter % 1 else 0)
    return [f"avg_ips is {said.value}, by definition {speed:.3f}"] if abs(said.value - speed) > slack else []


def render(report: dict[str, Any]) -> str:
    """A report for a person."""
    facts = {key: value for key, value in report.items() if key not in ("file", "deviations") and value is not None}
    lines = [f"  {key:<19} {f'{value:.10g}' if isinstance(value, float) else value}" for key, value in facts.items()]
    return "\n".join([report["file"]] + lines + [f"  deviates: {text}" for text in report["deviations"] or ["nowhere"]])


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("check_log.py", description=__doc__, epilog=EPILOG, formatter_class=raw)
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+")
    add("--target", type=accuracy, metavar="ACCURACY", help="a fraction, or percent if above 1")
    add("--samples", type=int, metavar="N", help="training samples per epoch, to work out avg_ips")
    add("--warmup-epochs", type=int, default=0, metavar="N", help="epochs that avg_ips leaves out; default 0")
    add("--strict", action="store_true", help="exit 1 unless every log keeps to every rule")
    add("--json", action="store_true", help="print a JSON list instead of text")
    given = parser.parse_args(argv)
    options, reports = (given.target, given.samples, given.warmup_epochs), []
    for path in given.files:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                log = parse(file)
        except OSError as error:
            print(f"error: {path}: cannot be read ({error.strerror})", file=sys.stderr)
            return 2
        reports.append({"file": path, **measure(log, *options), "deviations": deviations(log, *options)})
    print(json.dumps(reports, indent=1) if given.json else "\n".join(map(render, reports)))
    return int(given.strict and any(report["deviations"] for report in reports))


def accuracy(text: str) -> Decimal:
    if not re.fullmatch(r"\d*\.?\d+", text) or not float(text):
        raise ValueError
    return Decimal(text)


if __name__ == "__main__":
    sys.exit(main())
