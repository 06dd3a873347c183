"""What is timed: recipes on synthetic data, each beside the project that its model comes from."""

from typing import NamedTuple


class Task(NamedTuple):
    """A recipe beside a peer.

    Attributes:
        framework: of both.
        recipe: in configs/.
        options: changes of it.
        peer: module in tools/bench/peers/updates.
    """

    framework: str
    recipe: str
    options: tuple[str, ...]
    peer: str

    @property
    def overrides(self) -> list[str]:
        """All changes of the recipe: whatever the data set is, nothing is read and nothing is downloaded.

        Enough samples that every run has the 100 updates from which on its memory format is measured.
        """
        return ["data.name=synthetic", "data.train_samples=64", "data.workers=0", *self.options]


CLIP = ("data.kind=clip", "data.segments=8", "model.pretrained=null", "data.num_classes=400")
FACE = ("data.kind=face", "data.size=112", "data.num_classes=10000", "model.depth=50", "train.batch=8")
MARGIN = ("task.m2=0.5", "task.m3=0", "optim.weight_decay=5e-4")  # insightface's and PLSC's recipes of MS1MV3
IMAGE = ("data.kind=image", "data.size=224", "data.num_classes=1000", "train.global_batch=null", "train.batch=8")
TASKS = {
    "tsm_224": Task("torch", "tsm_k400", (*CLIP, "data.size=224", "train.batch=1"), "temporal_shift"),
    "tsm_112": Task("torch", "tsm_k400", (*CLIP, "data.size=112", "train.batch=2"), "temporal_shift"),
    "deeplabv3plus": Task(
        "torch",
        "deeplabv3plus_cityscapes",
        ("data.kind=scene", "data.crop=[256,512]", "model.pretrained=null", "train.sync_bn=false"),
        "mmsegmentation",
    ),
    "arcface": Task("torch", "arcface_glint360k", (*FACE, *MARGIN), "insightface"),
    "resnet50": Task("torch", "resnet50_imagenet", IMAGE, "torchvision"),
    "resnet50_mindspore": Task(
        "mindspore", "resnet50_imagenet", (*IMAGE, "task.label_smoothing=0.1"), "mindcv"
    ),
    "tsm_paddle": Task("paddle", "tsm_k400", (*CLIP, "data.size=112", "train.batch=2"), "paddlevideo"),
    "arcface_paddle": Task("paddle", "arcface_glint360k", (*FACE, *MARGIN), "plsc"),
}  # fmt: skip
