"""Data sets as numpy batches. Nothing in this package imports the rest of zoo or a framework.

A data set is a module with `Settings` (the `data:` section of a recipe), `load(settings)` -> (training split,
validation split) and `describe(train, val, method)` -> DataRecord (zoo/data/record.py); MODULES names them all. Both
splits are a Dataset of zoo/data/dataset.py. The validation split also has `protocol`, a Protocol of
zoo/data/datasets/common.py: the name of the set and what the model sees of a sample (frames, clips, crops, sizes,
scales), from which a run makes its protocol id, such as k400/8x1x1@224. Whatever changes the metric of the same weights
on the same files must change it.

Other packages add data sets by entry points of the group `zoo.datasets` (plugins.py).
"""

from types import ModuleType

from zoo.data import plugins

GROUP = "zoo.datasets"

MODULES = {
    "cityscapes": "zoo.data.datasets.cityscapes",
    "faces": "zoo.data.datasets.faces",
    "imagenet": "zoo.data.datasets.imagenet",
    "kinetics": "zoo.data.datasets.kinetics",
    "motion": "zoo.data.demo.motion",
    "multilabel": "zoo.data.datasets.multilabel",
    "portraits": "zoo.data.demo.portraits",
    "shapes": "zoo.data.demo.shapes",
    "streets": "zoo.data.demo.streets",
    "synthetic": "zoo.data.datasets.synthetic",
}


def find(name: str) -> ModuleType:
    return plugins.load("data set", GROUP, MODULES, name, "Settings", "load", "describe")


def names() -> list[str]:
    """Return the sorted names of all data sets."""
    return plugins.names(GROUP, MODULES)
