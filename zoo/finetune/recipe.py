"""The recipe for a folder of one's own files, by rules on its samples, the device and the weights.

docs/training.md has the rules as a table. What the user has set, or weights record, is never changed, and the rules
follow it: more epochs mean a longer warm-up.
"""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from zoo import data
from zoo.config import loader
from zoo.config.loader import Entries, Entry
from zoo.config.schema import Config
from zoo.data import host
from zoo.data.errors import Option, UserError
from zoo.finetune import folder
from zoo.finetune.folder import Found
from zoo.run import hub, recorded_recipe
from zoo.run.job import join
from zoo.run.request import FIND, Request
from zoo.tasks import VARIANTS
from zoo.trainer import load_backend
from zoo.weights import imagenet, recorded
from zoo.weights.download import NotDownloaded

BASES = {  # by task: the recipe to begin with
    "classify": "resnet50_imagenet",
    "clips": "tsm_k400",
    "segment": "deeplabv3plus_cityscapes",
    "faces": "arcface_ms1m",
}
MODELS = {"classify": ("resnet",), "clips": ("tsm", "tsm_mobilenet_v2"), "segment": ("deeplabv3plus",),
          "faces": ("arcface",)}  # fmt: skip
# Sides in pixels of what the model sees, on a CPU and on an accelerator; of scenes that of the crop.
SIDES = {"classify": (128, 224), "clips": (112, 224), "segment": (128, 512), "faces": (folder.ALIGNED,) * 2}
LONG_SIDES = (256, 1024)  # of scenes, likewise
LARGEST_BATCH = {"classify": (32, 64), "clips": (8, 16), "segment": (8, 8), "faces": (32, 64)}
NARROW = {"classify": 32, "clips": 32, "segment": 32, "faces": 16}  # widths on a CPU without trained weights, of 64
# Bytes of memory per pixel that a model of depth 50 and width 64 sees, in fp32: zoo bench estimate.
BYTES_PER_PIXEL = {"classify": 1800, "clips": 2200, "segment": 7000, "faces": 5600}
UPDATES, EPOCHS = (400, 200), (30, 15)  # at least, with initial and with trained weights
RATES = 1e-3, 2e-4  # learning rates, likewise
UPDATES_PER_EPOCH = 3  # at least
EVALUATIONS = 10
FEW_IMAGES, FEW_PERSONS = 10_000, 1000
DIRECTION = re.compile(r"(?<![a-z])(left|right)(?![a-z])", re.IGNORECASE)
SETTLED: dict[str, Any] = {  # the same for all folders; keys that a model does not have are left out
    "model.fc_lr5": False,
    "data.normalisation": "insightface",
    "optim.name": "adamw",
    "optim.lr": RATES[0],
    "optim.weight_decay": 0.05,
    "optim.base_batch": None,
    "optim.clip_norm": 5.0,
    "optim.schedule": "cosine",
    "optim.update": "step",
    "optim.warmup_offset": None,
    "optim.min_lr": 0.0,
    "optim.loss_scale": "dynamic",
    "train.sync_bn": False,
    "target": None,
    "upstream": None,
}
SMALL_SCENES = {"output_stride": 16, "rates": [2, 4, 6], "head_width": 64, "aux_width": 32}  # the model on a CPU
FEW_MARGIN = {"scale": 16.0, "m2": 0.3, "threshold": True}  # the margin of few persons

Pick = Callable[[str, Any, str], Any]  # key, value and reason -> the value that counts


class Conditions(NamedTuple):
    """Conditions that the rules depend on.

    Attributes:
        size: median width and height of the images; None of videos and packs.
        accelerator: name of the GPU or NPU, "" on a CPU.
        memory: bytes of the device.
        start: of the weights: `imagenet`, `given` or `initial`.
        depth: of the model; None where weights that are given settle it.
    """

    task: str
    samples: int
    classes: Sequence[Any]
    size: tuple[int, int] | None
    accelerator: str
    memory: int
    start: str
    depth: int | None


class Plan(NamedTuple):
    """A recipe.

    Attributes:
        chosen: what the rules have chosen, with the reasons as origins.
    """

    text: str
    chosen: Entries
    notes: list[str]


def plan(found: Found, overrides: Entries, path: str | None) -> Plan:
    """Return the recipe for a folder.

    Args:
        overrides: values that the user has set.
        path: of weights to start from; None for those of ImageNet, where they are to be had.
    """
    task = VARIANTS.get(found.task, found.task)
    path = path or (overrides["weights"].value if "weights" in overrides else None)
    own = {f"data.{key}": Entry(value, found.layout) for key, value in found.settings.items()}
    own["data.val_fraction"] = Entry(folder.HELD_OUT, "where there is no validation split")
    base = loader.read(str(loader.SHIPPED_RECIPES / f"{BASES[task]}.yaml"))
    entries = {key: Entry(entry.value, os.path.basename(str(entry.origin))) for key, entry in base.items()}
    length = {"train.steps": None, "train.epochs": None if "train.steps" in overrides else 1}
    settled = {**SETTLED, **length, **({"task.label_smoothing": 0.0} if found.task == "multilabel" else {})}
    own |= {key: Entry(value, "zoo finetune", outdated=True) for key, value in settled.items()}
    entries = loader.merge(entries, own)
    fixed = {**_of_weights(task, path, entries), **overrides}
    cfg, resolved = loader.build(loader.merge(entries, fixed), FIND)
    train_set, _ = data.find(resolved["data.name"].value).load(cfg.data)
    accelerator, memory = _device(Request(cfg, resolved, BASES[task], None, [], []))
    start, depth, notes = "given", None, [f"the run starts from {path}"]
    if path is None:
        start, depth, notes = _published(cfg, fixed, bool(accelerator))
    paths = [train_set.path(index) for index in range(len(train_set))] if task in ("classify", "segment") else []
    size = folder.median_size(paths)
    conditions = Conditions(task, len(train_set), train_set.classes, size, accelerator, memory, start, depth)
    chosen = choose(conditions, {key: entry.value for key, entry in fixed.items()}, resolved)
    _, resolved = loader.build(loader.merge(loader.merge(entries, chosen), fixed), FIND)
    text = loader.render({key: entry for key, entry in resolved.items() if entry.origin != loader.DEFAULT})
    return Plan(text, chosen, [*train_set.notes, *notes])


def choose(conditions: Conditions, fixed: Mapping[str, Any], before: Entries) -> Entries:
    """Apply the rules.

    Args:
        fixed: values that stay, by key.

    Returns:
        Values by key, with their reasons as origins.
    """
    chosen: Entries = {}

    def pick(key: str, value: Any, reason: str) -> Any:
        if key in fixed:
            return fixed[key]
        chosen[key] = Entry(value, reason, outdated=True)  # left out where this model does not have the key
        return value

    is_fast, is_trained = bool(conditions.accelerator), conditions.start != "initial"
    device = conditions.accelerator or "a CPU"
    reason = f"{device}, {conditions.start} weights"
    is_small = not is_fast and not is_trained
    if conditions.depth:
        pick("model.depth", conditions.depth, reason)
    width = pick("model.width", NARROW[conditions.task] if is_small else 64, reason)
    pick("model.pretrained", "imagenet" if conditions.start == "imagenet" else None, reason)
    if conditions.task == "clips":
        pick("model.dropout", 0.2 if is_small else 0.5, reason)
    if conditions.task == "segment" and not is_fast:
        for key, value in SMALL_SCENES.items():
            pick(f"model.{key}", value, device)
    if conditions.task == "faces":
        pick("model.variant", "insightface", "learns from few samples")
        pick("model.embedding", 128 if is_small else 512, reason)
        if not is_fast:
            pick("data.val_pairs", 1000, device)
        if len(conditions.classes) < FEW_PERSONS:
            for key, value in FEW_MARGIN.items():
                pick(f"task.{key}", value, f"{len(conditions.classes)} persons")
    pixels = _choose_size(conditions, pick, before, device)
    batch = conditions.memory / 2 / (BYTES_PER_PIXEL[conditions.task] * pixels * width / 64)
    batch = max(2, min(batch, LARGEST_BATCH[conditions.task][is_fast], conditions.samples / UPDATES_PER_EPOCH))
    reason = f"{conditions.samples} samples, {conditions.memory / 1e9:.0f} GB of memory"
    batch = pick("train.batch", 1 << int(math.log2(batch)), reason)
    pick(
        "train.eval_batch", *((1, "scenes of any size") if conditions.task == "segment" else (batch, "as train.batch"))
    )
    _choose_length(conditions, pick, fixed, batch, is_trained)
    pick("train.precision", "amp" if is_fast else "fp32", device)
    pick("data.workers", "auto" if is_fast else 0, device)
    return chosen


def _choose_size(conditions: Conditions, pick: Pick, before: Entries, device: str) -> float:
    is_fast = bool(conditions.accelerator)
    side, reason = SIDES[conditions.task][is_fast], device
    if conditions.size:
        reason += ", images of {} x {}".format(*conditions.size)
    if conditions.task == "segment":
        if conditions.size:
            factor = min(1.0, LONG_SIDES[is_fast] / max(conditions.size))
            base = pick("data.base_size", [max(32, round(each * factor)) for each in sorted(conditions.size)], reason)
            side = max(32, min([side, *(base or conditions.size)]) // 16 * 16)
        return math.prod(pick("data.crop", [side, side], reason))
    if conditions.size:
        side = max(32, min(side, *conditions.size) // 16 * 16)
    side = pick("data.size", side, reason)
    if conditions.task == "classify" and conditions.samples < FEW_IMAGES:
        pick("data.scale", [0.35, 1.0], f"{conditions.samples} samples: crops show most of an image")
    if conditions.task in ("classify", "clips") and any(DIRECTION.search(str(name)) for name in conditions.classes):
        pick("data.flip", False, "class names with left or right")
    return side**2 * (before["data.segments"].value if conditions.task == "clips" else 1)


def _choose_length(conditions: Conditions, pick: Pick, fixed: Mapping[str, Any], batch: int, is_trained: bool) -> None:
    """Choose the length of the run, what is due when, and the learning rate."""
    updates, epochs = UPDATES[is_trained], EPOCHS[is_trained]
    steps = fixed.get("train.steps")
    if not steps:
        reason = f"{conditions.start} weights: {updates} updates and {epochs} epochs at least"
        epochs = pick("train.epochs", max(epochs, math.ceil(updates * batch / conditions.samples)), reason)
    every = f"{max(1, steps // EVALUATIONS)} steps" if steps else f"{max(1, epochs // EVALUATIONS)} epochs"
    for key in ("train.eval_every", "train.save_every"):
        pick(key, every, f"{EVALUATIONS} evaluations")
    steps = steps or max(1, epochs * conditions.samples // batch)
    pick("train.log_every", f"{max(1, steps // EVALUATIONS // 2)} steps", f"{2 * EVALUATIONS} lines")
    pick("optim.lr", RATES[is_trained], f"{conditions.start} weights")
    pick("optim.warmup", f"{steps // 20} steps", "a twentieth of the run")


def _of_weights(task: str, path: str | None, entries: Entries) -> Entries:
    """Return what weights settle: the model, its options and its input. Raises UserError for those of another task."""
    if path is None:
        return {}
    named, path = path, hub.resolve(path)
    named = os.path.abspath(path) if path == named else named  # a name or an address is the same on every host
    record = recorded.read(path)
    if record.model and record.model not in MODELS[task]:
        raise UserError(f"--weights: {path} holds the model {record.model}, which is not for the task {task}")
    own = {"weights": Entry(named, Option("--weights")), "fresh_head": Entry(True, "other classes")}
    if record.model:
        own["model.name"] = Entry(record.model, path)
    return {**own, **recorded_recipe.recorded_settings({**entries, **own}, {}, path, False)}


def _published(cfg: Config, fixed: Entries, is_fast: bool) -> tuple[str, int | None, list[str]]:
    """Find weights of ImageNet in the folder of weights, or download them.

    Returns:
        `imagenet` or `initial`; the depth of the ResNet; and a line for the user.
    """
    wanted = 50 if is_fast else 18
    if not hasattr(cfg.model, "pretrained"):
        remedy = "convert some with `zoo convert`, and name them with --weights"
        return "initial", wanted, [f"initial weights: none are published for this model by name; {remedy}"]
    if "model.pretrained" in fixed:
        return fixed["model.pretrained"].value or "initial", wanted, []
    if "model.width" in fixed:
        return "initial", wanted, ["initial weights: published ones have their own model.width"]
    variant = imagenet.variant_of(cfg.model)
    here, published = imagenet.depths_at_hand(cfg.weights_dir, variant), list(imagenet.published(variant))
    depth = next(each for each in (wanted, *published) if each in (here or published))
    if "model.depth" in fixed:
        depth = fixed["model.depth"].value
    try:
        path, origin = imagenet.find_weights(depth, cfg.weights_dir, variant)
    except UserError as error:
        purpose = " to start from it" if isinstance(error, NotDownloaded) else ""  # the error names the file's place
        return "initial", wanted, [f"initial weights: {error}{purpose}"]
    return "imagenet", depth, [f"the run starts from {path} ({origin})"]


def _device(request: Request) -> tuple[str, int]:
    """Return the name of the accelerator, "" on a CPU, and the bytes of its memory or of that of the host."""
    group = join(request, {})
    world = load_backend(request.config.framework).start(group.launch, request.config.device)
    accelerator = world.accelerator()
    if accelerator is None:
        return "", host.available_memory()
    return accelerator["name"], accelerator["memory_bytes"] or 8 << 30
