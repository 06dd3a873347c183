"""All loaders read the same samples; the adapters hand the recipe over to stand-ins of other projects' code."""

import itertools
import sys
import types

import numpy as np
import pytest

from tests.data.loaders import sets
from zoo.bench.peers import loaders, upstream
from zoo.bench.peers.loaders import MapStyle
from zoo.data import order
from zoo.data.datasets import cityscapes, imagenet, kinetics
from zoo.data.errors import UserError

CLONES = {
    "temporal-shift-module/ops/__init__.py": "",
    "temporal-shift-module/ops/transforms.py": """
def named(name):
    return lambda *given, **options: (name, *given, *options.items())
GroupMultiScaleCrop, Stack = named("crop"), named("stack")
GroupRandomHorizontalFlip, ToTorchFormatTensor, GroupNormalize = named("flip"), named("tensor"), named("normalize")
""",
    "temporal-shift-module/ops/dataset.py": """
def TSNDataSet(root, list_file, **options):
    return {"root": root, "list": list_file, **options}
""",
    "DeepLearningExamples/PyTorch/Classification/ConvNets/image_classification/__init__.py": "",
    "DeepLearningExamples/PyTorch/Classification/ConvNets/image_classification/dataloaders.py": """
import types
def get_pytorch_train_loader(data_path, image_size, batch_size, num_classes, one_hot, workers):
    loader = types.SimpleNamespace(dataset=(data_path, image_size, one_hot), collate_fn=len)
    return types.SimpleNamespace(dataloader=loader), 1
""",
    "vision/references/classification/presets.py": """
def ClassificationPresetTrain(*, crop_size):
    return ("preset", crop_size)
""",
    "insightface/recognition/arcface_torch/dataset.py": """
import numpy as np
def MXFaceDataset(root_dir, local_rank):
    return (root_dir, np.bool)
""",
}


@pytest.fixture
def clones(tmp_path, monkeypatch):
    """A folder with stand-ins of the projects; whatever is imported from there is forgotten afterwards."""
    for name, text in CLONES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    stand_in(monkeypatch, "torch.utils.data", default_collate="default_collate")
    stand_in(monkeypatch, "torchvision.transforms", Compose=tuple)
    stand_in(monkeypatch, "torchvision.datasets", ImageFolder=lambda *given: given)
    yield str(tmp_path)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def stand_in(monkeypatch, name, **members):
    module = types.ModuleType(name)
    vars(module).update(members)
    for end in range(1, name.count(".") + 1):
        parent = ".".join(name.split(".")[:end])
        if parent not in sys.modules:
            monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    monkeypatch.setitem(sys.modules, name, module)
    return module


class Squares:
    def __init__(self, log=None):
        self.log = log

    def __len__(self):
        return 5

    def __getitem__(self, index):
        if self.log is not None:
            self.log.append(index)
        return index * index


def expected(start, count, size=5):
    return [order.locate(0, size, position)[1] for position in range(start, start + count)]


def test_all_read_the_samples_of_a_run(tmp_path, monkeypatch):
    log = []
    loaders.map_style("files", "name", MapStyle(Squares(log), list), batch=3).read(4)
    assert log == expected(12, 3)
    train, _ = sets.face_set(tmp_path)
    read = []
    monkeypatch.setattr(train, "sample", lambda index, rng: read.append(index) or {"image": np.zeros((2, 2, 3))})
    loaders.ours("faces", train, batch=4).read(2)
    assert read == expected(8, 4, len(train))


def test_processes_read_without_end(tmp_path):
    pytest.importorskip("torch")
    stream = loaders.map_style("files", "name", MapStyle(Squares(), list), batch=3).stream()
    batches = list(itertools.islice(stream, 4))
    stream.close()
    assert batches == [[index * index for index in expected(3 * number, 3)] for number in range(4)]
    train, _ = sets.face_set(tmp_path)
    task = loaders.Task(4, (1, 1))
    task.add_own("faces", lambda settings: (train, None), None, dali=False)
    stream = task.loaders[1].stream()
    batch = next(stream)
    stream.close()
    assert task.loaders[1].name == "bare loop" and tuple(batch.shape) == (4, *train.fields[0].shape)


def test_mit_han_lab(clones):
    settings = kinetics.Settings(root="/frames", size=112, segments=4)
    dataset, collate = loaders.open_mit(clones, settings)
    assert (dataset["root"], dataset["list"]) == ("/frames", "/frames/train.list")
    assert (dataset["num_segments"], dataset["image_tmpl"]) == (4, "img_{:05d}.jpg")
    crop, flip, stack, tensor, normalize = dataset["transform"]
    assert crop == ("crop", 112, list(settings.scales)) and flip == ("flip", ("is_flow", False))
    assert (stack, tensor) == (("stack", ("roll", False)), ("tensor", ("div", True)))
    assert normalize == ("normalize", list(settings.mean), list(settings.std)) and collate == "default_collate"


def test_nvidia(clones):
    opened = loaders.open_nvidia(clones, imagenet.Settings(root="/images", size=112))
    assert opened == (("/images", 112, False), len)


def test_torchvision(clones):
    opened = loaders.open_torchvision(clones, imagenet.Settings(root="/images", size=112))
    assert opened == (("/images/train", ("preset", 112)), "default_collate")


def test_insightface(clones, monkeypatch):
    monkeypatch.setitem(vars(np), "bool", None)  # restores it afterwards
    del vars(np)["bool"]
    assert loaders.open_insightface(clones, "/faces") == (("/faces", bool), "default_collate")


def test_mmsegmentation(clones, monkeypatch):
    stand_in(monkeypatch, "mmcv.image")
    monkeypatch.setitem(sys.modules, "mmcv.ops", None)
    stand_in(monkeypatch, "mmseg.datasets", CityscapesDataset=lambda **options: options)
    stand_in(monkeypatch, "mmengine.registry", init_default_scope=lambda scope: None)
    stand_in(monkeypatch, "mmengine.dataset", pseudo_collate="pseudo_collate")
    settings = cityscapes.Settings(root="/scenes", crop=(32, 64), base_size=(64, 128), scale=(0.5, 1.5), max_share=0.5)
    dataset, collate = loaders.open_mmsegmentation(settings)
    steps = {step["type"]: step for step in dataset["pipeline"]}
    assert steps["RandomResize"] == {"type": "RandomResize", "scale": (128, 64), "ratio_range": (0.5, 1.5), "keep_ratio": True}  # fmt: skip  # noqa: E501
    assert steps["RandomCrop"] == {"type": "RandomCrop", "crop_size": (32, 64), "cat_max_ratio": 0.5}
    assert list(steps) == ["LoadImageFromFile", "LoadAnnotations", "RandomResize", "RandomCrop", "RandomFlip",
                           "PhotoMetricDistortion", "PackSegInputs"]  # fmt: skip
    assert dataset["data_root"] == "/scenes" and collate == "pseudo_collate"
    plain = loaders.open_mmsegmentation(cityscapes.Settings(base_size=(64, 128), photometric=False)).dataset
    assert [step["type"] for step in plain["pipeline"]] == [name for name in steps if name != "PhotoMetricDistortion"]


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(UserError, match=r"absent: no such folder; docs/performance.md"):
        upstream.load(str(tmp_path / "absent"), "json")
    with pytest.raises(UserError, match=r"no_such_package: No module named 'no_such_package'; docs/performance.md"):
        upstream.installed("no_such_package")
