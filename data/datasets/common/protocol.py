"""Protocol ids: how a data set is evaluated, in a few characters. Results of different protocols do not compare."""

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Protocol(NamedTuple):
    """A data set's part of a protocol id, which a task completes (zoo.tasks.Task.protocol).

    The filters of a resize and the normalization belong to the model and are not part of it.

    Attributes:
        name: of the set whose validation split is evaluated, such as k400 or lfw+cfp_fp.
        views: what the model sees of a sample: frames, clips, crops, sizes and scales, such as 8x1x1@224, 224-of-256
            or 1024x2048.
    """

    name: str
    views: str


def set_name(settings: Any, num_classes: int, official: Mapping[int, str]) -> str:
    """Return the name of a data set: data.set, else that of a well-known set with as many classes, else of the folder.

    Args:
        settings: of the data set, with `set` and `root`.
        num_classes: of the data that was found there.
        official: names of well-known sets by their number of classes.
    """
    return settings.set or official.get(num_classes) or root_name(settings)


def root_name(settings: Any) -> str:
    """Return the name of the folder of a data set, as one word."""
    return re.sub(r"[\s/]+", "_", os.path.basename(os.path.abspath(settings.root)))
