"""The demo recipes in small: seconds for a proof of tools/compare.py, in any framework."""

from pathlib import Path

from zoo.data.demo import motion, portraits, shapes, streets

COMMON = ("data.workers=0", "train.batch=6", "train.accumulate=1")
PORTRAITS = dict(size=32, identities=7, shots=4, val_identities=4, val_shots=3, val_pairs=10)
SMALL = {
    "tsm": (
        "model.width=8",
        "model.dropout=0.5",
        "data.size=16",
        "data.segments=4",
        "data.train_clips=24",
        "data.val_clips=8",
    ),
    "resnet50": ("model.width=8", "data.size=24", "data.train_images=24", "data.val_images=8"),
    "deeplabv3plus": (
        "model.width=8",
        "model.head_width=16",
        "model.low_width=8",
        "model.aux_width=8",
        "data.crop=[32, 48]",
        "data.train_images=24",
        "data.val_images=8",
    ),
    "arcface": (
        "model.width=8",
        "model.embedding=16",
        "task.scale=8.0",
        *(f"data.{key}={value}" for key, value in PORTRAITS.items()),
    ),
}


def make_sets(folder: Path) -> None:
    """Make the data sets of all recipes, a folder each."""
    motion.make(str(folder / "tsm"), 24, 8)
    shapes.make(str(folder / "resnet50"), 24, 8)
    streets.make(str(folder / "deeplabv3plus"), 24, 8)
    portraits.make(portraits.Settings(root=str(folder / "arcface"), **PORTRAITS))


def overrides(recipe: str, options: tuple[str, ...], sets: Path) -> list[str]:
    """Return the settings of a proof, as for `-o`; the last of several of a key counts."""
    settings = [f"data.root={sets / recipe}", *COMMON, *SMALL[recipe], *options]
    return [f"{key}={value}" for key, value in dict(setting.split("=", 1) for setting in settings).items()]
