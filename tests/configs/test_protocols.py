"""Protocol ids: what the recipes evaluate by, and that every other evaluation has another id."""

import numpy as np
import pytest

from tests.helpers.paths import CONFIGS
from zoo import tasks
from zoo.config import loader
from zoo.data.datasets import synthetic
from zoo.data.datasets.faces import VerificationPairs
from zoo.data.datasets.imagenet import ImageSplit
from zoo.data.datasets.kinetics import ClipSplit
from zoo.data.datasets.segmentation import SegmentationSplit
from zoo.data.datasets.verification import PairSet
from zoo.data.formats import images, masks
from zoo.data.formats.lists import LabeledPath
from zoo.data.formats.masks import TRAIN_CLASSES
from zoo.models import load_spec
from zoo.run.request import FIND

EXPECTED = {  # recipe -> number of classes of its data set, protocol id
    "tsm_k400": (400, "k400/8x1x1@224"),
    "tsm_ssv2": (174, "ssv2/8x1x1@224"),
    "tsm_online_k400": (400, "k400/8x1x1@224-dense_val"),
    "tsm_demo": (8, "motion/8x1x1@32"),
    "resnet50_imagenet": (1000, "imagenet/224-of-256"),
    "resnet50_imagenet_v1": (1000, "imagenet/224-of-256"),
    "resnet50_demo": (8, "shapes/48-of-54"),
    "deeplabv3plus_cityscapes": (19, "cityscapes/whole@1024x2048"),
    "deeplabv3plus_cityscapes_769": (19, "cityscapes/slide769x769/513x513@1025x2049"),
    "deeplabv3plus_demo": (19, "streets/whole@160x320"),
    "arcface_ms1m": (85742, "lfw+cfp_fp+agedb_30/10fold"),
    "arcface_glint360k": (360232, "lfw+cfp_fp+agedb_30/10fold"),
    "arcface_demo": (300, "unseen/10fold@48"),
    "arcface_synthetic": (85742, "synthetic/10fold@112"),
    "reports/tsm_torch_airank": (400, "k400/8x1x1@224"),
    "reports/tsm_paddle_airank": (400, "k400/8x1x1@224"),
    "reports/resnet50_mindspore_dlperf": (1000, "imagenet/224-of-256"),
    "reports/deeplabv3plus_mmseg_airank": (19, "cityscapes/whole@1024x2048"),
    "reports/arcface_plsc_dlperf": (85742, "synthetic/10fold@112"),
}


def clips(settings, classes, root):
    return ClipSplit(settings, [LabeledPath("a.mp4", 0)], [str(label) for label in range(classes)], False)


def pictures(settings, classes, root):
    return ImageSplit(settings, [LabeledPath("a.jpg", 0)], [str(label) for label in range(classes)], False)


def scenes(settings, classes, root):
    images.write_jpeg(str(root / "a.jpg"), np.zeros((8, 16, 3), np.uint8), 90)
    names = TRAIN_CLASSES if classes == 19 else tuple(str(label) for label in range(classes))
    return SegmentationSplit(settings, [("a.jpg", "a.png")], names, masks.class_indices(classes), False)


def pairs(settings, classes, root):
    sets = settings.verification or ("held_out",)
    empty = np.zeros((10, 2), np.int64), np.zeros(10, np.int64)
    pair_sets = [PairSet(name.partition(".")[0], None, *empty) for name in sets]
    return VerificationPairs(settings, pair_sets, range(classes))


SPLITS = {"kinetics": clips, "motion": clips, "imagenet": pictures, "shapes": pictures}
SPLITS |= {"cityscapes": scenes, "streets": scenes, "faces": pairs, "portraits": pairs}
SPLITS["synthetic"] = lambda settings, classes, root: synthetic.load(settings)[1]


def protocol(recipe, root, classes=None, folder=None, **changes):
    """Return the protocol id of a recipe with changed keys, on a data set of so many classes."""
    entries = loader.read(str(CONFIGS / f"{recipe}.yaml"))
    if entries["data.name"].value != "synthetic":
        entries["data.root"] = loader.Entry(str(folder or root), "test")
    for key, value in changes.items():
        entries[key.replace("__", ".")] = loader.Entry(value, "test")
    cfg, resolved = loader.build(entries, FIND)
    split = SPLITS[resolved["data.name"].value](cfg.data, classes or EXPECTED[recipe][0], root)
    task = tasks.load_task(load_spec(resolved["model.name"].value).TASK)
    return f"{split.protocol.name}/{task.protocol(split.protocol.views, cfg.task)}"


@pytest.mark.parametrize("recipe", EXPECTED)
def test_recipes(recipe, tmp_path):
    assert protocol(recipe, tmp_path) == EXPECTED[recipe][1]


def test_every_recipe_is_listed():
    assert {path.relative_to(CONFIGS).with_suffix("").as_posix() for path in CONFIGS.rglob("*.yaml")} == set(EXPECTED)


@pytest.mark.parametrize(
    "recipe, variants",
    [
        (
            "tsm_k400",
            [
                {"data__eval_sampling": "test"},
                {"data__eval_sampling": "twice"},
                {"data__eval_sampling": "dense"},
                {"data__eval_sampling": "dense_val"},
                {"data__eval_crops": 3},
                {"data__eval_crops": 10},
                {"data__eval_crops": 3, "data__eval_size": 256},
                {"data__eval_sampling": "twice", "data__eval_crops": 3, "data__eval_size": 256},
                {"data__segments": 16},
                {"data__size": 112},
                {"classes": 174},
                {"classes": 50},
                {"classes": 50, "data__set": "ucf"},
            ],
        ),
        (
            "resnet50_imagenet",
            [{"data__eval_size": 256}, {"data__eval_resize": 224}, {"data__size": 192}, {"data__set": "imagenet-v2"}],
        ),
        (
            "deeplabv3plus_cityscapes",
            [
                {"data__eval_scales": [0.5, 1.0, 1.5]},
                {"data__eval_scales": [0.5]},
                {"data__base_size": None},
                {"data__base_size": [512, 1024]},
                {"task__flip": True},
                {"task__window": [512, 512]},
                {"task__window": [512, 512], "task__stride": [256, 256]},
                {"task__window": [512, 1024]},
                {"classes": 5},
            ],
        ),
        ("arcface_ms1m", [{"data__verification": ["lfw.bin"]}, {"task__flip": False}, {"data__verification": []}]),
    ],
)
def test_other_evaluations_have_other_ids(recipe, variants, tmp_path):
    ids = [protocol(recipe, tmp_path), *(protocol(recipe, tmp_path, **variant) for variant in variants)]
    assert len(set(ids)) == len(ids), ids
    assert not any(id.split() != [id] for id in ids)  # one word each


def test_the_order_of_scales_does_not_count(tmp_path):
    ids = {protocol("deeplabv3plus_cityscapes", tmp_path, data__eval_scales=s) for s in ([1.0, 0.5], [0.5, 1.0])}
    assert ids == {"cityscapes/whole@1024x2048*0.5,1"}


def test_training_does_not_change_the_id(tmp_path):
    changes = {"train__batch": 2, "data__flip": False, "optim__lr": 0.5, "data__scale": [0.5, 1.0], "data__workers": 1}
    assert protocol("resnet50_imagenet", tmp_path, **changes) == "imagenet/224-of-256"


@pytest.mark.parametrize("recipe, views", [("tsm_k400", "8x1x1@224"), ("resnet50_imagenet", "224-of-256")])
def test_a_set_of_ones_own_has_the_name_of_its_folder(recipe, views, tmp_path):
    """The recipe of a well-known set is often used for another one."""
    folder = tmp_path / "my set"
    assert protocol(recipe, tmp_path, 5, folder) == f"my_set/{views}"
    assert protocol(recipe, tmp_path, 5, f"{folder}/") == f"my_set/{views}"
    assert protocol(recipe, tmp_path, 5, folder, data__set="mine") == f"mine/{views}"


def test_held_out_faces_are_named_after_the_training_set(tmp_path):
    id = protocol("arcface_ms1m", tmp_path, folder=tmp_path / "ms1m", data__verification=[])
    assert id == "ms1m-held_out/10fold"
