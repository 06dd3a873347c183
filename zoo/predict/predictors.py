"""The predictor of each data set: which files and arrays a model trained on it is applied to, and how."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from zoo import data
from zoo.data.batch import Field
from zoo.data.datasets import faces, imagenet, kinetics, synthetic
from zoo.data.errors import UserError
from zoo.data.formats import images
from zoo.data.formats.face_files import FaceFiles
from zoo.data.formats.lists import ANIMATIONS, VIDEO_EXTENSIONS
from zoo.predict import classify, segment
from zoo.predict import faces as face_predictor
from zoo.predict.results import Request, Row, Sample, Source, TrainedModel


class Predictor(NamedTuple):
    """Functions that apply a model to files.

    Attributes:
        fields: settings of the data set -> fields of a training sample.
        dimensions: of the arrays: 3 of an image, 4 of a video.
        read: (settings of the data set, seed, path or array, number of it) -> sample; raises BadSample.
        result: (model, path or array, sample, output of the model) -> its plain result; raises BadSample.
        describe: (model, path, sample, output, request, path of the files to write without their suffix) -> line for
            the screen, and row for predictions.jsonl; raises BadSample.
        finish: (model, rows of all files, folder of the results) -> lines on all together.
        draw: (model, frame of a video, output of the model) -> the frame to show.
        frame_template: settings of the data set -> name of a frame, where a folder of frames is one input.
    """

    extensions: tuple[str, ...]
    fields: Callable[[Any], tuple[Field, ...]]
    dimensions: tuple[int, ...]
    read: Callable[[Any, int, Source, int], Sample]
    result: Callable[[TrainedModel, Source, Sample, Any], Any]
    describe: Callable[[TrainedModel, str, Sample, Any, Request, str], tuple[str, Row]]
    finish: Callable[[TrainedModel, Sequence[Row], str], Sequence[str]] = lambda model, rows, out: ()
    draw: Callable[[TrainedModel, np.ndarray, Any], np.ndarray] = lambda model, image, output: image
    frame_template: Callable[[Any], str | None] = lambda _: None


PHOTOS = (*images.EXTENSIONS, ".heic", ".heif")  # the last two, of phones, become failures: nothing here decodes them
NO_FILES = FaceFiles("", (), np.empty(0, np.int64))

IMAGE_CLASSIFIER = Predictor(
    PHOTOS,
    lambda settings: imagenet.ImageSplit(settings, [], (), True).fields,
    (3,),
    partial(classify.read, classify.image_split),
    classify.classify,
    classify.describe,
)
LABELLER = IMAGE_CLASSIFIER._replace(
    read=partial(classify.read, classify.tagged_split),
    result=classify.find_labels,
    describe=classify.describe_labels,
)
CLIP_CLASSIFIER = Predictor(
    VIDEO_EXTENSIONS + ANIMATIONS,
    lambda settings: kinetics.ClipSplit(settings, [], (), True).fields,
    (4,),
    partial(classify.read, classify.clip_split),
    classify.classify,
    classify.describe,
    frame_template=lambda settings: settings.frame_template,
)
SEGMENTER = Predictor(
    PHOTOS + VIDEO_EXTENSIONS,
    lambda settings: (Field("image", (*settings.crop, 3), "uint8", settings.mean, settings.std),),
    (3, 4),
    segment.read,
    segment.scene_result,
    segment.describe,
    draw=segment.draw_frame,
)
FACE_EMBEDDER = Predictor(
    PHOTOS,
    lambda settings: faces.FaceSplit(settings, NO_FILES, (), (), ()).fields,
    (3,),
    face_predictor.read,
    face_predictor.face_result,
    face_predictor.describe,
    face_predictor.finish,
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
    "multilabel": {"multilabel": LABELLER},
    "segment": {"cityscapes": SEGMENTER, "streets": SEGMENTER},
    "face": {"faces": FACE_EMBEDDER, "portraits": FACE_EMBEDDER, "synthetic": SYNTHETIC_FACE_EMBEDDER},
}


def find_predictor(task: str, dataset: str) -> Predictor:
    """Return the predictor for models of a task that were trained on a data set."""
    if predictor := PREDICTORS.get(task, {}).get(dataset):
        return predictor
    if dataset not in data.MODULES and hasattr(module := data.find(dataset), "predictor"):
        return module.predictor()
    raise UserError(
        f"there is no predictor for the task {task} and the data set {dataset}: add one to PREDICTORS in "
        "zoo/predict/predictors.py, or a function predictor() to the data set of a package, which describes how its "
        "files are read"
    )
