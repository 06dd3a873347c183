"""The models: their recipes, the batch sizes of the reports, and the options for data."""

import importlib.util
from collections.abc import Sequence
from typing import NamedTuple

from zoo.bench.matrix.cases import CHECKOUT


class Model(NamedTuple):
    """A model at the size of the reports, and its demo.

    Attributes:
        name: of the model.
        recipe: of the full size.
        kind: data.kind of synthetic data.
        batch: samples per update in fp32.
        batch_16: samples per update in 16 bits.
        options: further options of the full size.
        demo: recipe of the demo.
        packages: that the demo needs to make its data.
        data: name of the data set of files, and the folder in which tools/bench/gpu_checks/files.py writes them.
        file_options: further options for files.
    """

    name: str
    recipe: str
    kind: str
    batch: int
    batch_16: int
    options: tuple[str, ...]
    demo: str
    packages: tuple[str, ...]
    data: tuple[str, str]
    file_options: tuple[str, ...] = ()


LONG = "train.epochs=100000"  # of few files, so that a speed run ends before the recipe does
MODELS = (
    Model(
        "resnet",
        "configs/resnet50_imagenet.yaml",  # with the batch sizes of configs/reports/resnet50_mindspore_dlperf.yaml
        "image",
        128,
        256,
        (),
        "configs/resnet50_demo.yaml",
        ("PIL", "cv2"),
        ("imagenet", "images"),
        (LONG,),
    ),
    Model(
        "tsm",
        "configs/reports/tsm_torch_airank.yaml",
        "clip",
        16,
        16,
        ("model.pretrained=null",),
        "configs/tsm_demo.yaml",
        ("PIL", "cv2", "av", "decord"),
        ("kinetics", "prepared-frames"),
        (LONG,),
    ),
    Model(
        "deeplabv3plus",
        "configs/reports/deeplabv3plus_mmseg_airank.yaml",
        "scene",
        2,
        4,
        ("model.pretrained=null",),
        "configs/deeplabv3plus_demo.yaml",
        ("PIL", "cv2"),
        ("cityscapes", "scenes"),
    ),
    Model(
        "arcface",
        "configs/reports/arcface_plsc_dlperf.yaml",
        "face",
        128,
        128,
        (),
        "configs/arcface_demo.yaml",
        ("PIL", "cv2"),
        ("faces", "faces/pack"),
    ),
)
# The demos' recipes on random pixels: for a machine that cannot make their data, and in place of the full sizes in a
# dry run.
DEMO_CLASSES = {"image": 8, "clip": 8, "scene": 19, "face": 24}
TINY_BATCH = 4
PARITY_BATCH = {
    "resnet": 16,
    "tsm": 2,
    "deeplabv3plus": 2,
    "arcface": 16,
}  # of the full sizes, which a CPU computes too
WITHOUT_WORKERS = "data.workers=0"


class Peer(NamedTuple):
    """Another project's loop for a model.

    Attributes:
        module: that has its update.
        clone: name of the project's folder in --upstream; None if no copy is needed.
        packages: that it needs.
        options: of the recipe, beside those of the full size.
        recipe: with the network that the project has; None for that of the full size.
        mixes: whether its own code casts to 16 bits where this trainer does; else autocast does around it.
    """

    module: str
    clone: str | None
    packages: tuple[str, ...]
    options: tuple[str, ...] = ()
    recipe: str | None = None
    mixes: bool = False


UPDATES = "zoo.bench.peers.updates"
PEERS = {  # by name of the model
    "resnet": Peer("zoo.bench.gpu_checks.deep_learning_examples", None, ("torchvision",)),
    "tsm": Peer(f"{UPDATES}.temporal_shift", "temporal-shift-module", ("torchvision",)),
    "deeplabv3plus": Peer(
        f"{UPDATES}.mmsegmentation", None, ("mmseg", "mmengine", "mmcv", "torchvision"), ("train.sync_bn=false",)
    ),
    "arcface": Peer(
        f"{UPDATES}.insightface",
        "insightface",
        (),
        ("data.num_classes=85742", "model.depth=50", "task.m2=0.5", "task.m3=0", "optim.weight_decay=5e-4"),
        "configs/arcface_glint360k.yaml",
        mixes=True,
    ),
}


def full(model: Model, framework: str, sixteen_bits: bool) -> list[str]:
    """Return options of train.py: the model at the report's size, on synthetic data."""
    batch = model.batch_16 if sixteen_bits else model.batch
    keys = ["data.name=synthetic", f"data.kind={model.kind}", f"train.batch={batch}", "train.precision=fp32"]
    return recipe(model.recipe, framework, [*keys, *model.options])


def on_files(model: Model, framework: str, folder: str) -> list[str]:
    """Return options of train.py: the model at the report's size in 16 bits, on files."""
    name, files = model.data
    keys = [f"data.name={name}", f"data.root={folder}/{files}", f"train.batch={model.batch_16}"]
    return recipe(model.recipe, framework, [*keys, "train.precision=fp32", *model.options, *model.file_options])


def beside_peer(model: Model, sixteen_bits: bool) -> list[str]:
    """Return options of train.py: the full size in PyTorch, as the other project's loop computes it."""
    peer = PEERS[model.name]
    return full(model._replace(recipe=peer.recipe or model.recipe, options=(*model.options, *peer.options)), "torch",
                sixteen_bits)  # fmt: skip


def tiny(model: Model, framework: str) -> list[str]:
    """Return options of train.py: the demo's recipe on a few synthetic samples, with a small batch."""
    keys = [f"train.batch={TINY_BATCH}", "train.eval_batch=10", "data.val_samples=10", "data.train_samples=4096"]
    return synthetic_demo(model, framework, keys)


def synthetic_demo(model: Model, framework: str, more: Sequence[str] = ()) -> list[str]:
    """Return options of train.py: the demo's recipe on synthetic data."""
    keys = ["data.name=synthetic", f"data.kind={model.kind}", f"data.num_classes={DEMO_CLASSES[model.kind]}"]
    return recipe(model.demo, framework, [*keys, "target=null", WITHOUT_WORKERS, *more])


def recipe(path: str, framework: str, keys: Sequence[str]) -> list[str]:
    """Return options of train.py for a shipped recipe with changed keys."""
    return ["-c", str(CHECKOUT / path), "--framework", framework, *(word for key in keys for word in ("-o", key))]


def missing(packages: Sequence[str]) -> str | None:
    """Return what is not installed, as a sentence; None if all packages are."""
    names = [name for name in packages if not is_installed(name)]
    return f"not installed: {', '.join(names)}" if names else None


def is_installed(name: str) -> bool:
    """Return whether a package, such as nvidia.dali, is installed; it is not imported, packages above it are."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a package above it
        return False
