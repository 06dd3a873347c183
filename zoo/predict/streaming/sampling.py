"""Which frames of a stream the model sees: as far apart in time as those of a training clip."""

from fractions import Fraction
from typing import Any

from zoo.data.demo import motion
from zoo.data.transforms import frame_sampling

CLIP_SECONDS = {"kinetics": 10.0, "motion": motion.FRAMES / motion.RATE}  # of the training clips, by data set


def interval(
    settings: Any, dataset: str, rate: Fraction, every: int | None = None, clip_seconds: float | None = None
) -> int:
    """Return n, where the model sees every n-th frame of the source.

    With dense sampling, the frames of a training clip are 64 / segments frames apart, whatever the rate. With uniform
    sampling, a clip's duration is divided into as many parts as there are segments.

    Args:
        settings: the data section of the recipe.
        dataset: its name.
        rate: frames per second of the source.
        every: n, if the user states it.
        clip_seconds: duration of the training clips, if the user states it.
    """
    if every is not None:
        return every
    if settings.sampling == "dense" and clip_seconds is None:
        return max(1, frame_sampling.DENSE_SPAN // settings.segments)
    seconds = CLIP_SECONDS[dataset] if clip_seconds is None else clip_seconds
    return max(1, round(float(rate) * seconds / settings.segments))
