"""The loop of a stream: read a frame, predict, report, draw."""

import os
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

from zoo.data.errors import BadSample, UserError
from zoo.predict import overlay
from zoo.predict.model import TrainedModel
from zoo.predict.results import DEFAULT_TOP
from zoo.predict.streaming import report, sampling
from zoo.predict.streaming.annotation import annotate
from zoo.predict.streaming.capture import Captured, LatestFrame, in_real_time, one_by_one
from zoo.predict.streaming.classifier import FrameClassifier, Shapes, state_shapes
from zoo.predict.streaming.options import Options
from zoo.predict.streaming.report import Report, Shown
from zoo.predict.streaming.sources import Source, open_source
from zoo.weights import files

__all__ = ["run", "state_shapes"]
ROWS_FILE, SUMMARY_FILE = "stream.jsonl", "stream.json"


def run(
    model: TrainedModel,
    shapes: Shapes,
    dataset: str,
    options: Options,
    top: int | None,
    out: str,
    stopped: Callable[[], bool],
) -> None:
    """Predict a stream until it ends or the program is asked to; print and write the results.

    Args:
        model: a causal classifier of clips.
        shapes: of its state, without the batch.
        dataset: name of the data set that it was trained on.
        options: of the stream.
        top: number of classes to write per prediction, DEFAULT_TOP if None.
        out: new folder for the results.
        stopped: whether the program has been asked to end.

    Raises:
        UserError: the source cannot be opened, or has failed; what was predicted until then is written.
    """
    classifier = FrameClassifier(model, shapes, options.smooth)
    classifier.warm_up()
    source = open_source(options.source, options.timeout)
    rate = source.rate or overlay.DEFAULT_FRAME_RATE
    every = sampling.interval(model.cfg.data, dataset, rate, options.every, options.clip_seconds)
    print(_introduction(source, rate, every, options.smooth), flush=True)
    os.makedirs(out, exist_ok=True)
    capture = None
    frames: Iterable[Captured]
    if source.is_live or options.realtime:
        paced = source if source.is_live else source._replace(frames=in_real_time(source.frames))
        frames = capture = LatestFrame(paced, every, options.timeout, stopped)
    else:
        frames = one_by_one(source.frames, stopped)
    with open(os.path.join(out, ROWS_FILE), "x", encoding="utf-8", buffering=1) as rows:
        progress = Report(model.class_names, top or DEFAULT_TOP, rows)
        shown = _predict(frames, classifier, every, progress, lambda: capture.dropped if capture else 0)
        try:
            _write_or_drain(shown, options.annotate, rate, every, capture is not None)
        finally:
            (capture or source).close()
            progress.end_line()
            summary = progress.summary()
            metadata = _metadata(model, source, rate, every, options)
            report.write_summary(os.path.join(out, SUMMARY_FILE), metadata, summary)
            print(report.describe(summary), flush=True)


def _predict(
    frames: Iterable[Captured],
    classifier: FrameClassifier,
    every: int,
    progress: Report,
    count_dropped: Callable[[], int],
) -> Iterator[Callable[[], Shown]]:
    """Predict every n-th frame; yield a function for each frame that returns how it is shown."""
    for frame, captured in frames:
        if frame.number % every == 0:
            try:
                probabilities = classifier(frame.pixels())
            except BadSample as error:
                raise UserError(str(error)) from None
            progress.add(frame.number, frame.time, probabilities, captured, count_dropped())

        def show(frame: Any = frame) -> Shown:
            return Shown(frame.number, frame.pixels(), progress.caption, progress.remark)

        yield show


def _write_or_drain(
    shown: Iterator[Callable[[], Shown]], path: str | None, rate: Fraction, every: int, live: bool
) -> None:
    """Write the annotated video, or only run through the frames."""
    if path is None:
        for _ in shown:
            pass
        return
    error: UserError | None = None

    def until_failure() -> Iterator[Shown]:
        nonlocal error
        try:
            for show in shown:
                yield show()
        except UserError as failure:  # the video is complete until here
            error = failure

    try:
        with files.atomic_write(path) as temporary:
            overlay.write_video(temporary, annotate(until_failure(), rate, every, live))
            if error and not os.path.getsize(temporary):
                raise error
    except BadSample as failure:
        raise UserError(f"--annotate {path}: {failure}") from None
    print(f"the annotated video is {path}")
    if error:
        raise error


def _introduction(source: Source, rate: Fraction, every: int, smooth: int) -> str:
    known = f"{float(rate):.4g} frames per second" + ("" if source.rate else " (assumed: the source does not tell)")
    seen = "every frame" if every == 1 else f"one of {every} frames, {float(rate / every):.3g} per second"
    return f"{source.name}: {known}; the model sees {seen}; a label is that of the last {smooth} of them"


def _metadata(model: TrainedModel, source: Source, rate: Fraction, every: int, options: Options) -> dict[str, Any]:
    return {
        **model.metadata,
        "source": source.name,
        "live": source.is_live or options.realtime,
        "frames_per_second": float(rate),
        "every": every,
        "smooth": options.smooth,
    }
