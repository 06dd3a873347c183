"""Recipes: origins of values, errors and their messages, and the values of the shipped recipes."""

import os

import pytest

from data.datasets import kinetics
from data.demo import motion
from data.errors import UserError
from tests.helpers.paths import ROOT
from zoo.config import loader
from zoo.config.schema import Config, Duration, Optim, Train, Upstream
from zoo.models.resnet import spec as resnet
from zoo.models.tsm import spec as tsm
from zoo.run import cli
from zoo.run.cli import FIND
from zoo.tasks import classify

RECIPES = sorted((ROOT / "configs").glob("*.yaml"))
SMALL = """\
model:
  name: tsm
data:
  name: kinetics
train:
  epochs: 2
"""


def write(folder, text, name="r.yaml"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def build(folder, text=SMALL, *changes):
    """Build the Config and resolved entries of a recipe with -o changes."""
    return loader.build({**loader.read(write(folder, text)), **loader.overrides(changes)}, FIND)


def values(entries):
    return {key: entry.value for key, entry in entries.items()}


def message_of(call, *arguments):
    """Return the message of the UserError that a call raises."""
    with pytest.raises(UserError) as error:
        call(*arguments)
    return str(error.value)


def test_values_and_origins_of_a_file(tmp_path):
    path = write(tmp_path, SMALL)
    entries = loader.read(path)
    assert values(entries) == {"model.name": "tsm", "data.name": "kinetics", "train.epochs": 2}
    assert entries["train.epochs"].origin == f"{path}:6"


def test_an_empty_recipe_has_no_entries(tmp_path):
    assert loader.read(write(tmp_path, "")) == {} == loader.read(write(tmp_path, "# nothing\n"))


def test_base_is_changed_key_by_key(tmp_path):
    write(tmp_path, SMALL + "optim: {lr: 0.5, momentum: 0.8}\n", "base.yaml")
    path = write(tmp_path, "base: base.yaml\noptim:\n  lr: 0.1\n")
    entries = loader.read(path)
    assert entries["optim.lr"] == loader.Entry(0.1, f"{path}:3") and entries["optim.momentum"].value == 0.8
    assert entries["optim.momentum"].origin == f"{tmp_path / 'base.yaml'}:7" and "base" not in entries


def test_a_change_of_the_data_set_keeps_the_keys_that_both_have(tmp_path):
    """On the command line as in a recipe with a base."""
    text = SMALL.replace("kinetics", "kinetics\n  root: here\n  segments: 4\n  workers: 0")
    path = write(tmp_path, "base: r.yaml\ndata:\n  name: synthetic\n  kind: clip\n", "derived.yaml")
    write(tmp_path, text)
    changed = loader.merge(
        loader.read(str(tmp_path / "r.yaml")), loader.overrides(["data.name=synthetic", "data.kind=clip"])
    )
    for entries in (changed, loader.read(path)):
        config, resolved = loader.build(entries, FIND)
        assert (config.data.kind, config.data.segments, config.data.workers) == ("clip", 4, 0)
        assert resolved["data.segments"].origin.endswith("r.yaml:6") and "data.root" not in resolved
    back = loader.merge(loader.read(path), loader.overrides(["data.name=kinetics"]))
    assert "data.kind" not in loader.build(back, FIND)[1]
    changes = loader.overrides(["data.name=synthetic", "data.root=x"])  # given with the new name, so meant for it
    assert "-o data.root: unknown key" in message_of(
        lambda: loader.build(loader.merge(loader.read(str(tmp_path / "r.yaml")), changes), FIND)
    )


def test_base_chains_across_folders(tmp_path):
    write(tmp_path, "seed: 1\ndevice: cpu\nout: a\n", "deep/a.yaml")
    write(tmp_path, "base: deep/a.yaml\nseed: 2\ndevice: cuda\n", "b.yaml")
    path = write(tmp_path, "base: ../b.yaml\nseed: 3\n", "other/c.yaml")
    assert values(loader.read(path)) == {"seed": 3, "device": "cuda", "out": "a"}


def test_a_cycle_of_bases_is_found(tmp_path):
    assert "its own base" in message_of(loader.read, write(tmp_path, "base: r.yaml\n"))
    write(tmp_path, "base: b.yaml\n", "a.yaml"), write(tmp_path, "base: c.yaml\n", "b.yaml")
    assert "its own base" in message_of(loader.read, write(tmp_path, "base: a.yaml\n", "c.yaml"))


def test_a_missing_base_is_named(tmp_path):
    text = message_of(loader.read, write(tmp_path, "base: nowhere.yaml\n"))
    assert "nowhere.yaml" in text and "cannot read" in text


@pytest.mark.parametrize(
    "text, line",
    [
        ("seed: 1\nseed: 2\n", 2),
        ("train:\n  batch: 1\n  epochs: 2\n  batch: 3\n", 4),
        ("train: {batch: 1}\ntrain: {batch: 2}\n", 2),
    ],
)
def test_a_key_given_twice_is_refused(tmp_path, text, line):
    message = message_of(loader.read, write(tmp_path, text))
    assert f"r.yaml:{line}: " in message and "is given twice, first at" in message


@pytest.mark.parametrize(
    "content", [b"a: [1, 2\n", b"a: b: c\n", b"\tseed: 1\n", b"seed: \xff\xfe\n", b"seed: &x\n  *y\n"]
)
def test_invalid_yaml_is_refused_with_its_file(tmp_path, content):
    (tmp_path / "r.yaml").write_bytes(content)
    message = message_of(loader.read, str(tmp_path / "r.yaml"))
    assert "r.yaml" in message and "not valid YAML" in message


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text\n", "12\n"])
def test_yaml_without_keys_is_refused(tmp_path, text):
    assert "r.yaml:1: the recipe: expected `key: value` lines" in message_of(loader.read, write(tmp_path, text))


def test_yaml_tags_create_no_objects(tmp_path):
    path = write(tmp_path, "seed: 1\nout: !!python/object/apply:os.getcwd []\n")
    assert "r.yaml:2: out:" in message_of(loader.read, path)


@pytest.mark.parametrize("path", ["tsm_demo.yaml", "configs/tsm_demo.yaml"])
def test_shipped_recipes_are_found_from_any_folder(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    shipped = str(ROOT / "configs/tsm_demo.yaml")
    assert loader.find_recipe(path) == shipped
    assert loader.read(path) == loader.read(shipped)
    write(tmp_path, "seed: 7\n", path)
    assert loader.find_recipe(path) == path and values(loader.read(path)) == {"seed": 7}


def test_recipes_of_the_installed_package_are_found(tmp_path, monkeypatch):
    """pip installs the recipes as data of the package zoo."""
    path = write(tmp_path, "seed: 7\n", "site-packages/zoo/configs/mine.yaml")
    package = tmp_path / "site-packages/zoo"
    monkeypatch.setattr(loader, "SHIPPED_RECIPES", (package.parent / "configs", package / "configs"))
    assert loader.find_recipe("mine.yaml") == loader.find_recipe("configs/mine.yaml") == path


@pytest.mark.parametrize(
    "path", ["other/tsm_demo.yaml", "../tsm_demo.yaml", "/nowhere/tsm_demo.yaml", "tsm_demo", "configs"]
)
def test_other_paths_are_not_looked_up(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    assert loader.find_recipe(path) == path and "cannot read this recipe" in message_of(loader.read, path)


def test_a_missing_file(tmp_path):
    message = message_of(loader.read, str(tmp_path / "no.yaml"))
    assert "no.yaml" in message and "configs/" in message
    assert "cannot read" in message_of(loader.read, str(tmp_path))  # a folder


@pytest.mark.parametrize(
    "key, similar",
    [
        ("optim.learning_rat", None),
        ("optim.lrr", "optim.lr"),
        ("train.batchsize", "train.batch"),
        ("lr", "optim.lr"),
        ("model.lr", "optim.lr"),
        ("train.segments", "segments"),
        ("momentum", "optim.momentum"),
        ("sed", "seed"),
        ("task.smoothing", "task.label_smoothing"),
        ("optim.batch", "train.batch"),
        ("targt", "target"),
    ],
)
def test_unknown_keys_and_the_most_similar_valid_one(tmp_path, key, similar):
    message = message_of(build, tmp_path, SMALL, f"{key}=1")
    assert message.startswith(f"-o {key}: unknown key")
    assert similar is None or f"{similar}?" in message, message


def test_unknown_keys_of_a_file_name_its_line(tmp_path):
    message = message_of(build, tmp_path, SMALL + "optim:\n  lr: 0.1\n  momentm: 0.9\n")
    assert "r.yaml:9: optim.momentm: unknown key; did you mean optim.momentum?" in message


def test_an_unknown_key_without_a_similar_one_lists_all(tmp_path):
    message = message_of(build, tmp_path, SMALL, "task.zzzzzzzz=1")
    assert "task.label_smoothing" in message
    assert "optim" in message_of(build, tmp_path, SMALL, "zzzzzzzz=1")


@pytest.mark.parametrize(
    "change, expected",
    [
        ("train.batch=8.0", "a whole number"),
        ("train.batch=many", "a whole number"),
        ("train.batch=true", "a whole number"),
        ("train.batch=", "a whole number"),
        ("train.batch=null", "a whole number"),
        ("train.epochs=1.5", "a whole number"),
        ("optim.lr=fast", "a number"),
        ("optim.lr=true", "a number"),
        ("optim.lr=[1]", "a number"),
        ("optim.lr=null", "a number"),
        ("data.flip=1", "true or false"),
        ("data.flip=yess", "true or false"),
        ("data.flip=null", "true or false"),
        ("data.root=[a]", "text"),
        ("data.root=true", "text"),
        ("data.root=null", "text"),
        ("optim.schedule=steps", "did you mean step?"),
        ("optim.schedule=1", "constant, step, cosine, poly"),
        ("model.depth=51", "18, 34, 50, 101, 152"),
        ("model.depth=50.0", "18, 34, 50, 101, 152"),
        ("model.depth='50'", "18, 34, 50, 101, 152"),
        ("train.precision=bf61", "did you mean bf16?"),
        ("model.pretrained=imagenett", "did you mean imagenet?"),
        ("data.eval_crops=true", "1, 3, 10"),
        ("optim.milestones=20", "a list"),
        ("optim.milestones=[a]", "a number"),
        ("optim.milestones=ab", "a list"),
        ("data.mean=[1, 2]", "3 values, got 2"),
        ("data.mean=[a, b, c]", "a number"),
        ("data.flip_pairs=[1, 2]", "a list"),
        ("data.flip_pairs=[[1, 2, 3]]", "2 values, got 3"),
        ("data.flip_pairs=[[1, 2.5]]", "a whole number"),
        ("train.log_every=often", "a duration"),
        ("train.log_every=true", "a duration"),
        ("train.log_every=2.5", "steps are whole"),
        ("train.log_every=-1 epochs", "a duration"),
        ("train.log_every=3 weeks", "a duration"),
        ("train.log_every=null", "a duration"),
        ("target=high", "a number"),
        ("optim.clip_norm=[20]", "a number"),
    ],
)
def test_wrong_types_name_the_key_and_what_was_expected(tmp_path, change, expected):
    message = message_of(build, tmp_path, SMALL, change)
    assert message.startswith(f"-o {change.split('=')[0]}: ") and expected in message, message


@pytest.mark.parametrize(
    "change, key, value",
    [
        ("train.batch=8", "train.batch", 8),
        ("optim.lr=1e-4", "optim.lr", 1e-4),
        ("optim.lr=1", "optim.lr", 1.0),
        ("optim.lr=1E+2", "optim.lr", 100.0),
        ("optim.lr=.5", "optim.lr", 0.5),
        ("optim.lr='0.25'", "optim.lr", 0.25),
        ("data.flip=false", "data.flip", False),
        ("data.flip=off", "data.flip", False),
        ("data.root=12", "data.root", "12"),
        ("data.root=a=b", "data.root", "a=b"),
        ("data.suffix=", "data.suffix", ""),
        ("model.depth=101", "model.depth", 101),
        ("model.pretrained=null", "model.pretrained", None),
        ("model.pretrained=", "model.pretrained", None),
        ("model.shift_place=none", "model.shift_place", "none"),
        ("target=0.5", "target", 0.5),
        ("target=null", "target", None),
        ("optim.clip_norm=20", "optim.clip_norm", 20.0),
        ("optim.milestones=[20, 40]", "optim.milestones", (20.0, 40.0)),
        ("optim.milestones=[1e-1, 2]", "optim.milestones", (0.1, 2.0)),
        ("optim.milestones=[]", "optim.milestones", ()),
        ("data.flip_pairs=[[1, 2], [3, 4]]", "data.flip_pairs", ((1, 2), (3, 4))),
        ("data.mean=[0, 0.5, 1]", "data.mean", (0.0, 0.5, 1.0)),
        ("train.log_every=500", "train.log_every", Duration(500, "steps")),
        ("train.log_every=1 step", "train.log_every", Duration(1, "steps")),
        ("out=runs/x", "out", "runs/x"),
        ("train.log_every=2 epochs", "train.log_every", Duration(2, "epochs")),
        (" optim.lr = 0.5", "optim.lr", 0.5),
        ("train.log_every=0.5 epochs", "train.log_every", Duration.parse("0.5 epochs")),
    ],
)
def test_values_are_converted_to_the_declared_type(tmp_path, change, key, value):
    settings, resolved = build(tmp_path, SMALL, change)
    assert resolved[key].value == value and type(resolved[key].value) is type(value)
    for name in key.split("."):
        settings = getattr(settings, name)
    assert settings == value


def test_1e_4_is_a_number_in_a_file_too(tmp_path):
    assert build(tmp_path, SMALL + "optim:\n  weight_decay: 1e-4\n")[0].optim.weight_decay == 1e-4


@pytest.mark.parametrize("text", ["optim.lr", "=1", "", " =3"])
def test_an_override_without_key_or_value(text):
    assert "expected key=value" in message_of(loader.overrides, [text])


def test_overrides_that_are_invalid_yaml_or_whole_sections():
    assert "quote it" in message_of(loader.overrides, ["out=[a"])
    assert "-o optim.NAME=VALUE" in message_of(loader.overrides, ["optim={lr: 1}"])
    assert "one by one" in message_of(loader.overrides, ["out=a: b"])


def test_the_last_override_counts(tmp_path):
    assert build(tmp_path, SMALL, "seed=2", "seed=3")[0].seed == 3


def test_a_section_written_as_a_value(tmp_path):
    assert "unknown key" in message_of(build, tmp_path, SMALL + "optim: 3\n")


@pytest.mark.parametrize(
    "text, key",
    [
        ("data: {name: kinetics}\ntrain: {epochs: 1}\n", "model.name"),
        ("model: {name: tsm}\ntrain: {epochs: 1}\n", "data.name"),
        ("model: {name: tsm}\ndata: {name: kinetics}\n", "train.epochs"),
    ],
)
def test_keys_that_every_recipe_must_give(tmp_path, text, key):
    assert key in message_of(build, tmp_path, text)


def test_unknown_models_and_data_sets(tmp_path):
    message = message_of(build, tmp_path, SMALL.replace("tsm", "tsn"))
    assert "r.yaml:2: model.name: there is no model 'tsn'" in message and "tsm" in message
    message = message_of(build, tmp_path, SMALL, "data.name=kinetic")
    assert message.startswith("-o data.name: there is no data set 'kinetic'") and "motion" in message


def test_file_below_flags_below_overrides(tmp_path):
    """base < file < flags < -o"""
    write(tmp_path, SMALL + "seed: 1\ndevice: d1\nout: o1\nweights: w1\n", "base.yaml")
    path = write(tmp_path, "base: base.yaml\ndevice: d2\nout: o2\nweights: w2\n")

    def read(*arguments):
        got = cli.read(cli.parse(["-c", path, *arguments]))
        return [got.config.seed, got.config.device, got.config.out, got.config.weights], got

    assert read()[0] == [1, "d2", "o2", "w2"]
    assert read("--out", "o3", "--weights", "w3")[0] == [1, "d2", "o3", "w3"]
    values_, got = read("-o", "weights=w4", "--out", "o3", "--weights", "w3", "--amp")
    assert values_ == [1, "d2", "o3", "w4"] and got.config.train.precision == "amp"
    assert [got.resolved[key].origin for key in ("seed", "device", "out", "weights", "train.precision")] == [
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
        (["--max-steps", "0", "-c", "x"], "--max-steps"),
        (["--eval-only", "-c", "x"], "--weights"),
        ([], "-c"),
        (["--resume"], "-c"),
        (["--resume", "/nowhere/at/all"], "/nowhere/at/all"),
    ],
)
def test_invalid_command_lines(arguments, expected):
    assert expected in message_of(cli.read, cli.parse(arguments))


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
    ],
)
def test_a_rendered_recipe_gives_the_same_config(tmp_path, changes):
    settings, resolved = build(tmp_path, SMALL, *changes)
    path = write(tmp_path, loader.render(resolved), "again.yaml")
    again, entries = loader.build(loader.read(path), FIND)
    assert again == settings and values(entries) == values(resolved)
    assert loader.differences(resolved, entries) == []


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_of_the_zoo_builds_and_renders(tmp_path, path):
    settings, resolved = loader.build(loader.read(str(path)), FIND)
    again, _ = loader.build(loader.read(write(tmp_path, loader.render(resolved))), FIND)
    assert again == settings and isinstance(settings, Config)


def test_differences_name_old_and_new(tmp_path):
    _, old = build(tmp_path, SMALL)
    _, new = build(tmp_path, SMALL, "seed=2", "optim.milestones=[1]", "train.save_every=2 epochs", "train.batch=16")
    assert loader.differences(old, new) == [
        "optim.milestones: [] -> [1.0]",
        "seed: 1 -> 2",
        "train.save_every: 1 epoch -> 2 epochs",
    ]
    assert loader.differences({}, {"seed": loader.Entry(1, "x")}) == ["seed: None -> 1"]


def test_the_demo_recipe_needs_neither_gpu_nor_network():
    settings, _ = loader.build(loader.read(str(ROOT / "configs/tsm_demo.yaml")), FIND)
    assert isinstance(settings.data, motion.Settings) and settings.model.pretrained is None
    assert settings.weights is None and settings.device == "auto" and settings.model.width < 64


@pytest.mark.parametrize(
    "settings_class, values, key",
    [
        (Train, dict(), "epochs"),
        (Train, dict(epochs=1, steps=1), "epochs"),
        (Train, dict(epochs=0), "epochs"),
        (Train, dict(steps=-1), "steps"),
        (Train, dict(epochs=1, batch=0), "batch"),
        (Train, dict(epochs=1, keep_checkpoints=0), "keep_checkpoints"),
        (Train, dict(epochs=1, accumulate=0), "accumulate"),
        (Train, dict(epochs=1, eval_batch=0), "eval_batch"),
        (Train, dict(epochs=1, max_consecutive_skips=0), "max_consecutive_skips"),
        (Train, dict(epochs=1, log_every=Duration(0, "steps")), "log_every"),
        (Train, dict(epochs=1, eval_every=Duration(0, "epochs")), "eval_every"),
        (Train, dict(epochs=1, save_every=Duration(0, "steps")), "save_every"),
        (Optim, dict(lr=-0.1), "lr"),
        (Optim, dict(lr=float("nan")), "lr"),
        (Optim, dict(lr=float("inf")), "lr"),
        (Optim, dict(gamma=-1), "gamma"),
        (Optim, dict(power=-1), "power"),
        (Optim, dict(warmup_start=-1), "warmup_start"),
        (Optim, dict(momentum=1), "momentum"),
        (Optim, dict(momentum=-0.1), "momentum"),
        (Optim, dict(base_batch=0), "base_batch"),
        (Optim, dict(loss_scale=0.0), "loss_scale"),
        (Optim, dict(loss_scale=float("inf")), "loss_scale"),
        (Optim, dict(initial_loss_scale=-1.0), "initial_loss_scale"),
        (Optim, dict(loss_scale=512.0, initial_loss_scale=512.0), "initial_loss_scale"),
        (Optim, dict(weight_decay=-1e-4), "weight_decay"),
        (Optim, dict(clip_norm=0), "clip_norm"),
        (Optim, dict(clip_norm=-1), "clip_norm"),
        (Optim, dict(clip_norm=float("nan")), "clip_norm"),
        (Optim, dict(milestones=(40, 20)), "milestones"),
        (Optim, dict(weight_decay=float("nan")), "weight_decay"),
        (resnet.Arch, dict(width=0), "width"),
        (resnet.Arch, dict(num_classes=0), "num_classes"),
        (tsm.Arch, dict(width=0), "width"),
        (tsm.Arch, dict(num_classes=-1), "num_classes"),
        (tsm.Arch, dict(shift_div=1), "shift_div"),
        (tsm.Arch, dict(dropout=1.0), "dropout"),
        (tsm.Arch, dict(dropout=-0.1), "dropout"),
        (tsm.Arch, dict(dropout=float("nan")), "dropout"),
        (tsm.Arch, dict(non_local=True, depth=18), "non_local"),
        (tsm.Arch, dict(segments=0), "segments"),
        (tsm.Arch, dict(temporal_pool=True, segments=7), "temporal_pool"),
        (classify.Settings, dict(label_smoothing=1.0), "label_smoothing"),
        (classify.Settings, dict(label_smoothing=-1), "label_smoothing"),
        (kinetics.Settings, dict(workers=-1), "workers"),
        (kinetics.Settings, dict(threads=0), "threads"),
        (kinetics.Settings, dict(max_bad=1.5), "max_bad"),
        (kinetics.Settings, dict(segments=0), "segments"),
        (kinetics.Settings, dict(size=0), "size"),
        (kinetics.Settings, dict(size=13), "size"),
        (kinetics.Settings, dict(min_frames=0), "min_frames"),
        (kinetics.Settings, dict(scales=()), "scales"),
        (kinetics.Settings, dict(scales=(1.5,)), "scales"),
        (kinetics.Settings, dict(scales=(0.0,)), "scales"),
        (kinetics.Settings, dict(sampling="dense", segments=65), "segments"),
        (kinetics.Settings, dict(eval_sampling="dense_val", segments=65), "segments"),
        (kinetics.Settings, dict(eval_size=257), "eval_size"),
        (kinetics.Settings, dict(eval_size=0), "eval_size"),
        (kinetics.Settings, dict(frame_template="{}{}"), "frame_template"),
        (kinetics.Settings, dict(frame_template="{:05d"), "frame_template"),
        (kinetics.Settings, dict(frame_template="{name}"), "frame_template"),
        (kinetics.Settings, dict(frame_template="image.jpg"), "frame_template"),
        (motion.Settings, dict(train_clips=7), "train_clips"),
        (motion.Settings, dict(val_clips=0), "val_clips"),
        (motion.Settings, dict(size=0), "size"),
    ],
)
def test_impossible_values_name_their_key(settings_class, values, key):
    with pytest.raises(ValueError, match=f"^{key}: "):
        settings_class(**values)


@pytest.mark.parametrize(
    "change, expected",
    [
        ("seed=-1", "seed: "),
        ("target=71.1", "target: "),
        ("target=0", "target: "),
        ("warmup_epochs=-1", "warmup_epochs: "),
        ("optim.momentum=1", "optim.momentum: "),
        ("model.dropout=1", "model.dropout: "),
        ("data.size=1", "data.size: "),
        ("task.label_smoothing=1", "task.label_smoothing: "),
        ("train.batch=0", "train.batch: "),
        ("target=.nan", "target: "),
    ],
)
def test_impossible_values_name_their_origin(tmp_path, change, expected):
    message = message_of(build, tmp_path, SMALL, change)
    assert message.startswith(f"-o {change.split('=')[0]}: ") and expected in message


def test_an_impossible_value_of_a_file_names_its_line(tmp_path):
    assert f"{tmp_path / 'r.yaml'}:8: optim.momentum: must be below 1" in message_of(
        build, tmp_path, SMALL + "optim:\n  momentum: 2\n"
    )


def test_nothing_is_written_anywhere(tmp_path):
    build(tmp_path)
    assert os.listdir(tmp_path) == ["r.yaml"]


UPSTREAM = f"upstream:\n  repository: https://github.com/a/b\n  commit: {'0f' * 20}\n  files: [x.py]\n"


def test_an_upstream_is_inherited_recorded_and_taken_away_by_null(tmp_path):
    write(tmp_path, SMALL + UPSTREAM, "base.yaml")
    config, resolved = build(tmp_path, "base: base.yaml\n")
    assert config.upstream == Upstream("https://github.com/a/b", "0f" * 20, ("x.py",))
    again, _ = loader.build(loader.read(write(tmp_path, loader.render(resolved), "again.yaml")), FIND)
    assert again == config
    config, resolved = build(tmp_path, "base: base.yaml\nupstream: null\n")
    assert config.upstream is None and resolved["upstream"] == loader.Entry(None, f"{tmp_path / 'r.yaml'}:2")
    write(tmp_path, SMALL + "upstream: null\n", "none.yaml")
    assert build(tmp_path, "base: none.yaml\n" + UPSTREAM)[0].upstream == Upstream(
        "https://github.com/a/b", "0f" * 20, ("x.py",)
    )
    request = cli.request(write(tmp_path, SMALL + UPSTREAM), ["upstream=null"])
    assert request.config.upstream is None and request.resolved["upstream"] == loader.Entry(None, "-o upstream")


@pytest.mark.parametrize(
    "change, expected",
    [
        ("upstream.commit=0f0f", "upstream.commit: expected all 40 hexadecimal digits of a commit, got '0f0f'"),
        ("upstream.repository=a/b", "upstream.repository: expected an https address, got 'a/b'"),
        ("upstream.files=[]", "upstream.files: expected at least one path, relative to the root of the repository"),
        ("upstream.files=[/x.py]", "upstream.files: expected at least one path, relative to the root"),
        ("upstream.file=[x.py]", "upstream.file: unknown key; did you mean upstream.files?"),
        ("upstream=yes", "upstream: expected the keys of a section or null, got True"),
    ],
)
def test_an_upstream_that_is_not_one(tmp_path, change, expected):
    text = SMALL if change.startswith("upstream=") else SMALL + UPSTREAM
    assert expected in message_of(build, tmp_path, text, change)


def test_an_upstream_needs_every_key(tmp_path):
    message = message_of(build, tmp_path, SMALL + UPSTREAM.replace("  files: [x.py]\n", ""))
    assert message == "upstream.files: the recipe must give this key"
