"""The readers of files from strangers: for each its valid files, and what the programs do with them."""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.campaign.fuzzing import seeds
from zoo.data.errors import BadSample, UserError
from zoo.data.formats import (
    class_names,
    face_files,
    face_packs,
    frame_folders,
    images,
    label_sets,
    label_tables,
    lists,
    masks,
    table_rows,
    video,
)
from zoo.data.packs.prepared import PreparedSplit
from zoo.data.preparing import encoding
from zoo.data.transforms.geometry import Geometry
from zoo.logs import journal
from zoo.weights import checkpoints, files, recorded


class Reader(NamedTuple):
    """A reader of files.

    Attributes:
        seeds: valid files.
        read: reads the files in a folder, and raises UserError or BadSample, or else is at fault.
        is_open: whether messages need not name a file: they name a key, or the caller adds the name.
    """

    seeds: seeds.Seeds
    read: Callable[[Path], object]
    is_open: bool = False


def read_pth(folder: Path) -> None:
    from zoo.weights import pth

    path = str(folder / "a.pth")
    _try_all((lambda: pth.read(path), lambda: pth.read(path, "state_dict_softmax_fc")))


def read_safetensors(folder: Path) -> None:
    path = str(folder / "a.safetensors")
    files.read_metadata(path)
    files.read_shapes(path)
    recorded.read(path)
    files.read(path, {"conv1.weight": (2, 0, 1)})
    files.read(path)


def convert(folder: Path) -> None:
    """Convert a model, in which everything that depends on names and shapes takes part."""
    from zoo.weights import convert

    target = folder / "out.safetensors"
    try:
        convert.convert(str(folder / "a.safetensors"), str(target), convert.Wanted(), lambda line: None)
    finally:
        target.unlink(missing_ok=True)


def read_checkpoint(folder: Path) -> None:
    """Read the newest checkpoint of a run as a resume does, and its record as a run with its weights does."""
    from zoo.run import checkpoint, recorded_recipe, resume

    step = str(folder / "checkpoints" / "step-00000010")
    checkpoint.check_whole(step)
    _, record = checkpoint.load_checkpoint(step)
    resume.check_record(record, step)
    recorded_recipe.repeat(str(folder / "checkpoints" / "best"))
    recorded.read(step)


def read_face_pack(folder: Path) -> None:
    pack = face_packs.FacePack(str(folder / "train.rec"))
    face_packs.read_property(pack.pack.path)
    pack.items()
    pack.has_exact_labels()
    pack.all_labels()
    for index in range(min(len(pack), 10)):
        with contextlib.suppress(BadSample):
            pack.encoded_and_label(index)
        pack.size(index)
    pack.split_by_label(2)


def read_prepared(folder: Path) -> None:
    for name in ("train", "val"):
        split = PreparedSplit(str(folder), name)
        split.labeled_paths()
        for index in range(min(len(split), 4)):
            split.name(index)
            list(zip(range(10), split.contents()))
            with contextlib.suppress(BadSample):
                split.content(index)
                if split.info.media == "pair":
                    split.mask_name(index)
                    split.mask(index)
            with contextlib.suppress(BadSample):
                split.frame_contents(index, [0, int(split.frames[index]) - 1])


def read_image(folder: Path) -> None:
    """Read an image in all ways, of which each may refuse it."""
    path = _only(folder)
    content = images.read_content(str(path))
    ways: tuple[Callable[[], object], ...] = (
        lambda: images.decode(images.read(str(path)), Geometry(None, (5, 7), True), reduce=True),
        lambda: face_files.decode(content, seeds.SIZE, resize=True),
        lambda: frame_folders.decode_images([frame_folders.EncodedFrame("a", content)]),
        lambda: encoding.image_properties(content),
    )
    _try_all(ways)


def read_video(folder: Path) -> None:
    path = str(_only(folder))
    _try_all(
        (
            lambda: video.read_frames(path, lambda count: np.linspace(0, count - 1, 3).astype(int)),
            lambda: encoding.video_properties(path),
        )
    )


def read_lists(folder: Path) -> None:
    """Read lists of samples, pairs and names, and what depends on their labels."""
    from zoo.data.datasets import verification

    def read_samples(has_folders: bool) -> None:
        entries = lists.read_list(str(folder / "train.list"), folders=has_folders)
        np.array([entry.label for entry in entries], np.int64)
        lists.class_names_from_folders(entries)

    def read_faces() -> None:
        source = face_files.read_list(str(folder), str(folder / "faces.txt"))
        list(source.items())

    names = "classes.json" if (folder / "classes.json").exists() else "classes.txt"
    _try_all(
        (
            lambda: read_samples(True),
            lambda: read_samples(False),
            read_faces,
            lambda: verification.open_sets(str(folder), ["pairs.txt"]),
            lambda: class_names.read_classes(str(folder / names)),
            lambda: class_names.read_names(str(folder / "classes.txt")),
        )
    )


def read_label_tables(folder: Path) -> None:
    """Read a table as one of labels, of sets of labels, and of parts of videos."""
    root = str(folder)
    tables = [str(each) for each in folder.iterdir() if table_rows.is_table(each.name)]
    path = tables[0] if tables else str(folder / "a.csv")
    _try_all(
        (
            lambda: label_tables.read(path, root),
            lambda: label_sets.read({"train": path}, root, (), []),
            lambda: label_sets.has_several({"train": path}),
            lambda: label_tables.read_clips(path, root, []),
        )
    )


def read_annotations(folder: Path) -> None:
    """List a data set by its official annotations."""
    from zoo.data.preparing import listing

    listing.find("k400" if (folder / "train.csv").exists() else "ssv2", str(folder), {})


def read_archive(folder: Path) -> None:
    """List an archive as a data set of its own, and read its images."""
    from zoo.data import archives

    path = str(_only(folder))
    opened = archives.Archives([path], [archives._state(path)], *archives.index([path]))
    for name in opened.names("train/cat"):
        with contextlib.suppress(OSError):  # a bad sample
            opened.read(f"train/cat/{name}", 0, 1000)


def read_labels(folder: Path) -> None:
    """Draw the masks of all scenes."""
    from zoo.data.importing import labels, shapes

    path = _only(folder) if len(os.listdir(folder)) == 1 else folder
    for scene in labels.open_labels(str(path)).scenes(lambda *_: None):
        with contextlib.suppress(BadSample):
            shapes.paint(scene.shapes, (seeds.SIZE, seeds.SIZE), {shape.label: 1 for shape in scene.shapes}, 0)


def read_table(folder: Path) -> None:
    from zoo.data import tables

    for _ in tables.members(str(_only(folder)), {}):
        pass


def read_recipe(folder: Path) -> None:
    from zoo.config import loader
    from zoo.run.recipe import resolve_recipe
    from zoo.run.request import Options

    loader.render(resolve_recipe(Options(str(folder / "recipe.yaml"))).resolved)


def read_events(folder: Path) -> None:
    from zoo.bench.report import runs as reported

    _try_all((lambda: reported.read(str(folder)), lambda: _replay(folder)))


def _replay(folder: Path) -> None:
    """Go on with a journal, as a resumed run does."""
    journal.check(str(folder))
    with journal.Journal(str(folder), []) as events:
        events.last("eval")


def read_log(folder: Path) -> None:
    """Check a log, and extract the speeds of one of DLPerf."""
    from zoo.bench.airank_log import deviations, measure, parse

    with open(folder / "a.log", encoding="utf-8", errors="replace") as file:
        log = parse(file)
    measure(log, None, 100, 0)
    deviations(log, None, 100, 0)


def _only(folder: Path) -> Path:
    return Path(next(os.scandir(folder)).path)


def _try_all(ways: tuple[Callable[[], object], ...]) -> None:
    """Call all functions, and raise the first error if all refuse the file."""
    errors: list[Exception] = []
    for way in ways:
        try:
            way()
        except (BadSample, UserError) as error:
            errors.append(error)
    if len(errors) == len(ways):
        raise errors[0]


READERS: Mapping[str, Reader] = {
    ".pth": Reader(seeds.pth, read_pth),
    ".pdparams": Reader(seeds.pdparams, lambda folder: files.read(str(folder / "a.pdparams"))),
    ".ckpt": Reader(seeds.ckpt, lambda folder: files.read(str(folder / "a.ckpt"))),
    "safetensors": Reader(seeds.safetensors, read_safetensors),
    "Paddle variables": Reader(seeds.paddle_variables, lambda folder: checkpoints.read(str(folder), with_head=True)),
    "weights to convert": Reader(seeds.weights, convert, True),
    "checkpoints": Reader(seeds.checkpoint, read_checkpoint, True),
    "face .bin": Reader(seeds.face_bin, lambda folder: face_packs.read_bin(str(folder / "lfw.bin"))),
    "face packs": Reader(seeds.face_pack, read_face_pack),
    "prepared packs": Reader(seeds.prepared, read_prepared),
    "images": Reader(seeds.images, read_image, True),
    "masks": Reader(seeds.masks, lambda folder: masks.read_labels(str(folder / "a.png"), masks.class_indices(3)), True),
    "videos": Reader(seeds.videos, read_video, True),
    "lists": Reader(seeds.lists, read_lists),
    "label tables": Reader(seeds.label_tables, read_label_tables),
    "annotations": Reader(seeds.annotations, read_annotations),
    "archives": Reader(seeds.archives, read_archive),
    "labels": Reader(seeds.labels, read_labels),
    "tables": Reader(seeds.tables, read_table),
    "recipes": Reader(seeds.recipes, read_recipe, True),
    "events.jsonl": Reader(seeds.events, read_events),
    "logs": Reader(seeds.logs, read_log),
}
