"""Sources of frames: video files, cameras, and streams by RTSP or HTTP; of live ones, the newest frame alone."""

import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from zoo.data.errors import UserError, parsing
from zoo.data.extras import av, cv2
from zoo.data.formats import video
from zoo.predict.urls import without_secrets

CAMERA = re.compile(r"(?:/dev/video)?(\d+)")
URL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
# Protocols of FFmpeg that an address may lead to; a stream that names files of this machine is refused.
PROTOCOLS = {
    "rtsp": "rtsp,rtp,tcp,udp",
    "rtsps": "rtsp,rtsps,rtp,tcp,udp,tls",
    "http": "http,tcp,httpproxy",
    "https": "http,https,tcp,tls,httpproxy",
}
STREAM_FORMATS = f"{video.FORMATS},rtsp,mpjpeg"
# The decoder holds back no frame. FFmpeg's "nobuffer" would lose the frames that it reads to open a stream, with the
# first key frame among them, and a queue of such frames is passed over at once: only the newest frame is kept.
LOW_LATENCY = {"rtsp_transport": "tcp", "flags": "low_delay"}
MAX_RATE = 1000  # frames per second; cameras and streams report impossible rates where they know none
POLL = 0.1  # seconds between looks at what may end the wait for a frame


class Frame(NamedTuple):
    """A decoded frame.

    Attributes:
        number: among all frames of the source, from 0.
        time: seconds since the first one.
        pixels: function that converts it to uint8 RGB (H, W, 3); for one thread at a time.
    """

    number: int
    time: float
    pixels: Callable[[], np.ndarray]


class Source(NamedTuple):
    """An opened source.

    Attributes:
        is_live: frames come when the source has them, and are lost if they are not taken.
        rate: frames per second; None if the source does not tell.
        frames: decoded one by one. Raises UserError where the source fails.
    """

    name: str
    is_live: bool
    rate: Fraction | None
    frames: Iterator[Frame]
    close: Callable[[], None]


def open_source(source: str, timeout: float) -> Source:
    """Open a source.

    Args:
        source: path of a video, number or device file of a camera, or address.
        timeout: seconds after which a stream that sends nothing is given up.
    """
    address, camera = URL.match(source), CAMERA.fullmatch(source)
    if address:
        return _open_url(source, address[1].lower(), timeout)
    if camera and (source.startswith("/dev/") or not os.path.exists(source)):
        return _open_camera(int(camera[1]))
    return _open_file(source)


def stalled(name: str, timeout: float) -> UserError:
    """Return the error of a source that has sent no frame for `timeout` seconds."""
    return UserError(f"{name}: no frame for {timeout:g} s; check the source, or wait longer with --timeout")


def _open_file(path: str) -> Source:
    if not os.path.isfile(path):
        raise UserError(
            f"--stream {path}: no such file; give a video, a camera (0, /dev/video0), or an rtsp:// or http:// address"
        )
    with parsing(f"--stream {path}: cannot be opened as video"):
        container = video.open_container(path)
    return _opened(path, container, False, None)


def _open_url(url: str, scheme: str, timeout: float) -> Source:
    name = without_secrets(url)
    if scheme not in PROTOCOLS:
        raise UserError(f"--stream {name}: {scheme}:// is not supported; give one of {', '.join(PROTOCOLS)}")
    options = {"format_whitelist": STREAM_FORMATS, "protocol_whitelist": PROTOCOLS[scheme], **LOW_LATENCY}
    with parsing(f"--stream {name}: cannot be opened", "check the address"):
        try:
            container = av.open(url, options=options, timeout=timeout)
        except av.error.ExitError:
            raise UserError(
                f"--stream {name}: no answer within {timeout:g} s; check the address, or --timeout"
            ) from None
    return _opened(name, container, True, timeout)


def _opened(name: str, container: Any, is_live: bool, timeout: float | None) -> Source:
    stream = container.streams.best("video")
    if not isinstance(stream, av.VideoStream):
        container.close()
        raise UserError(f"--stream {name}: there is no video in it")
    # Several threads decode a file faster; by frame, they would hold back as many frames of a live stream.
    stream.thread_type = "SLICE" if is_live else "AUTO"
    rate = stream.average_rate or stream.guessed_rate
    if rate is not None and not 0 < rate <= MAX_RATE:
        rate = None
    return Source(name, is_live, rate, _decode(name, container, stream, rate, timeout), container.close)


def _decode(name: str, container: Any, stream: Any, rate: Fraction | None, timeout: float | None) -> Iterator[Frame]:
    """Yield the frames of a container. timeout: that of an address; None for a file."""
    convert, start = video.rgb_converter(), None
    with parsing(f"{name}: {'cannot be decoded any further' if timeout is None else 'the stream was cut'}"):
        try:
            for number, frame in enumerate(container.decode(stream)):
                seconds = frame.time if frame.time is not None else float(number / (rate or 1))
                start = seconds if start is None else start

                def pixels(frame: Any = frame) -> np.ndarray:
                    return np.ascontiguousarray(convert(frame))

                yield Frame(number, seconds - start, pixels)
        except av.error.ExitError:
            raise stalled(name, timeout or 0) from None
    if start is None:
        raise UserError(f"--stream {name}: there is no frame in it")


def _open_camera(number: int) -> Source:
    path = f"/dev/video{number}"
    if not os.path.exists(path):
        raise UserError(f"--stream {number}: there is no camera {path}; `ls /dev/video*` lists those that there are")
    capture = cv2.VideoCapture(number, cv2.CAP_V4L2)
    if not capture.isOpened():
        raise UserError(
            f"--stream {number}: {path} cannot be opened; another program may use it, or this user may lack the "
            "permission (group video)"
        )
    capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)  # the driver's queue would add to the latency
    rate = capture.get(cv2.CAP_PROP_FPS)
    known = Fraction(rate).limit_denominator(1001) if 0 < rate <= MAX_RATE else None
    return Source(path, True, known, _grab(path, capture), capture.release)


def _grab(path: str, capture: Any) -> Iterator[Frame]:
    start = None
    for number in itertools.count():
        is_read, image = capture.read()
        if not is_read:
            raise UserError(f"{path}: the camera gives no more frames; is it still connected?")
        now = time.monotonic()
        start = now if start is None else start

        def pixels(image: np.ndarray = image) -> np.ndarray:
            return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)

        yield Frame(number, now - start, pixels)


class Captured(NamedTuple):
    """A frame and when it was captured, on the clock of time.monotonic."""

    frame: Frame
    at: float


class LatestFrame:
    """The newest frame of a source. A frame that is not taken before the next one comes is dropped, and counted."""

    def __init__(self, source: Source, every: int, timeout: float, stopped: Callable[[], bool]):
        """Start the thread.

        Args:
            every: only each every-th frame counts; the others are decoded and passed over.
            timeout: seconds after which a source that gives no frame is given up.
        """
        self.source = source
        self.every = every
        self.timeout = timeout
        self.stopped = stopped
        self.dropped = 0
        self._slot: Captured | None = None
        self._last_sign = time.monotonic()
        self._error: Exception | None = None
        self._has_ended = self._is_closed = False
        self._changed = threading.Condition()
        # The thread may wait for a source that never answers again, and must not keep the program alive.
        self._thread = threading.Thread(target=self._read, name="capture", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Captured]:
        """Yield the newest frame whenever one is asked for, until the source ends or the program has been stopped."""
        while captured := self._take():
            yield captured

    def close(self) -> None:
        """Stop the thread and release the source; a source that does not answer is left to the end of the program."""
        self._is_closed = True
        self._thread.join(timeout=1)
        if not self._thread.is_alive():
            self.source.close()

    def _take(self) -> Captured | None:
        with self._changed:
            while self._slot is None:
                if self._error:
                    raise self._error
                if self._has_ended or self.stopped():
                    return None
                if time.monotonic() - self._last_sign > self.timeout:
                    raise stalled(self.source.name, self.timeout)
                self._changed.wait(POLL)
            captured, self._slot = self._slot, None
            return None if self.stopped() else captured

    def _read(self) -> None:
        try:
            for frame in self.source.frames:
                self._last_sign = time.monotonic()
                if self._is_closed:
                    return
                if frame.number % self.every == 0:
                    self._replace(Captured(frame, self._last_sign))
        except Exception as error:  # for the thread that takes the frames
            self._error = error
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify()

    def _replace(self, captured: Captured) -> None:
        with self._changed:
            self.dropped += self._slot is not None
            self._slot = captured
            self._changed.notify()


def in_real_time(frames: Iterator[Frame]) -> Iterator[Frame]:
    """Yield the frames of a file when they are due, as a camera would."""
    start = time.monotonic()
    for frame in frames:
        time.sleep(max(0.0, start + frame.time - time.monotonic()))
        yield frame


def one_by_one(frames: Iterator[Frame], stopped: Callable[[], bool]) -> Iterator[Captured]:
    """Yield every frame of a file, each as soon as the one before is done."""
    for frame in frames:
        if stopped():
            return
        yield Captured(frame, time.monotonic())
