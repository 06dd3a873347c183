"""What a trained model says about your own files: classes, class maps of scenes, who looks like whom. See --help."""

import argparse
import json
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import yaml

from data import order
from data.batch import Field
from data.datasets import faces, imagenet, kinetics, random_faces
from data.datasets.common import scenes
from data.errors import BadSample, UserError
from data.formats import images, palette
from data.formats.lists import VIDEO_EXTENSIONS, Clip
from zoo import tasks
from zoo.config import loader
from zoo.config.schema import Config
from zoo.frameworks import FRAMEWORKS
from zoo.models import load_model_class, load_spec, resolve_arch
from zoo.predict import faces as face_predictor
from zoo.predict import overlay
from zoo.run import cli
from zoo.run.checkpoint import FOLDER, load_record
from zoo.run.restore import model_file
from zoo.trainer import load_backend
from zoo.trainer.protocol import Launch, Mode, Plan, Trainer
from zoo.weights import files
from zoo.weights.match import match

EPILOG = """\
The checkpoint brings its recipe and its class names; the data it was trained on is not needed. A file is read and
scaled as an evaluation of that recipe does it, and the net computes in fp32: the scores are those that an evaluation
counts. A folder stands for all pictures or clips in it and below. Any checkpoint runs in any framework.

  classification of pictures   the likeliest classes with their probabilities
  classification of clips      the same of videos, and of folders of numbered pictures (data.frame_template)
  segmentation                 the share of each class. Of a picture, NAME_classes.png (colours), NAME_labels.png
                               (8-bit indices) and NAME_overlay.png (both, with a legend) are written to --out; of a
                               video, NAME_overlay.mp4
  faces, aligned as for training
                               the embedding: the mirror image's is added, then its length made 1; all are in
                               embeddings.npz, too. Of two files, how similar they are; with --search, the pictures
                               of a folder that are most similar to each file

predictions.json in --out holds everything.

examples
  python tools/predict.py holiday/*.jpg --weights runs/resnet50_imagenet/checkpoints/best --top 3
  python tools/predict.py clips --weights runs/tsm_k400/checkpoints/best -o data.eval_sampling=dense
  python tools/predict.py street.png drive.mp4 --weights runs/deeplabv3plus_cityscapes/checkpoints/best
  python tools/predict.py ann.jpg --weights runs/arcface_ms1m/checkpoints/best --search album --top 10

Exit codes: 0 done; 2 something to mend on your side: a file that cannot be read is named, and the others are done."""
TOP = 5  # classes to name, or pictures
RESULTS = "predictions.json"

Row = dict[str, Any]  # what predictions.json says of a file


class LoadedModel(NamedTuple):
    """A trained net. names: of its outputs; facts: for predictions.json."""

    cfg: Config
    trainer: Trainer
    names: tuple[str, ...]
    facts: dict[str, Any]


class Kind(NamedTuple):
    """How nets of a task are shown files if they were trained on a data set with such settings.

    fields: settings -> those of a training sample. answer: model, path, number of the file, classes to name and the
    path of what is written, without its ending -> a line for the screen and a row. compare: model, rows, pictures to
    search, how many of them to name and the folder for results -> what is said of all files together, if anything.
    """

    task: str
    settings: type
    endings: tuple[str, ...]
    fields: Callable[[Any], tuple[Field, ...]]
    answer: Callable[[LoadedModel, str, int, int | None, str], tuple[str, Row]]
    compare: Callable[[LoadedModel, Sequence[Row], Sequence[str], int, str], face_predictor.Comparison] | None = None


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    try:
        return predict(parse(argv))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="predict.py",
        description=__doc__.split(" See")[0],
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("files", metavar="FILE", nargs="+", help="picture, video, folder of numbered pictures, or folder of such")
    add("--weights", metavar="DIR", required=True, help="checkpoint folder, such as runs/tsm_demo/checkpoints/best")
    add("--framework", choices=FRAMEWORKS, default="torch", help="default torch, whatever trained it")
    add("--device", metavar="NAME", default="auto", help="as for train.py")
    add("--out", metavar="DIR", help="folder for the results; default predictions/<run>, or the next free number")
    add(
        "--top",
        type=int,
        metavar="N",
        help=f"classes to name per file, or pictures found by --search; default {TOP}, of a class map all",
    )
    add("--search", metavar="FOLDER", help="of faces: find the most similar pictures in this folder and below")
    add(
        "-o",
        "--override",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="change one key of the checkpoint's recipe, such as -o data.eval_crops=3; repeatable",
    )
    return parser.parse_args(argv)


def predict(arguments: argparse.Namespace) -> int:
    """Read the checkpoint, then every file; show and write what the net says. The exit code. Raises UserError."""
    if arguments.top is not None and arguments.top < 1:
        raise UserError("--top: must be at least 1")
    record, cfg, name = read(arguments)
    kind = kind_of(load_spec(name).TASK, cfg.data)
    album = album_of(kind, arguments.search, arguments.top)
    out = new_folder(arguments.out, arguments.weights)
    paths, rows = find(arguments.files, kind.endings, template_of(cfg.data))
    if not paths:
        return 2
    model = build(arguments.weights, record, cfg, name, kind.fields(cfg.data))
    try:
        os.makedirs(out, exist_ok=True)
        for number, (path, stem) in enumerate(zip(paths, stems(paths))):
            try:
                line, row = kind.answer(model, path, number, arguments.top, os.path.join(out, stem))
            except BadSample as error:
                rows.append(failed(path, str(error)))
                continue
            print(f"{printable(path)}: {line}", flush=True)
            rows.append({"file": path, **row})
        told = kind.compare(model, rows, album, arguments.top or TOP, out) if kind.compare else face_predictor.NOTHING
        for line in told.lines:
            print(printable(line), flush=True)
        rows += [failed(*failure) for failure in told.failures]
        write(os.path.join(out, RESULTS), {**model.facts, **told.facts}, rows)
    except OSError as error:
        raise UserError(f"{error.filename or out}: {error.strerror or error}") from None
    print(f"results are in {out}")
    return 2 if any("error" in row for row in rows) else 0


def read(arguments: argparse.Namespace) -> tuple[dict[str, Any], Config, str]:
    """What a checkpoint says of itself, its recipe as the user wants it, and the model's name. Raises UserError."""
    path = arguments.weights
    if not is_checkpoint(path):
        near = filter(
            is_checkpoint,
            (os.path.dirname(path) or ".", *(os.path.join(path, FOLDER, name) for name in ("best", "last"))),
        )
        raise UserError(
            f"--weights: {path} has no checkpoint.json, which tells the recipe and the class names; give "
            f"the folder of a checkpoint, such as {next(near, 'runs/tsm_demo/checkpoints/best')}"
        )
    record = load_record(path)
    try:
        entries = entries_of(record["recipe"], os.path.join(path, "checkpoint.json"))
        record["classes"] = tuple(map(str, record["classes"]))
    except (KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise UserError(
            f"{path}: checkpoint.json does not tell the recipe and the classes ({error!r}); "
            "take another checkpoint of the run"
        ) from None
    flags = {key: loader.Entry(getattr(arguments, key), f"--{key}") for key in ("framework", "device")}
    cfg, resolved = loader.build({**entries, **flags, **loader.overrides(arguments.override)}, cli.FIND)
    return record, cfg, resolved["model.name"].value


def is_checkpoint(path: str) -> bool:
    return os.path.isfile(os.path.join(path, "checkpoint.json"))


def entries_of(recipe: str, origin: str) -> loader.Entries:
    """The entries of a resolved recipe, which has sections one deep."""
    entries = {}
    for key, value in yaml.safe_load(recipe).items():
        pairs = {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
        entries.update((name, loader.Entry(each, origin)) for name, each in pairs.items())
    return entries


def kind_of(task: str, settings: Any) -> Kind:
    """How files are read for such a net. Raises UserError if there is no way but its data set's own."""
    for kind in KINDS:
        if kind.task == task and isinstance(settings, kind.settings):
            return kind
    raise UserError(
        f"a net for the task {task} that was trained on {type(settings).__module__} is not offered files "
        "here: KINDS in tools/predict.py knows no way to read them"
    )


def album_of(kind: Kind, folder: str | None, top: int | None) -> list[str]:
    """The pictures to search, none if no folder is named. Raises UserError."""
    if folder is None:
        if kind.compare and top is not None:
            raise UserError("--top: of faces, it says how many pictures --search names; name a folder with --search")
        return []
    if not kind.compare:
        raise UserError(f"--search: finds faces that are like a face, and this net's task is {kind.task}; leave it out")
    found = list(inside(folder, kind.endings, None))
    if not found:
        raise UserError(f"--search: {folder} is no folder with pictures (files ending in {', '.join(kind.endings)})")
    return found


def build(path: str, record: dict[str, Any], cfg: Config, name: str, fields: tuple[Field, ...]) -> LoadedModel:
    """The net as zoo/run/job.py builds it, but without data, with a checkpoint's weights. Raises UserError."""
    spec, classes = load_spec(name), record["classes"]
    options, split, rows = cfg.model, spec.SHARDED_PARAMETERS, {}
    if split:  # what is a row per class may be larger than the memory, and no output depends on it: read one row
        options, classes = replace(options, num_classes=1), ()
        rows = {key: (tensor.shape[0], 0, 1) for key, tensor in files.shapes(model_file(path)).items() if key in split}
    task, arch = tasks.find(spec.TASK), resolve_arch(spec, options, fields, len(classes))
    backend, Model = load_backend(cfg.framework), load_model_class(name, cfg.framework)
    world = backend.start(Launch(), cfg.device)
    mode = world.resolve_mode(Mode("fp32", None, cfg.train.channels_last, cfg.train.compile))
    plan = Plan(
        fields=fields,
        dropout_masks=(),
        param_group=lambda _: (1.0, 0.0),
        mode=mode,
        output=task.output(cfg.task),
        sync_bn=cfg.train.sync_bn,
    )
    trainer = backend.Trainer(Model, arch, task.objective(cfg.task), plan, world)
    tensors, _ = files.read(model_file(path), rows)
    report = match(tensors, {param.name: param.shape for param in trainer.params})
    if not report.complete:
        raise UserError(f"{path} does not fit this net:\n{report}")
    trainer.load_state_dict(tensors)
    names = () if split else classes + tuple(f"class {label}" for label in range(len(classes), arch.num_classes))
    facts = {
        "weights": path,
        "step": record["step"],
        "model": name,
        "task": spec.TASK,
        "framework": cfg.framework,
        "device": world.device,
        "classes": names,
    }
    return LoadedModel(cfg, trainer, names, facts)


def find(words: Sequence[str], endings: tuple[str, ...], template: str | None) -> tuple[list[str], list[Row]]:
    """The files and folders of numbered pictures that the words stand for; a row for each word that stands for none."""
    found: list[str] = []
    wrong: list[Row] = []
    for word in words:
        if os.path.isdir(word):
            below, why = list(inside(word, endings, template)), f"nothing in this folder ends in {', '.join(endings)}"
        else:
            below, why = [word] * os.path.exists(word), "no such file"
        found += below
        wrong += [] if below else [failed(word, why)]
    return found, wrong


def inside(folder: str, endings: tuple[str, ...], template: str | None) -> Iterator[str]:
    """What can be read in a folder and below, in the order of the names; what is hidden is left out."""
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if numbered(path, template):
            yield path
        for name in sorted(names):
            if name.lower().endswith(endings) and not name.startswith("."):
                yield os.path.join(path, name)


def numbered(folder: str, template: str | None) -> int:
    """How many files of a folder are numbered as the template says."""
    if template is None or not os.path.isdir(folder):
        return 0
    before, after = template.partition("{")[0], template.rpartition("}")[2]
    return sum(
        name.startswith(before) and name.endswith(after) and name[len(before) : len(name) - len(after)].isdecimal()
        for name in os.listdir(folder)
    )


def template_of(settings: Any) -> str | None:
    """How the pictures of a clip are called, if such settings know clips."""
    return getattr(settings, "frame_template", None)


def classify(Split: type, model: LoadedModel, path: str, number: int, top: int | None, _: str) -> tuple[str, Row]:
    """The likeliest classes of a picture or clip; in the row, the probabilities of all. Raises BadSample."""
    settings = model.cfg.data
    # A sample of the evaluation's own split. An absolute path stays itself, whatever root it is joined to.
    clip = Clip(os.path.abspath(path), 0, numbered(path, template_of(settings)) or None)
    split = Split(settings, [clip], model.names, False)
    name = split.fields[0].name
    view = split.sample(0, order.generator(model.cfg.seed, "evaluate", number))[name]
    scores = model.trainer.predict(model.trainer.to_device({name: view if split.views > 1 else np.stack([view])}))
    chances = softmax(scores.astype(np.float64).mean(0))  # of the mean over views, as the metric has it
    best = np.argsort(-chances, kind="stable")[: top or TOP]
    line = ", ".join(f"{model.names[label]} {chances[label]:.3f}" for label in best)
    return line, {"top": [model.names[label] for label in best], "probabilities": chances.tolist()}


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities (K,) of scores (K,). Raises BadSample if the net gave no numbers."""
    if not np.isfinite(scores).all():
        raise BadSample("the net's scores are not finite; its weights may be those of a run that failed")
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def segment(model: LoadedModel, path: str, _: int, top: int | None, stem: str) -> tuple[str, Row]:
    """The share of each class in a picture or video, largest first; in the row, what was written. Raises BadSample."""
    draw = segment_video if path.lower().endswith(VIDEO_EXTENSIONS) else segment_picture
    counts, row = draw(model, path, palette.colours(model.names), stem)
    shares = counts / counts.sum()
    line = ", ".join(
        f"{model.names[label]} {overlay.percent(shares[label])}" for label in overlay.largest(shares)[:top]
    )
    return line, {"shares": shares.tolist(), **row}


def segment_picture(model: LoadedModel, path: str, colours: np.ndarray, stem: str) -> tuple[np.ndarray, Row]:
    """Write the class map of a picture in three ways. Pixels (K,) of each class, and the names of the files."""
    picture = scenes.read_picture(path)
    labels = class_map(model, picture)
    counts = pixels(labels, model)
    shares = counts / labels.size
    legend = overlay.Legend(*labels.shape, model.names, colours, overlay.largest(shares))
    written = {way: f"{stem}_{way}.png" for way in ("classes", "labels", "overlay")}
    overlay.write_picture(written["classes"], colours[labels])
    overlay.write_labels(written["labels"], labels, colours)
    overlay.write_picture(written["overlay"], legend.attach(overlay.blend(picture, labels, colours), shares))
    return counts, {"written": written}


def segment_video(model: LoadedModel, path: str, colours: np.ndarray, stem: str) -> tuple[np.ndarray, Row]:
    """Write a video of the overlays. Pixels (K,) of each class, the number of frames and the name of the file."""
    counts: list[np.ndarray] = []

    def overlays() -> Iterator[overlay.Frame]:
        legend = None
        for picture, rate in overlay.read_video(path):
            labels = class_map(model, picture)
            counts.append(pixels(labels, model))
            legend = legend or overlay.Legend(*labels.shape, model.names, colours, range(len(model.names)))
            yield legend.attach(overlay.blend(picture, labels, colours), counts[-1] / labels.size), rate

    target = f"{stem}_overlay.mp4"
    with files.aside(target) as temporary:
        overlay.write_video(temporary, overlays())
    return np.sum(counts, 0), {"frames": len(counts), "written": {"overlay": target}}


def class_map(model: LoadedModel, picture: np.ndarray) -> np.ndarray:
    """The class of each pixel, uint8 (H, W), of a picture (H, W, 3), from the views that an evaluation has of it."""
    s = model.cfg.data
    views = {name: scenes.fitted(picture, s.base_size, ratio) for name, ratio in zip(s.eval_images, s.eval_scales)}
    device_batch = model.trainer.to_device({name: view[None] for name, view in views.items()})
    return model.trainer.predict(device_batch, picture.shape[:2])[0]


def pixels(labels: np.ndarray, model: LoadedModel) -> np.ndarray:
    """How many pixels each class has: int64 (K,)."""
    return np.bincount(labels.ravel(), minlength=len(model.names))


def stems(paths: Sequence[str]) -> list[str]:
    """A name for each path, without folder and ending; where two would be the same, the second is `name-2`."""
    taken: dict[str, None] = {}
    for path in paths:
        stem = Path(os.path.abspath(path)).stem
        numbers = (f"{stem}-{number}" for number in range(2, len(paths) + 2))
        taken[stem if stem not in taken else next(name for name in numbers if name not in taken)] = None
    return list(taken)


def new_folder(wanted: str | None, weights: str) -> str:
    """The folder for the results: the wanted one, or predictions/<run>, -2, -3 ... Raises UserError if it is in use."""
    if wanted:
        if os.path.lexists(wanted) and not (os.path.isdir(wanted) and not os.listdir(wanted)):
            raise UserError(f"--out: {wanted} exists already and is not overwritten; choose another folder")
        return wanted
    checkpoint = Path(os.path.realpath(weights))
    run = checkpoint.parents[1] if checkpoint.parent.name == FOLDER else checkpoint
    stem = os.path.join("predictions", run.name)
    return next(
        path for path in [stem] + [f"{stem}-{number}" for number in range(2, 10_000)] if not os.path.lexists(path)
    )


def write(path: str, facts: dict[str, Any], rows: Sequence[Row]) -> None:
    """One JSON object; its `files` a line each."""
    head, body = json.dumps(facts, indent=1)[:-2], ",\n  ".join(map(json.dumps, rows))
    with open(path, "x", encoding="utf-8") as file:
        file.write(f'{head},\n "files": [\n  {body}\n ]\n}}\n')


def failed(path: str, reason: str) -> Row:
    """Name a file that nothing can be said about."""
    print(f"error: {printable(path)}: {reason}", file=sys.stderr, flush=True)
    return {"file": path, "error": reason}


def printable(path: str) -> str:
    """A path whose bytes may be no text."""
    return os.fsencode(path).decode(errors="replace")


KINDS = (
    Kind(
        "classify",
        imagenet.Settings,
        images.EXTENSIONS,
        lambda s: imagenet.Pictures(s, [], (), True).fields,
        partial(classify, imagenet.Pictures),
    ),
    Kind(
        "classify",
        kinetics.Settings,
        VIDEO_EXTENSIONS,
        lambda s: kinetics.Clips(s, [], (), True).fields,
        partial(classify, kinetics.Clips),
    ),
    Kind(
        "segment",
        scenes.SceneSettings,
        images.EXTENSIONS + VIDEO_EXTENSIONS,
        lambda s: (Field("image", (*s.crop, 3), "uint8", s.mean, s.std),),
        segment,
    ),
    Kind(
        "face",
        faces.Settings,
        images.EXTENSIONS,
        lambda s: faces.Faces(s, None, (), (), ()).fields,
        face_predictor.describe,
        face_predictor.compare,
    ),
    Kind(
        "face",
        random_faces.Settings,
        images.EXTENSIONS,
        lambda s: random_faces.RandomFaces(s, True).fields,
        face_predictor.describe,
        face_predictor.compare,
    ),
)

if __name__ == "__main__":
    sys.exit(main())
