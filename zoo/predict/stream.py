"""Prediction of a video while it runs, frame by frame."""

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from zoo.config.schema import Config
from zoo.data.datasets import kinetics
from zoo.data.demo import motion
from zoo.data.errors import BadSample, UserError
from zoo.data.transforms import clips, pixels
from zoo.models import load_spec
from zoo.predict import batches, overlay, stream_report
from zoo.predict.predictors import Predictor, find_predictor
from zoo.predict.results import Request, Row, Sample, TrainedModel
from zoo.predict.stream_report import Options, Report, Shown
from zoo.predict.stream_sources import Captured, Frame, LatestFrame, Source, in_real_time, one_by_one, open_source
from zoo.predict.timeline import Timeline
from zoo.weights import files

CLIP_SECONDS = {"kinetics": 10.0, "motion": motion.FRAMES / motion.RATE}  # of the training clips, by data set
Shapes = Sequence[tuple[int, ...]]
MAX_SIDE = 4096  # pixels of a frame, because recipes may come from strangers; those of data sets have 224
ROWS_FILE, SUMMARY_FILE = "stream.jsonl", "stream.json"


def interval(
    settings: Any, dataset: str, rate: Fraction, every: int | None = None, clip_seconds: float | None = None
) -> int:
    """Return n, where the model sees every n-th frame of the source.

    With dense sampling, the frames of a training clip are 64 / segments frames apart, whatever the rate. With uniform
    sampling, a clip's duration is divided into as many parts as there are segments.

    Args:
        settings: the data section of the recipe.
        every: n, if the user states it.
        clip_seconds: duration of the training clips, if the user states it.
    """
    if every is not None or not hasattr(settings, "segments"):  # of images
        return every or 1
    if settings.sampling == "dense" and clip_seconds is None:
        return max(1, clips.DENSE_SPAN // settings.segments)
    seconds = CLIP_SECONDS.get(dataset) if clip_seconds is None else clip_seconds
    if seconds is None:
        raise UserError(
            f"--stream: how long the clips of {dataset} are is not known; give --clip-seconds S or --every N"
        )
    return max(1, round(float(rate) * seconds / settings.segments))


def state_shapes(model: str, cfg: Config) -> Shapes:
    side = cfg.data.eval_size or cfg.data.size
    if side > MAX_SIDE:
        raise UserError(f"--stream: frames of {side} x {side} pixels, the limit is {MAX_SIDE}; give -o data.size=N")
    return shapes_of(model, cfg.model, (side, side))


def shapes_of(model: str, arch: Any, size: Sequence[int]) -> Shapes:
    """Return the shapes of a model's state for frames of a height and width, without the batch."""
    spec: Any = load_spec(model)
    if not hasattr(spec, "state_shapes"):
        raise UserError(f"--stream: a {model} has no stream; give a checkpoint of tsm or tsm_mobilenet_v2")
    try:
        return spec.state_shapes(arch, *size)
    except ValueError as error:
        raise UserError(f"--stream: model.{error}, as configs/tsm_online_k400.yaml does") from None


class FramePredictor:
    """A model that sees each frame as an image of its own, and what it has made of the last ones.

    Attributes:
        frames: number of frames that an output is of.
    """

    frames = 1

    def __init__(self, model: TrainedModel, predictor: Predictor, smooth: int):
        """Begin a stream.

        Args:
            predictor: how it is applied to files.
            smooth: number of frames whose outputs count as the views of one.
        """
        self.model, self.predictor, self.settings = model, predictor, model.cfg.data
        self.recent: deque[np.ndarray] = deque(maxlen=smooth)
        self.clip: deque[float] = deque(maxlen=self.frames)  # times of the frames of the last output
        self.begins: deque[float] = deque(maxlen=smooth)  # of the frames of each of the recent outputs

    def __call__(self, image: np.ndarray, request: Request, stem: str) -> tuple[str, Row]:
        """Return the line and the row of the next frame, as of a file.

        Args:
            image: uint8 RGB (H, W, 3).
            stem: path of the files to write, without their suffix.

        Raises:
            BadSample: the model cannot take the frame, or its output is not finite.
        """
        sample, output = self.see(image)
        self.recent.append(output)
        return self.predictor.describe(self.model, "", sample, np.concatenate(self.recent), request, stem)

    def middle(self, seconds: float) -> float:
        """Return the middle of the time of the recent outputs, of which the next one is there with a frame's time."""
        self.clip.append(seconds)
        self.begins.append(self.clip[0])
        return (self.begins[0] + seconds) / 2

    def end(self, request: Request) -> Iterator[tuple[float, Row]]:
        """Yield middle and row of ever fewer of the recent outputs, the last ones: no more will follow them."""
        while len(self.recent) > 1:
            self.recent.popleft()
            self.begins.popleft()
            _, row = self.predictor.describe(self.model, "", Sample({}), np.concatenate(self.recent), request, "")
            yield (self.begins[0] + self.clip[-1]) / 2, row

    def see(self, image: np.ndarray) -> tuple[Sample, np.ndarray]:
        """Return what the model is given of the next frame, and its output (views, ...)."""
        sample = self.sample(image)
        return sample, batches.forward(self.model, False, [sample])[0]

    def sample(self, image: np.ndarray) -> Sample:
        """Return the next frame as the model's input."""
        return self.predictor.read(self.settings, self.model.cfg.seed, image, 0)

    def draw(self, frame: Frame) -> np.ndarray:
        """Return the pixels of a frame for a video, with the last output."""
        return self.predictor.draw(self.model, frame.pixels(), self.recent[-1])


class WindowPredictor(FramePredictor):
    """A model of clips without a causal shift: it sees the last frames, as many as a clip has.

    Before there are so many, the first one is repeated.
    """

    def __init__(self, model: TrainedModel, predictor: Predictor, smooth: int):
        self.frames = model.cfg.data.segments
        super().__init__(model, predictor, smooth)
        self.window: deque[np.ndarray] = deque(maxlen=self.frames)

    def sample(self, image: np.ndarray) -> Sample:
        """Return the clip that ends with the next frame."""
        self.window.append(preprocess(image, self.settings))
        first = [self.window[0]] * (self.frames - len(self.window))
        return Sample({"video": np.stack([*first, *self.window])[None]})


class CausalPredictor(FramePredictor):
    """A causal model of clips and its state: what it has kept of the frames so far."""

    def __init__(self, model: TrainedModel, predictor: Predictor, smooth: int, shapes: Shapes):
        """Begin a stream. shapes: of the state, without the batch."""
        super().__init__(model, predictor, smooth)
        zeros = {f"state_{i}": np.zeros((1, *shape), np.float32) for i, shape in enumerate(shapes)}
        self.state: Sequence = tuple(model.trainer.to_device(zeros).values())

    def see(self, image: np.ndarray) -> tuple[Sample, np.ndarray]:
        """Return the input and the logits (1, K) of the next frame alone."""
        sample = Sample({"video": preprocess(image, self.settings)[None, None]})  # one stream, one frame
        trainer = self.model.trainer
        logits, self.state = trainer.predict_frame(trainer.to_device(sample.batch), self.state)
        return sample, logits


def begin(model: TrainedModel, shapes: Shapes | None, dataset: str, smooth: int) -> FramePredictor:
    """Return the predictor of a stream, after another one has seen a black frame: faults show before the source opens.

    Args:
        shapes: of the state of a causal one of clips, without the batch; None for another.
        smooth: number of frames whose logits are averaged.
    """
    predictor = find_predictor(model.metadata["task"], dataset)
    start: Callable[[], FramePredictor] = partial(FramePredictor, model, predictor, smooth)
    if shapes is not None:
        start = partial(CausalPredictor, model, predictor, smooth, shapes)
    elif hasattr(model.cfg.data, "segments"):
        start = partial(WindowPredictor, model, predictor, smooth)
    start().see(np.zeros(predictor.fields(model.cfg.data)[0].shape[-3:], np.uint8))
    return start()


def preprocess(image: np.ndarray, settings: kinetics.Settings) -> np.ndarray:
    """Resize and crop a frame as an evaluation with one crop does: uint8 (H, W, 3) -> uint8 (size, size, 3)."""
    height, width = image.shape[:2]
    (geometry,) = kinetics.evaluation_geometries(settings, (width, height), crops=1)
    return pixels.apply(image, geometry)


def run(
    model: TrainedModel,
    shapes: Shapes | None,
    dataset: str,
    options: Options,
    request: Request,
    out: str,
    stopped: Callable[[], bool],
) -> None:
    """Predict a stream until it ends or the program is asked to; print and write the results.

    Args:
        shapes: of the state of a causal one of clips, without the batch; None for another.
    """
    predictor = begin(model, shapes, dataset, options.smooth)
    source = open_source(options.source, options.timeout)
    rate = source.rate or overlay.DEFAULT_FRAME_RATE
    every = interval(model.cfg.data, dataset, rate, options.every, options.clip_seconds)
    is_live = source.is_live or options.realtime
    print(_introduction(source, rate, every, options, getattr(model.cfg.data, "segments", 0)), flush=True)
    os.makedirs(out, exist_ok=True)
    capture = None
    frames: Iterable[Captured]
    if is_live:
        paced = source if source.is_live else source._replace(frames=in_real_time(source.frames))
        frames = capture = LatestFrame(paced, every, options.timeout, stopped)
    else:
        frames = one_by_one(source.frames, stopped)
    with open(os.path.join(out, ROWS_FILE), "x", encoding="utf-8", buffering=1) as rows:
        progress = Report(rows, Timeline(out))
        seen = _predict(frames, predictor, request, every, out, progress, capture)
        try:
            _write_or_drain(seen, progress, options.annotate, rate, every, is_live)
        finally:
            (capture or source).close()
            progress.end_line()
            summary = progress.summary()
            metadata = {
                **model.metadata,
                "source": source.name,
                "live": is_live,
                "frames_per_second": float(rate),
                "every": every,
                "smooth": options.smooth,
            }
            with open(os.path.join(out, SUMMARY_FILE), "x", encoding="utf-8") as file:
                file.write(json.dumps({**metadata, **summary}, indent=1) + "\n")
            written = progress.timeline.close(progress.last + float(1 / rate))
            print("\n".join([stream_report.describe(summary), *written]), flush=True)


def _predict(
    frames: Iterable[Captured],
    predictor: FramePredictor,
    request: Request,
    every: int,
    out: str,
    progress: Report,
    capture: LatestFrame | None,
) -> Iterator[Frame]:
    """Predict frames and report the labels: of a live source at the last frame, of a file in the middle of its frames.

    Args:
        capture: of a live source.
    """
    for frame, captured in frames:
        progress.last = frame.time
        if frame.number % every == 0:
            try:
                line, row = predictor(frame.pixels(), request, os.path.join(out, f"frame_{frame.number:06d}"))
            except BadSample as error:
                raise UserError(str(error)) from None
            middle, dropped = predictor.middle(frame.time), capture.dropped if capture else 0
            progress.add(frame.number, frame.time if capture else middle, line, row, captured, dropped)
        yield frame._replace(pixels=partial(predictor.draw, frame))
    for middle, row in () if capture else predictor.end(request):
        progress.timeline.add(middle, row)


def _write_or_drain(
    seen: Iterator[Frame], progress: Report, path: str | None, rate: Fraction, every: int, live: bool
) -> None:
    """Write the annotated video, or only run through the frames."""
    if path is None:
        deque(seen, maxlen=0)
        return
    error: UserError | None = None

    def until_failure() -> Iterator[Shown]:
        nonlocal error
        try:
            for frame in seen:
                yield Shown(frame.number, frame.pixels(), progress.caption, progress.remark)
        except UserError as failure:  # the video is complete until here
            error = failure

    try:
        with files.atomic_write(path) as temporary:
            overlay.write_video(temporary, stream_report.annotate(until_failure(), rate, every, live))
            if error and not os.path.getsize(temporary):
                raise error
    except BadSample as failure:
        raise UserError(f"--annotate {path}: {failure}") from None
    print(f"the annotated video is {path}")
    if error:
        raise error


def _introduction(source: Source, rate: Fraction, every: int, options: Options, segments: int) -> str:
    known = f"{float(rate):.4g} frames per second" + ("" if source.rate else " (assumed: the source does not tell)")
    seen = "every frame" if every == 1 else f"one of {every} frames, {float(rate / every):.3g} per second"
    is_default = options.every is None and options.clip_seconds is None
    remedy = "; if clips lasted otherwise in training, give --clip-seconds" * is_default
    clip = f"; {segments} of them are a clip of {float(segments * every / rate):.3g} s{remedy}" if segments else ""
    last = "the last " * (source.is_live or options.realtime)
    mean = f"; a label is that of {last}{options.smooth} of them" if options.smooth > 1 else ""
    return f"{source.name}: {known}; the model sees {seen}{clip}{mean}"
