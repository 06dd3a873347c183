"""Options of a stream, and its report: a live line, a row of JSON per prediction, a summary."""

import argparse
import dataclasses
import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, NamedTuple, TextIO

import numpy as np

from zoo.data import fields
from zoo.data.errors import UserError, printable
from zoo.data.fields import Range, SettingError
from zoo.data.transforms.geometry import Size
from zoo.data.transforms.pixels import resize
from zoo.predict import overlay
from zoo.predict.results import Row
from zoo.predict.timeline import Timeline
from zoo.weights import files

TERMINAL_INTERVAL, FILE_INTERVAL = 0.1, 1.0  # seconds between live lines
KEPT_LATENCIES = 10_000  # of the last predictions, for the percentiles of the summary
Number = Annotated[int, Range(low=1, high=1_000_000)]  # beyond all use, and within what Python's containers count
Seconds = Annotated[float, Range(low=0, high=1_000_000, open_low=True)]


@dataclass(frozen=True)
class Options:
    """Options of reading and predicting a stream.

    Attributes:
        source: path of a video, camera, or address.
        realtime: read a file at its own pace, as if it were a camera.
        every: the model sees every n-th frame; None to choose n by the recipe.
        clip_seconds: duration of the training clips, to choose n by; None for that of Kinetics, or of the demo.
        smooth: number of frames whose logits are averaged; default that of mit-han-lab's online_demo/main.py.
        timeout: seconds after which a source that sends nothing is given up.
        annotate: path of the video to write; None for none.
    """

    source: str
    realtime: bool = False
    every: Number | None = None
    clip_seconds: Seconds | None = None
    smooth: Number = 12
    timeout: Seconds = 10.0
    annotate: str | None = None

    def check(self) -> None:
        """Raise UserError for an impossible value."""
        try:
            fields.check(self)
        except SettingError as error:
            raise UserError(f"--{error.name.replace('_', '-')}: {error.reason}") from None
        if self.every is not None and self.clip_seconds is not None:
            raise UserError("--every and --clip-seconds both say which frames the model sees; give one of them")
        if self.annotate is not None:
            files.refuse_existing(self.annotate)

    def of_task(self, task: str) -> "Options":
        """Return the options for a model, of which only classes are averaged. Raises UserError."""
        if task == "classify":
            return self
        if self.smooth not in (1, Options.smooth):
            raise UserError(f"--smooth: is for classes, and the task of this model is {task}; leave it out")
        return dataclasses.replace(self, smooth=1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("streams, of clips best with a causal model (model.shift_direction=causal)")
    add = group.add_argument
    smooth, timeout = Options.smooth, Options.timeout
    add("--stream", metavar="SOURCE", help="a video, a camera (0, /dev/video0), or an rtsp:// or http:// address")
    add("--realtime", action="store_true", help="read a video at its own pace and drop frames, as from a camera")
    add("--every", type=int, metavar="N", help="the model sees every N-th frame; default: by --clip-seconds")
    add("--clip-seconds", type=float, metavar="S", help="length of the training clips; give it unless 10, as Kinetics'")
    add("--smooth", type=int, default=smooth, metavar="N", help=f"frames whose logits are averaged; default {smooth}")
    add("--timeout", type=float, default=timeout, metavar="S", help=f"for a silent source; default {timeout:g} seconds")
    add("--annotate", metavar="VIDEO", help="write a video (mp4) of the frames with their predictions")


def read_options(arguments: argparse.Namespace) -> Options | None:
    names = [field.name for field in dataclasses.fields(Options) if field.name != "source"]
    given = {name: getattr(arguments, name) for name in names}
    if arguments.stream is not None:
        options = Options(arguments.stream, **given)
        options.check()
        return options
    for name, value in given.items():
        if value != getattr(Options, name):
            raise UserError(f"--{name.replace('_', '-')}: is for a stream; give one with --stream SOURCE")
    return None


class Shown(NamedTuple):
    """A frame for the annotated video: its number, pixels (H, W, 3), and the texts that hold for it."""

    number: int
    pixels: np.ndarray
    caption: str
    remark: str


def annotate(shown: Iterable[Shown], rate: Fraction, every: int, live: bool) -> Iterator[overlay.Frame]:
    """Yield the frames of the video, all of one size, with their rate.

    Args:
        shown: frames with the prediction that holds for them. Those of a live source are every n-th frame, some of them
            dropped: in place of a dropped one, the frame before stays, so that the video keeps the time.
        rate: frames per second of the source.
        live: whether the source is.
    """
    size: Size | None = None
    number, drawn = 0, None
    for item in shown:
        pixels = item.pixels
        height, width = pixels.shape[:2]
        size = size or (width, height)
        if size != (width, height):  # a stream may change it
            pixels = resize(pixels, *size, False)
        if live and drawn is not None:
            for _ in range((item.number - number) // every - 1):
                yield drawn, rate / every
        drawn, number = overlay.attach_caption(pixels, item.caption, item.remark), item.number
        yield drawn, rate / every if live else rate


class Report:
    """The predictions of a stream so far.

    Attributes:
        last: time of the last frame, whether predicted or not.
        caption, remark: texts of the last one, for a video.
    """

    def __init__(self, rows: TextIO, timeline: Timeline):
        """Begin. rows: file that gets a line of JSON per prediction."""
        self.rows, self.timeline = rows, timeline
        self.count = 0
        self.dropped = 0
        self.last = 0.0
        self.caption = ""
        self.remark = ""
        self.latencies: deque[float] = deque(maxlen=KEPT_LATENCIES)
        self.start, self.last_line = time.monotonic(), -FILE_INTERVAL
        self.is_terminal = sys.stdout.isatty()

    def add(self, number: int, seconds: float, line: str, row: Row, captured: float, dropped: int) -> None:
        """Record a prediction, now.

        Args:
            line: on the prediction, for where nothing in it has ranks.
            captured: when the frame was, on the clock of time.monotonic.
            dropped: frames that were, so far.
        """
        now = time.monotonic()
        latency = now - captured
        self.count, self.dropped = self.count + 1, dropped
        self.latencies.append(latency)
        timing = {"latency_ms": round(1e3 * latency, 3), "dropped": dropped}
        self.rows.write(json.dumps({"frame": number, "time": round(seconds, 6), **row, **timing}) + "\n")
        self.timeline.add(seconds, row)
        ranked = row.get("predictions") or row.get("shares") or row.get("most_similar")
        self.caption = printable("{} {:.2f}".format(*ranked[0].values()) if ranked else line)
        self.remark = f"{1e3 * latency:.0f} ms  {self.rate(now):.1f}/s"
        self._print_line(now, seconds, latency)

    def rate(self, now: float) -> float:
        """Return the predictions per second since the start."""
        return self.count / max(1e-3, now - self.start)

    def summary(self) -> Row:
        """Return counts, duration, rate, and percentiles of the last latencies."""
        seconds = time.monotonic() - self.start
        row: Row = {
            "predictions": self.count,
            "dropped": self.dropped,
            "seconds": round(seconds, 3),
            "predictions_per_second": round(self.count / max(seconds, 1e-3), 2),
        }
        if self.latencies:
            p50, p99 = np.percentile(self.latencies, (50, 99))
            row |= {"latency_p50_ms": round(1e3 * float(p50), 2), "latency_p99_ms": round(1e3 * float(p99), 2)}
        return row

    def end_line(self) -> None:
        """Leave the last live line on the terminal."""
        if self.is_terminal and self.count:
            print()

    def _print_line(self, now: float, seconds: float, latency: float) -> None:
        if now - self.last_line < (TERMINAL_INTERVAL if self.is_terminal else FILE_INTERVAL):
            return
        self.last_line = now
        line = (
            f"{seconds:9.2f} s  {self.caption}  latency {1e3 * latency:.1f} ms  {self.rate(now):.1f} frames/s  "
            f"dropped {self.dropped}"
        )
        print(f"\r\x1b[K{line}" if self.is_terminal else line, end="" if self.is_terminal else "\n", flush=True)


def describe(summary: Row) -> str:
    text = (
        f"{summary['predictions']} predictions in {summary['seconds']:.1f} s "
        f"({summary['predictions_per_second']:.1f} per second), {summary['dropped']} frames dropped"
    )
    if "latency_p50_ms" in summary:
        text += f"; latency {summary['latency_p50_ms']:.1f} ms median, {summary['latency_p99_ms']:.1f} ms at 99 %"
    return text
