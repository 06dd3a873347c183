"""Predict your own files with a trained model: classes, class maps of scenes, similarity of faces."""

import argparse
import os
import sys
from pathlib import Path

from zoo import program
from zoo.commands.new_file import free_folder
from zoo.data.errors import BadSample, UserError, printable
from zoo.frameworks import FRAMEWORKS
from zoo.predict import results
from zoo.predict import stream as streaming
from zoo.predict import stream_report as stream_options
from zoo.predict.predictors import Predictor
from zoo.predict.results import (
    DEFAULT_TOP,
    Failure,
    Row,
    TrainedModel,
    find_inputs,
    output_stems,
    walk_inputs,
)
from zoo.predict.stream import Shapes
from zoo.predict.stream_report import Options
from zoo.run import cli, trained, weights
from zoo.run.checkpoint import FOLDER
from zoo.run.stopping import StopSignal
from zoo.run.weights import averages_note
from zoo.weights import onnx_file

EPILOG = """\
The checkpoint holds its recipe and its class names; the data it was trained on is not needed. A file is read and
scaled as in an evaluation of that recipe, and the model computes in fp32: the scores are those of an evaluation. A
folder stands for all images or clips in it and below. Any checkpoint runs in any framework, and a model that
tools/export.py has written (.onnx) in ONNX Runtime, without a framework.

  classification of images     the classes with the highest probabilities
  classification of clips      the same of videos, and of folders of numbered images (data.frame_template)
  segmentation                 the share of each class. Of an image, NAME_classes.png (colors), NAME_labels.png
                               (8-bit indices) and NAME_overlay.png (both, with a legend) are written to --out; of a
                               video, NAME_overlay.mp4
  faces, aligned as for training
                               the embedding: that of the mirror image is added, then the sum is normalized; all are
                               in embeddings.npz, too. Of two files, their similarity; with --search, the images of a
                               folder that are most similar to each file

predictions.json in --out holds all results.

A stream (--stream) is a video, a camera or an address that a causal model of clips classifies frame by frame. Frames of
a video wait for the model; those of a camera or an address, and of a video with --realtime, are dropped and counted if
it is too slow. stream.jsonl in --out has a line per prediction, stream.json a summary. Ctrl-C ends a stream.

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
    return predict(parse(argv))


def parse(argv: list[str]) -> argparse.Namespace:
    parser = program.parser(__doc__, EPILOG)
    add = parser.add_argument
    add("files", metavar="FILE", nargs="*", help="image, video, folder of numbered images, or folder of such")
    add(
        "--weights",
        metavar="PATH",
        required=True,
        help=f"checkpoint folder, such as {weights.EXAMPLE}, or .onnx file of tools/export.py",
    )
    add("--raw", action="store_true", help="take the weights of the last update, not their moving average (train.ema)")
    add("--framework", choices=FRAMEWORKS, help="default torch, whatever trained it; none for an .onnx file")
    add("--device", metavar="NAME", default="auto", help="as for train.py")
    add("--out", metavar="DIR", help="folder for the results; default predictions/<run>, or the next free number")
    add(
        "--top",
        type=int,
        metavar="N",
        help=f"classes to list per file, or images found by --search; default {DEFAULT_TOP}, of a class map all",
    )
    add("--search", metavar="FOLDER", help="for faces: find the most similar images in this folder and below")
    cli.add_override_argument(
        parser,
        "change one key of the checkpoint's recipe, such as -o data.eval_crops=3; repeatable",
    )
    stream_options.add_arguments(parser)
    return parser.parse_args(argv)


def predict(arguments: argparse.Namespace) -> int:
    """Read the checkpoint, then every file; print and write the results.

    Returns:
        The exit code: 1 if a file could not be read, 2 if none could be found.

    Raises:
        UserError: the arguments or the checkpoint are wrong.
    """
    if arguments.top is not None and arguments.top < 1:
        raise UserError("--top: must be at least 1")
    stream = stream_options.read_options(arguments)
    if bool(arguments.files) == bool(stream):
        raise UserError("give files or folders to predict, or a stream alone, with --stream SOURCE")
    found = trained.read(arguments.weights, arguments.framework, arguments.device, arguments.override, arguments.raw)
    predictor = found.predictor
    album = find_album(predictor, found.spec.TASK, arguments.search, arguments.top)
    out = choose_folder(arguments.out, arguments.weights)

    def load() -> TrainedModel:
        if found.is_averaged:
            print(averages_note(arguments.weights))
        return found.load()

    if stream:
        shapes = streaming.state_shapes(found.model, found.cfg)
        return predict_stream(load(), shapes, found.dataset, stream, arguments.top, out)
    paths, failures = find_inputs(arguments.files, predictor.extensions, predictor.frame_template(found.cfg.data))
    rows = [report(failure) for failure in failures]
    if not paths:
        return 2
    model = load()
    try:
        os.makedirs(out, exist_ok=True)
        rows += predict_files(predictor, model, paths, arguments.top, out)
        metadata = dict(model.metadata)
        if predictor.compare:
            comparison = predictor.compare(model, rows, album, arguments.top, out)
            for line in comparison.lines:
                print(printable(line), flush=True)
            rows += [report(failure) for failure in comparison.failures]
            metadata |= comparison.metadata
        results.write_results(out, metadata, rows)
    except OSError as error:
        raise UserError(f"{error.filename or out}: {error.strerror or error}") from None
    print(f"results are in {out}")
    return 1 if any("error" in row for row in rows) else 0


def predict_stream(
    model: TrainedModel, shapes: Shapes, dataset: str, options: Options, top: int | None, out: str
) -> int:
    """Predict a stream until it ends, or until SIGINT or SIGTERM; see zoo.predict.stream."""
    stop = StopSignal()
    stop.install()
    try:
        streaming.run(model, shapes, dataset, options, top, out, lambda: stop.received is not None)
    except OSError as error:
        raise UserError(f"{error.filename or out}: {error.strerror or error}") from None
    finally:
        stop.restore()
        if os.path.isdir(out):
            print(f"results are in {out}")
    return 0


def predict_files(predictor: Predictor, model: TrainedModel, paths: list[str], top: int | None, out: str) -> list[Row]:
    """Predict and print file by file; return their rows, unreadable files with the reason."""
    rows = []
    for index, (path, stem) in enumerate(zip(paths, output_stems(paths))):
        try:
            prediction = predictor.predict(model, path, index, top, os.path.join(out, stem))
        except BadSample as error:
            rows.append(report(Failure(path, str(error))))
            continue
        print(printable(f"{path}: {prediction.line}"), flush=True)
        rows.append({"file": path, **prediction.row})
    return rows


def report(failure: Failure) -> Row:
    """Print a file that has no result, and return its row."""
    print(printable(f"error: {failure.path}: {failure.reason}"), file=sys.stderr, flush=True)
    return failure.row


def find_album(predictor: Predictor, task: str, folder: str | None, top: int | None) -> list[str]:
    """List the images to search for faces; none without a folder.

    Raises:
        UserError: there is no image, or --search or --top does not go with the task.
    """
    if folder is None:
        if predictor.compare and top is not None:
            raise UserError("--top: for faces, the number of images that --search lists; give a folder with --search")
        return []
    if not predictor.compare:
        raise UserError(f"--search: is for models of faces, and the task of this one is {task}; leave it out")
    paths = list(walk_inputs(folder, predictor.extensions, None))
    if not paths:
        raise UserError(
            f"--search: {folder} is no folder with images (files ending in {', '.join(predictor.extensions)})"
        )
    return paths


def choose_folder(out: str | None, checkpoint: str) -> str:
    """Return a new or empty folder for the results: --out, or predictions/<run>, -2, -3 ...

    Raises:
        UserError: --out is not empty.
    """
    if out:
        if os.path.lexists(out) and not (os.path.isdir(out) and not os.listdir(out)):
            raise UserError(f"--out: {out} exists already and is not overwritten; choose another folder")
        return out
    path = Path(os.path.realpath(checkpoint))
    run = path.parents[1] if path.parent.name == FOLDER else path
    stem = os.path.join("predictions", run.stem if onnx_file.is_onnx(checkpoint) else run.name)
    return free_folder(stem)
