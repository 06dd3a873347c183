"""The order of file, flags and -o, and resolved recipes as text: origins, differences, the shipped recipes."""

import pytest

from tests.helpers.paths import ROOT
from tests.zoo.config.recipe_files import SMALL, build, message_of, values, write
from zoo.commands import train
from zoo.config import loader
from zoo.config.schema import Config
from zoo.data.demo import motion
from zoo.data.errors import UserError
from zoo.run.request import FIND

RECIPES = sorted((ROOT / "configs").glob("*.yaml"))


def test_file_below_flags_below_overrides(tmp_path):
    """base < file < flags < -o"""
    write(tmp_path, SMALL + "seed: 1\ndevice: d1\nout: o1\nweights: w1\n", "base.yaml")
    path = write(tmp_path, "base: base.yaml\ndevice: d2\nout: o2\nweights: w2\n")

    def read(*arguments):
        got = train.read(train.parse(["-c", path, *arguments]))
        return [got.config.seed, got.config.device, got.config.out, got.config.weights], got

    assert read()[0] == [1, "d2", "o2", "w2"]
    assert read("--out", "o3", "--weights", "w3")[0] == [1, "d2", "o3", "w3"]
    values_, got = read("-o", "weights=w4", "--out", "o3", "--weights", "w3", "--amp")
    assert values_ == [1, "d2", "o3", "w4"] and got.config.train.precision == "amp"
    assert [str(got.resolved[key].origin) for key in ("seed", "device", "out", "weights", "train.precision")] == [
        f"{tmp_path / 'base.yaml'}:7",
        f"{path}:2",
        "--out",
        "-o weights",
        "--amp",
    ]
    assert read("--seed", "7", "--framework", "paddle", "--device", "cpu")[1].config.framework == "paddle"
    assert read("--amp", "-o", "train.precision=fp32")[1].config.train.precision == "fp32"
    assert read("--exact")[1].config.train.precision == "exact"
    with pytest.raises(UserError, match="--amp in 16 bits; leave one of them out"):
        read("--exact", "--amp")
    with pytest.raises(UserError, match="fp16_allreduce: would round"):
        read("--exact", "-o", "train.fp16_allreduce=true")


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["--eval-only", "-c", "x"], "--weights"),
        ([], "-c"),
        (["--resume"], "-c"),
        (["--resume", "/nowhere/at/all"], "/nowhere/at/all"),
    ],
)
def test_invalid_command_lines(arguments, expected):
    assert expected in message_of(train.read, train.parse(arguments))


def test_every_line_of_a_rendered_recipe_names_its_origin(tmp_path):
    _, resolved = build(tmp_path, SMALL, "optim.lr=0.5")
    lines = loader.render(resolved).splitlines()
    path = str(tmp_path / "r.yaml")
    for text in (
        f"name: tsm # {path}:2",
        f"epochs: 2 # {path}:6",
        "lr: 0.5 # -o optim.lr",
        "batch: 16 # default",
        "seed: 1 # default",
        "log_every: 20 steps # default",
    ):
        assert text in [" ".join(line.split()) for line in lines], text
    assert all(" # " in line or line.endswith(":") for line in lines)


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("optim.lr=1e-7", "train.log_every=1 epoch", "train.eval_every=0.3 epochs", "target=0.711", "out='a b: c#d'"),
        ("data.suffix='#'", "data.root='no'", "device='12'", "data.flip_pairs=[[1, 2]]", "model.pretrained=imagenet"),
        ("data.root='1e5'", "data.frame_template='{:05d}: \"x\".jpg'", "out='null'", "optim.milestones=[0.5, 1]"),
        ("out='köln'", "data.names=''", "train.epochs=null", "train.steps=7"),
        ("train.log_every=0.00001 epochs", "train.save_every=100000000000000000000 steps"),
        ("model.name=deeplabv3plus", "data.name=streets", "task.loss=dice", "task.eps=0.5"),
        ("optim.name=adamw", "optim.schedule=one_cycle", "optim.pct_start=0.5"),
        ("data.augment=[multi_scale_crop, horizontal_flip, {rand_augment: {n: 2, m: 9}}]", "data.mixup=0.2"),
        ("upstream.repository=https://a/b", f"upstream.commit={'0f' * 20}", "upstream.files=[x.py]"),
    ],
)
def test_a_rendered_recipe_gives_the_same_config(tmp_path, changes):
    settings, resolved = build(tmp_path, SMALL, *changes)
    path = write(tmp_path, loader.render(resolved), "again.yaml")
    again, entries = loader.build(loader.read(path), FIND)
    assert again == settings and values(entries) == values(resolved)
    assert loader.differences(resolved, entries) == {}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_of_the_zoo_builds_and_renders(tmp_path, path):
    settings, resolved = loader.build(loader.read(str(path)), FIND)
    again, _ = loader.build(loader.read(write(tmp_path, loader.render(resolved))), FIND)
    assert again == settings and isinstance(settings, Config)


def test_differences_name_old_and_new(tmp_path):
    _, old = build(tmp_path, SMALL)
    _, new = build(tmp_path, SMALL, "seed=2", "optim.milestones=[1]", "train.save_every=2 epochs", "train.batch=16")
    assert [*loader.differences(old, new).values()] == [
        "optim.milestones: [] -> [1.0]",
        "seed: 1 -> 2",
        "train.save_every: 1 epoch -> 2 epochs",
    ]
    assert loader.differences({}, {"seed": loader.Entry(1, "x")}) == {"seed": "seed: None -> 1"}


def test_the_demo_recipe_needs_neither_gpu_nor_network():
    settings, _ = loader.build(loader.read(str(ROOT / "configs/tsm_demo.yaml")), FIND)
    assert isinstance(settings.data, motion.Settings) and settings.model.pretrained is None
    assert settings.weights is None and settings.device == "auto" and settings.model.width < 64
