"""The options of a stream on the command line of tools/predict.py."""

import argparse
import os
from dataclasses import dataclass

from zoo.data.errors import UserError
from zoo.weights import files

SMOOTH = 12  # frames whose logits upstream's demo adds up (mit-han-lab, online_demo/main.py)
TIMEOUT = 10.0  # seconds
VIDEO_EXTENSION = ".mp4"
MAX_FRAMES, MAX_SECONDS = 1_000_000, 1_000_000  # beyond all use, and within what Python's containers count


@dataclass(frozen=True)
class Options:
    """How a stream is read and predicted.

    Attributes:
        source: path of a video, camera, or address.
        realtime: read a file at its own pace, as if it were a camera.
        every: the model sees every n-th frame; None to choose n by the recipe.
        clip_seconds: duration of the training clips, to choose n by; None for that of the data set.
        smooth: number of frames whose logits are averaged.
        timeout: seconds after which a source that sends nothing is given up.
        annotate: path of the video to write; None for none.
    """

    source: str
    realtime: bool = False
    every: int | None = None
    clip_seconds: float | None = None
    smooth: int = SMOOTH
    timeout: float = TIMEOUT
    annotate: str | None = None

    def check(self) -> None:
        """Raise UserError for an impossible value."""
        for name, count in (("--every", self.every), ("--smooth", self.smooth)):
            if count is not None and not 1 <= count <= MAX_FRAMES:
                raise UserError(f"{name}: must be at least 1, and at most {MAX_FRAMES}")
        for name, seconds in (("--clip-seconds", self.clip_seconds), ("--timeout", self.timeout)):
            if seconds is not None and not 0 < seconds <= MAX_SECONDS:
                raise UserError(f"{name}: must be a number of seconds above 0, and at most {MAX_SECONDS}")
        if self.every is not None and self.clip_seconds is not None:
            raise UserError("--every and --clip-seconds both say which frames the model sees; give one of them")
        if self.annotate is not None:
            if not self.annotate.lower().endswith(VIDEO_EXTENSION):
                raise UserError(f"--annotate {self.annotate}: the name must end in {VIDEO_EXTENSION}")
            if not os.path.isdir(os.path.dirname(self.annotate) or "."):
                raise UserError(f"--annotate {self.annotate}: its folder does not exist; create it first")
            files.refuse_existing(self.annotate)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a stream."""
    group = parser.add_argument_group("streams, with a causal model of clips (model.shift_direction=causal)")
    add = group.add_argument
    add("--stream", metavar="SOURCE", help="a video, a camera (0, /dev/video0), or an rtsp:// or http:// address")
    add("--realtime", action="store_true", help="read a video at its own pace and drop frames, as from a camera")
    add("--every", type=int, metavar="N", help="the model sees every N-th frame; default: as far apart as in training")
    add("--clip-seconds", type=float, metavar="S", help="duration of the training clips, to choose --every by")
    add("--smooth", type=int, default=SMOOTH, metavar="N", help=f"frames whose logits are averaged; default {SMOOTH}")
    add("--timeout", type=float, default=TIMEOUT, metavar="S", help=f"for a silent source; default {TIMEOUT:g} seconds")
    add("--annotate", metavar="VIDEO", help=f"write a video ({VIDEO_EXTENSION}) with the label below every frame")


def read(arguments: argparse.Namespace) -> Options | None:
    """Return the options of a stream; None without --stream.

    Raises:
        UserError: one of them is impossible, or stands without --stream.
    """
    if arguments.stream is not None:
        names = ("realtime", "every", "clip_seconds", "smooth", "timeout", "annotate")
        options = Options(arguments.stream, **{name: getattr(arguments, name) for name in names})
        options.check()
        return options
    given = {
        "--realtime": arguments.realtime,
        "--every": arguments.every is not None,
        "--clip-seconds": arguments.clip_seconds is not None,
        "--smooth": arguments.smooth != SMOOTH,
        "--timeout": arguments.timeout != TIMEOUT,
        "--annotate": arguments.annotate is not None,
    }
    for name, is_given in given.items():
        if is_given:
            raise UserError(f"{name}: is for a stream; give one with --stream SOURCE")
    return None
