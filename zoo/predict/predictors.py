"""The predictor of each data set: which files and arrays a model trained on it is applied to, and how."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from zoo.data.batch import Field
from zoo.data.datasets import faces, imagenet, kinetics, synthetic
from zoo.data.errors import UserError
from zoo.data.formats import images
from zoo.data.formats.face_files import FaceFiles
from zoo.data.formats.lists import VIDEO_EXTENSIONS
from zoo.predict import faces as face_predictor
from zoo.predict.classify import classify, classify_file, clip_split, image_split
from zoo.predict.results import Prediction, Row, Source, TrainedModel
from zoo.predict.segment import scene_result, segment


class Predictor(NamedTuple):
    """How a model is applied to files.

    Attributes:
        extensions: of the files to take from folders.
        fields: settings of the data set -> fields of a training sample.
        result: (model, path or array, number of it) -> its plain result; raises BadSample.
        dimensions: of the arrays: 3 of an image, 4 of a video.
        predict: (model, path, number of the file, --top, path of the output without its suffix) -> result of a file;
            raises BadSample.
        compare: (model, rows of all files, images to search, --top, folder of the results) -> result of all together.
        frame_template: settings of the data set -> name of a frame, where a folder of frames is one input.
    """

    extensions: tuple[str, ...]
    fields: Callable[[Any], tuple[Field, ...]]
    result: Callable[[TrainedModel, Source, int], Any]
    dimensions: tuple[int, ...]
    predict: Callable[[TrainedModel, str, int, int | None, str], Prediction]
    compare: (
        Callable[[TrainedModel, Sequence[Row], Sequence[str], int | None, str], face_predictor.Comparison] | None
    ) = None
    frame_template: Callable[[Any], str | None] = lambda _: None


NO_FILES = FaceFiles("", (), np.empty(0, np.int64))

IMAGE_CLASSIFIER = Predictor(
    images.EXTENSIONS,
    lambda settings: imagenet.ImageSplit(settings, [], (), True).fields,
    partial(classify, image_split),
    (3,),
    partial(classify_file, image_split),
)
CLIP_CLASSIFIER = Predictor(
    VIDEO_EXTENSIONS,
    lambda settings: kinetics.ClipSplit(settings, [], (), True).fields,
    partial(classify, clip_split),
    (4,),
    partial(classify_file, clip_split),
    frame_template=lambda settings: settings.frame_template,
)
SEGMENTER = Predictor(
    images.EXTENSIONS + VIDEO_EXTENSIONS,
    lambda settings: (Field("image", (*settings.crop, 3), "uint8", settings.mean, settings.std),),
    scene_result,
    (3, 4),
    segment,
)
FACE_EMBEDDER = Predictor(
    images.EXTENSIONS,
    lambda settings: faces.FaceSplit(settings, NO_FILES, (), (), ()).fields,
    face_predictor.face_result,
    (3,),
    face_predictor.embed_file,
    face_predictor.compare,
)
SYNTHETIC_FACE_EMBEDDER = FACE_EMBEDDER._replace(
    fields=lambda settings: synthetic.SyntheticSplit(settings, True).fields
)

PREDICTORS = {  # task -> data set -> predictor
    "classify": {
        "imagenet": IMAGE_CLASSIFIER,
        "shapes": IMAGE_CLASSIFIER,
        "kinetics": CLIP_CLASSIFIER,
        "motion": CLIP_CLASSIFIER,
    },
    "segment": {"cityscapes": SEGMENTER, "streets": SEGMENTER},
    "face": {"faces": FACE_EMBEDDER, "portraits": FACE_EMBEDDER, "synthetic": SYNTHETIC_FACE_EMBEDDER},
}


def find_predictor(task: str, dataset: str) -> Predictor:
    """Return the predictor for models of a task that were trained on a data set.

    Raises:
        UserError: there is none.
    """
    predictor = PREDICTORS.get(task, {}).get(dataset)
    if predictor is None:
        raise UserError(
            f"there is no predictor for the task {task} and the data set {dataset}: add one to PREDICTORS in "
            "zoo/predict/predictors.py, which describes how its files are read"
        )
    return predictor
