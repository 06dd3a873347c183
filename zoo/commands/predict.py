"""Predict your own files with a trained model: classes, class maps of scenes, similarity of faces."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from zoo import program
from zoo.commands.options import add_override_argument
from zoo.data import durable
from zoo.data.convert import plain
from zoo.data.errors import BadSample, UserError, printable
from zoo.data.importing.faces import Detector
from zoo.frameworks import FRAMEWORKS
from zoo.models import require_features
from zoo.predict import batches, output
from zoo.predict import stream as streaming
from zoo.predict import stream_report as stream_options
from zoo.predict.batches import AUTO_SAMPLES, Options
from zoo.predict.faces import read_photo
from zoo.predict.predictors import Predictor
from zoo.predict.results import (
    DEFAULT_TOP,
    Album,
    Input,
    Request,
    Row,
    Sample,
    TrainedModel,
    find_inputs,
    output_stems,
    walk_inputs,
)
from zoo.predict.stream import Shapes
from zoo.program import count
from zoo.run import recorded_recipe, trained
from zoo.run.checkpoint import FOLDER
from zoo.run.folder import numbered
from zoo.run.stopping import StopSignal
from zoo.run.trained import Trained
from zoo.run.weights import averages_note
from zoo.weights import files

EPILOG = """\
The checkpoint holds its recipe and its class names; the data it was trained on is not needed. A file is read and
scaled as in an evaluation of that recipe, and the model computes in fp32: the scores are those of an evaluation. A
folder stands for all images or clips in it and below. Any checkpoint runs in any framework, and a model that
zoo export has written (.onnx) in ONNX Runtime, without a framework.

  classification of images     the classes with the highest probabilities
  classification of clips      the same of videos, and of folders of numbered images (data.frame_template)
  segmentation                 the share of each class. Of an image, NAME_classes.png (colors), NAME_labels.png
                               (8-bit indices) and NAME_overlay.png (both, with a legend) are written to --out; of a
                               video, NAME_overlay.mp4
  faces, aligned as for training
                               the embedding: that of the mirror image is added, then the sum is normalized; all are
                               in embeddings.npz, too. Of two files, their similarity; with --search, the images of a
                               folder that are most similar to each file

predictions.jsonl in --out gets a line per file as it goes, origin.json says what computed it. The same command with the
same --out goes on after the last whole line.

A stream (--stream) is a video, a camera or an address that a model sees frame by frame: a causal model of clips keeps
what it needs of earlier frames, another one gets the last frames again, as many as a clip has; other models see each
frame as an image, and frame_NUMBER_labels.png in --out is the class map of a scene. Frames of a video wait for the
model; those of a camera or an address, and of a video with --realtime, are dropped and counted if it is too slow.
stream.jsonl has a line per prediction, stream.json a summary. Ctrl-C ends a stream.

examples
  %(prog)s holiday/*.jpg --weights runs/resnet50_imagenet/checkpoints/best --top 3
  %(prog)s clips --weights runs/tsm_k400/checkpoints/best -o data.eval_sampling=dense
  %(prog)s street.png drive.mp4 --weights runs/deeplabv3plus_cityscapes/checkpoints/best
  %(prog)s ann.jpg --weights runs/arcface_ms1m/checkpoints/best --search album --top 10
  %(prog)s clips --weights tsm_k400.onnx
  %(prog)s --stream 0 --weights runs/tsm_online_k400/checkpoints/best --annotate out.mp4

Exit codes: 0 done, 1 done, but some files cannot be read (they are named), 2 an error to fix on your side."""


def main(argv: list[str]) -> int:
    """Run the command line; return the exit code."""
    return predict(parser().parse_args(argv))


def parser() -> program.Parser:
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add(
        "files",
        metavar="FILE",
        nargs="*",
        help="image, video, folder of numbered images, http:// or https:// address of a file, or folder of such",
    )
    add(
        "--weights",
        metavar="PATH",
        required=True,
        help=f"checkpoint folder, such as {recorded_recipe.EXAMPLE}, .onnx file of zoo export, or published weights",
    )
    add("--raw", action="store_true", help="take the weights of the last update, not their moving average (train.ema)")
    add("--framework", choices=FRAMEWORKS, help="default torch, whatever trained it; none for an .onnx file")
    add("--device", metavar="NAME", default="auto", help="as for train.py")
    add(
        "--out",
        metavar="DIR",
        help="folder for the results, where an interrupted call goes on; default predictions/<run>, or the next free "
        "number",
    )
    add(
        "--batch",
        metavar="N",
        default="auto",
        help=f"samples that are computed at once; default auto: {AUTO_SAMPLES}, at most 2 million pixels",
    )
    add(
        "--part",
        metavar="K/N",
        default="0/1",
        help="predict one of N consecutive parts of the files alone, counted from 0; parts have the same --out, and "
        "the last one joins them",
    )
    add("--workers", type=int, metavar="N", default=0, help="processes that read files; default 0: two threads")
    add("--csv", action="store_true", help="write predictions.csv, too, with the most probable class of each file")
    add(
        "--explain",
        metavar="CLASS",
        nargs="?",
        const="",
        help="draw where a class is seen, by default the most probable one: a class activation map, of a scene its "
        "probability",
    )
    add(
        "--top",
        type=count,
        metavar="N",
        help=f"classes to list per file, or images found by --search; default {DEFAULT_TOP}, of a class map all",
    )
    add(
        "--search",
        metavar="FOLDER",
        help="for faces: find the most similar images in this folder and below, and the person if each has a folder",
    )
    add(
        "--detector",
        metavar="FILE",
        help="for faces: cut the largest one out of each photo by YuNet, as zoo data align",
    )
    add(
        "--threshold",
        type=float,
        metavar="X",
        help="cosine above which two faces are of one person, or probability above which an image has one of several "
        "classes; default: what the evaluation of the checkpoint chose",
    )
    add_override_argument(
        parser,
        "change one key of the checkpoint's recipe, such as -o data.eval_crops=3; repeatable",
    )
    stream_options.add_arguments(parser)
    return parser


def predict(arguments: argparse.Namespace) -> int:
    """Read the checkpoint, then every file; print and write the results.

    Returns:
        The exit code: 1 if a file could not be read, 2 if none could be found.
    """
    stream = stream_options.read_options(arguments)
    if bool(arguments.files) == bool(stream):
        raise UserError("give files or folders to predict, or a stream alone, with --stream SOURCE")
    options = Options.parse(arguments.batch, arguments.workers, "--")
    part = output.Part.parse(arguments.part)
    if part.parts > 1 and (stream or not arguments.out):
        raise UserError("--part: is for files, and needs --out, the folder that all parts share")
    found = trained.read(arguments.weights, arguments.framework, arguments.device, arguments.override, arguments.raw)
    predictor = choose_predictor(found, arguments)
    album = find_album(found, arguments.search, arguments.top)
    check_explained(found, arguments)
    output.require_ours(arguments.out, may_go_on=not stream)

    def load() -> TrainedModel:
        if found.is_averaged:
            print(averages_note(found.path))
        return found.load(scores=arguments.explain is not None)

    request = Request(arguments.top, arguments.explain, threshold=arguments.threshold, labels_only=bool(stream))
    if stream:
        stream = stream.of_task(found.spec.TASK)
        is_causal = getattr(found.cfg.model, "shift_direction", None) == "causal"
        shapes = streaming.state_shapes(found.model, found.cfg) if is_causal else None
        model = load()
        if album:
            request = request._replace(album=read_album(predictor, model, album, options, arguments))
        return predict_stream(model, shapes, found.dataset, stream, request, arguments)
    inputs = find_inputs(arguments.files, predictor.extensions, predictor.frame_template(found.cfg.data))
    if all(each.missing for each in inputs):
        for each in inputs:
            report(each.name, each.missing)
        return 2
    model = load()
    out = make_folder(arguments.out, arguments.weights)  # made late: what fails before leaves none
    try:
        recipe = {key: plain(entry.value) for key, entry in found.resolved.items()}
        wanted = {name: getattr(arguments, name) for name in ("top", "explain", "search", "detector", "threshold")}
        head = {**recipe, **model.metadata, "sha256": files.sha256(found.file), **wanted}
        names = [each.name for each in inputs]
        chosen = part.of(len(inputs))
        rows, rows_file = output.begin(part.folder(out), head, names[chosen])
        if rows:
            print(f"{out} has the predictions of {len(rows)} of {len(names[chosen])} files; going on")
        if album:
            request = request._replace(album=read_album(predictor, model, album, options, arguments))
        with rows_file:
            rows += predict_files(
                predictor, model, inputs[: chosen.stop], request, options, rows_file, out, chosen.start + len(rows)
            )
        with output.joined(out, part, head, names, rows) as all_rows:
            if all_rows is not None:
                complete(predictor, model, all_rows, out, arguments.csv)
    except OSError as error:
        raise UserError(f"{error.filename or out}: {error.strerror or error}") from None
    print(f"results are in {out}" if all_rows is not None else f"part {arguments.part} is done")
    return 1 if any("error" in row for row in rows) else 0


def complete(predictor: Predictor, model: TrainedModel, rows: Sequence[Row], out: str, csv: bool) -> None:
    """Write and print what follows from all rows."""
    for line in predictor.finish(model, rows, out):
        print(printable(line), flush=True)
    if csv:
        output.write_table(out, rows)


def predict_stream(
    model: TrainedModel,
    shapes: Shapes | None,
    dataset: str,
    options: stream_options.Options,
    request: Request,
    arguments: argparse.Namespace,
) -> int:
    """Predict a stream until it ends, or until SIGINT or SIGTERM; see zoo.predict.stream."""
    out = make_folder(arguments.out, arguments.weights)
    stop = StopSignal()
    stop.install()
    try:
        streaming.run(model, shapes, dataset, options, request, out, lambda: stop.received is not None)
    except OSError as error:
        raise UserError(f"{error.filename or out}: {error.strerror or error}") from None
    finally:
        stop.restore()
        if not arguments.out:
            with suppress(OSError):
                os.rmdir(out)  # which is empty if the source cannot be opened
        if os.path.isdir(out):
            print(f"results are in {out}")
    return 0


def predict_files(
    predictor: Predictor,
    model: TrainedModel,
    inputs: Sequence[Input],
    request: Request,
    options: Options,
    file: BinaryIO,
    out: str,
    first: int,
) -> list[Row]:
    """Predict the inputs from the first one on; print and write their rows, unreadable files with the reason."""
    stems = output_stems([each.path for each in inputs])
    sources = [BadSample(each.missing) if each.missing else each.path for each in inputs]

    def describe(index: int, sample: Sample, found: Any) -> tuple[str, Row]:
        path, stem = inputs[index].path, os.path.join(out, stems[index])
        return predictor.describe(model, path, sample, found, request, stem)

    rows = []
    found = batches.predict(predictor, model, sources, options, describe, first)
    for each, result in zip(inputs[first:], found):
        if isinstance(result, BadSample):
            rows.append(report(each.name, str(result)))
        else:
            print(printable(f"{each.name}: {result[0]}"), flush=True)
            rows.append({"file": each.name, **result[1]})
        file.write(json.dumps(rows[-1]).encode() + b"\n")
        file.flush()
    return rows


def choose_predictor(found: Trained, arguments: argparse.Namespace) -> Predictor:
    """Return the predictor of a model; one of faces may cut them out of photos. Raises UserError for its options."""
    task = found.cfg.task.task
    threshold = arguments.threshold
    if threshold is not None and task not in ("face", "multilabel"):
        raise UserError(f"--threshold: is for faces and several classes, and this model's task is {task}; leave it out")
    if threshold is not None and not (-1 if task == "face" else 0) <= threshold <= 1:
        raise UserError(f"--threshold {threshold}: a cosine is from -1 to 1, a probability from 0 to 1")
    if arguments.detector and arguments.stream:
        raise UserError("--detector: is for files, and frames of a stream must be aligned faces; leave it out")
    if not arguments.detector:
        return found.predictor
    if task != "face":
        raise UserError(f"--detector: is for models of faces, and this one's task is {task}; leave it out")
    Detector(arguments.detector)  # raises UserError
    return found.predictor._replace(read=partial(read_photo, arguments.detector))


def read_album(
    predictor: Predictor,
    model: TrainedModel,
    paths: Sequence[str],
    options: Options,
    arguments: argparse.Namespace,
) -> Album:
    """Read the images of an album that have an embedding; print the others."""
    print(f"searching {len(paths)} images ...", flush=True)
    found = dict(zip(paths, batches.predict(predictor, model, paths, options)))
    for path, result in found.items():
        if isinstance(result, BadSample):
            report(path, str(result))
    units = {path: result.embedding for path, result in found.items() if not isinstance(result, BadSample)}
    persons = [os.path.relpath(path, arguments.search).split(os.sep)[:-1] for path in units]
    names = [folders[-1] for folders in persons if folders] if all(persons) else []
    if any(persons) and not names:
        print("no person is named, since images lie in the album itself; put each into a folder", flush=True)
    limit = arguments.threshold
    if limit is None and model.thresholds:
        limit = 1 - sum(model.thresholds.values()) / len(model.thresholds) / 2
    if names and limit is None:
        print("no person is named, since no evaluation has chosen a threshold; give one with --threshold", flush=True)
    return Album(list(units), np.array(list(units.values())), names, limit)


def report(path: str, reason: str) -> Row:
    """Print a file that has no result, and return its row."""
    print(printable(f"error: {path}: {reason}"), file=sys.stderr, flush=True)
    return {"file": path, "error": reason}


def find_album(found: Trained, folder: str | None, top: int | None) -> list[str]:
    """List the images to search for faces; none without a folder."""
    is_face, extensions = found.spec.TASK == "face", found.predictor.extensions
    if folder is None:
        if is_face and top is not None:
            raise UserError("--top: for faces, the number of images that --search lists; give a folder with --search")
        return []
    if not is_face:
        raise UserError(f"--search: is for models of faces, and this one's task is {found.cfg.task.task}; leave it out")
    paths = list(walk_inputs(folder, extensions, None))
    if not paths:
        raise UserError(f"--search: {folder} is no folder with images (files ending in {', '.join(extensions)})")
    return paths


def check_explained(found: Trained, arguments: argparse.Namespace) -> None:
    """Raise UserError if --explain does not go with the model, or names none of its classes."""
    name = arguments.explain
    if name is not None and (not found.class_names or files.is_onnx(arguments.weights) or arguments.stream):
        raise UserError("--explain: is for files, and for checkpoints of classes and scenes; leave it out")
    if name is not None and found.spec.TASK == "classify":
        require_features(found.model, found.cfg.framework, "--explain")
        shapes = found.spec.shapes(found.arch)
        if [len(shape) for key, shape in shapes.items() if found.spec.is_head(key)].count(2) != 1:
            raise UserError(f"--explain: needs a classifier that is one linear layer, which {found.model} has not")
    if name and name not in found.class_names:
        raise UserError(
            f"--explain: {name} is none of the classes ({', '.join(found.class_names[:20])}); to explain the most "
            "probable one, put --explain behind the files"
        )


def make_folder(out: str | None, checkpoint: str) -> str:
    """Return --out, or make predictions/<run> or its next free number. Raises UserError."""
    if out:
        return out
    path = Path(os.path.realpath(checkpoint))
    run = path.parents[1] if path.parent.name == FOLDER else path
    stem = os.path.join("predictions", run.stem if files.is_onnx(checkpoint) else run.name)
    try:
        return durable.new_folder(numbered(stem))
    except OSError as error:
        raise UserError(f"{stem} cannot be made: {error.strerror}; choose another folder with --out DIR") from None
