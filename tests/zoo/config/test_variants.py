"""Sections with rules of their own: keys that depend on another key, data.augment, `upstream`."""

import pytest

from tests.zoo.config.recipe_files import SMALL, build, message_of, write
from zoo import optim
from zoo.config import loader
from zoo.config.schema import Upstream
from zoo.data.errors import Option
from zoo.optim import load_settings
from zoo.run.recipe import resolve_recipe
from zoo.run.request import FIND, Options

SEGMENT = """\
model: {name: deeplabv3plus}
data: {name: streets}
task:
  ohem_kept: 100
  flip: true
train: {epochs: 1}
"""


def test_the_loss_decides_the_keys(tmp_path):
    config, resolved = build(tmp_path, SEGMENT.replace("ohem_kept: 100", "loss: focal\n  gamma: 3"))
    assert (config.task.loss, config.task.gamma, config.task.alpha) == ("focal", 3.0, 0.5)
    assert "task.ohem_kept" not in resolved and resolved["task.alpha"].origin == "default"
    usual, resolved = build(tmp_path, SEGMENT)
    assert (usual.task.loss, usual.task.ohem_kept, resolved["task.loss"].origin) == ("cross_entropy", 100, "default")


def test_another_loss_leaves_out_the_keys_it_lacks(tmp_path):
    entries = loader.merge(loader.read(write(tmp_path, SEGMENT)), loader.overrides(["task.loss=lovasz"]))
    config, resolved = loader.build(entries, FIND)
    assert config.task.classes == "present" and config.task.flip and "task.ohem_kept" not in resolved
    same = loader.merge(loader.read(write(tmp_path, SEGMENT)), loader.overrides(["task.loss=cross_entropy"]))
    assert loader.build(same, FIND)[0].task.ohem_kept == 100


def test_a_key_of_another_loss_is_refused(tmp_path):
    def message(*changes):
        return message_of(build, tmp_path, SEGMENT, *changes)

    assert message("task.gamma=2") == (
        "-o task.gamma: unknown key for model.name=deeplabv3plus, data.name=streets; it belongs to task.loss=focal"
    )
    assert message("task.sum_classes=true") == (
        "-o task.sum_classes: unknown key for model.name=deeplabv3plus, data.name=streets; it belongs to losses of the "
        "task classify"
    )
    for loss in ("dice", "focal", "lovasz"):  # these have no distribution as their target
        changes = f"task.loss={loss}", "task.label_smoothing=0.1"
        text = message_of(build, tmp_path, SEGMENT.replace("  ohem_kept: 100\n", ""), *changes)
        assert "-o task.label_smoothing: unknown key" in text and "it belongs to task.loss=cross_entropy" in text
    text = message("task.loss=dice")  # in the same recipe as ohem_kept, not instead of another loss
    assert (
        "r.yaml:4: task.ohem_kept: unknown key for model.name=deeplabv3plus, data.name=streets, task.loss=dice" in text
    )
    assert "it belongs to task.loss=cross_entropy" in text
    assert "did you mean task.ohem_kept?" in message("task.ohem_kep=3")
    assert message("task.loss=focl").startswith("-o task.loss: the task segment has no loss 'focl'")
    assert "-o task.ohem_kept: must be at least 1" in message("task.ohem_kept=0")


ONE_CYCLE = (
    "model: {name: tsm}\ndata: {name: kinetics}\ntrain: {epochs: 1}\noptim:\n  schedule: one_cycle\n  pct_start: 0.5\n"
)


def test_keys_of_a_schedule_and_of_an_optimizer(tmp_path):
    config, _ = build(tmp_path, ONE_CYCLE, "optim.name=adamw")
    assert (config.optim.name, config.optim.pct_start, config.optim.div_factor) == ("adamw", 0.5, 25.0)


RATE = SMALL + "optim: {lr: 0.2}\n"


def merged(tmp_path, text, *changes):
    """Return the learning rate of a recipe to which changes are applied one after the other."""
    entries = loader.read(write(tmp_path, text))
    for pairs in changes:
        entries = loader.merge(entries, loader.overrides(pairs))
    return loader.build(entries, FIND)[0].optim.lr


def test_a_learning_rate_that_was_chosen_for_another_optimizer_is_refused(tmp_path):
    """By an override, in a recipe with a base, and through several of them; that of plain SGD is that of Nesterov's."""
    for name, usual in (("adamw", "0.001"), ("lamb", "0.0025"), ("lars", "0.3")):
        message = message_of(merged, tmp_path, RATE, [f"optim.name={name}"])
        assert message.endswith(
            f"optim.lr: 0.2 was chosen for optim.name=sgd; give optim.lr for {name}, for example -o optim.lr={usual}"
        ) and message.startswith(str(tmp_path / "r.yaml"))
    assert merged(tmp_path, RATE, ["optim.name=sgd_nesterov"]) == merged(tmp_path, RATE, ["optim.name=sgd"]) == 0.2
    assert (
        merged(tmp_path, RATE, ["optim.name=adamw", "optim.lr=0.1"]) == merged(tmp_path, RATE, ["optim.lr=0.1"]) == 0.1
    )
    assert merged(tmp_path, RATE, ["optim.name=adamw"], ["optim.lr=0.01"]) == 0.01
    adamw = ["optim.name=adamw", "optim.lr=0.01"]
    assert "0.01 was chosen for optim.name=adamw" in message_of(merged, tmp_path, RATE, adamw, ["optim.name=sgd"])
    assert merged(tmp_path, RATE, ["optim.name=adamw"], ["optim.name=sgd"]) == 0.2
    write(tmp_path, RATE, "base.yaml")
    child = "base: base.yaml\noptim: {name: adamw}\n"
    assert "base.yaml" in message_of(merged, tmp_path, child)
    assert merged(tmp_path, child, ["optim.lr=3"]) == 3


def test_muon_does_not_take_over_the_momentum_of_sgd():
    request = resolve_recipe(Options("configs/resnet50_imagenet.yaml", ["optim.name=muon", "optim.lr=0.002"]))
    assert request.config.optim.filter_momentum == 0.95 and "optim.momentum" not in request.resolved


def test_every_optimizer_has_a_learning_rate_of_its_own(tmp_path):
    rates = {name: merged(tmp_path, SMALL, [f"optim.name={name}"]) for name in optim.OPTIMIZERS}
    assert rates == {"sgd": 0.1, "sgd_nesterov": 0.1, "adamw": 0.001, "lars": 0.3, "lamb": 0.0025, "muon": 0.001}


@pytest.mark.parametrize(
    "change, message",
    [
        ("optim.schedule=cosin", "-o optim.schedule: there is no 'cosin'; there are: constant, cosine"),
        (
            "optim.name=adam",
            "-o optim.name: there is no optimizer 'adam'; there are: adamw, lamb, lars, muon, sgd, sgd_nesterov",
        ),
        ("optim.pct_start=1", "-o optim.pct_start: must be above 0"),
        ("optim.final_div_factor=0.5", "-o optim.final_div_factor: must be at least 1"),
        ("optim.min_lr=0.01", "-o optim.min_lr: the schedule one_cycle has none; set it to 0"),
    ],
)
def test_what_is_wrong_with_a_schedule(tmp_path, change, message):
    assert message in message_of(build, tmp_path, ONE_CYCLE, change)


@pytest.mark.parametrize(
    "name, key, owner", [("adamw", "momentum", "sgd"), ("sgd", "beta1", "adamw"), ("lamb", "nesterov", None)]
)
def test_keys_of_other_optimizers(name, key, owner):
    assert optim.owner(load_settings(name), key) == (f"optim.name={owner}" if owner else "")


AUGMENTATIONS = "[multi_scale_crop, horizontal_flip, {rand_augment: {n: 2, m: 9}}, {color_jitter: {brightness: 0.4}}]"
AUGMENTED = SMALL.replace("name: kinetics\n", f"name: kinetics\n  augment: {AUGMENTATIONS}\n  mixup: 0.2\n")


def test_overrides_replace_the_list_and_differences_show_it(tmp_path):
    _, before = build(tmp_path, AUGMENTED)
    config, after = build(tmp_path, AUGMENTED, "data.augment=[{grayscale: {p: 0.2}}]")
    assert str(config.data.augment.steps[0]) == "grayscale(p=0.2)"
    (line,) = loader.differences(before, after).values()
    assert line.endswith("-> [{'grayscale': {'p': 0.2}}]")
    assert build(tmp_path, AUGMENTED, "data.augment=null")[0].data.augment is None


def test_errors_of_a_list_name_the_line_and_the_key(tmp_path):
    place = f"{tmp_path / 'r.yaml'}:5: data.augment: "
    for text, message in (
        (AUGMENTED.replace("n: 2", "k: 2"), "rand_augment: k: unknown option; there are: n, m, interpolation, fill"),
        (
            AUGMENTED.replace("rand_augment", "randaugment"),
            "there is no augmentation 'randaugment'; there are: ",
        ),
        (
            AUGMENTED.replace("  mixup: 0.2", "  flip: false"),
            "horizontal_flip mirrors, which data.flip=false rules out",
        ),
    ):
        assert message_of(build, tmp_path, text).startswith(place + message)


UPSTREAM = f"upstream:\n  repository: https://github.com/a/b\n  commit: {'0f' * 20}\n  files: [x.py]\n"


def test_an_upstream_is_inherited_recorded_and_taken_away_by_null(tmp_path):
    write(tmp_path, SMALL + UPSTREAM, "base.yaml")
    config, _ = build(tmp_path, "base: base.yaml\n")
    assert config.upstream == Upstream("https://github.com/a/b", "0f" * 20, ("x.py",))
    config, resolved = build(tmp_path, "base: base.yaml\nupstream: null\n")
    assert config.upstream is None and resolved["upstream"] == loader.Entry(None, f"{tmp_path / 'r.yaml'}:2")
    write(tmp_path, SMALL + "upstream: null\n", "none.yaml")
    assert build(tmp_path, "base: none.yaml\n" + UPSTREAM)[0].upstream == Upstream(
        "https://github.com/a/b", "0f" * 20, ("x.py",)
    )
    request = resolve_recipe(Options(write(tmp_path, SMALL + UPSTREAM), ["upstream=null"]))
    assert request.config.upstream is None and request.resolved["upstream"] == loader.Entry(None, Option("upstream"))


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
