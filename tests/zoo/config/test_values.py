"""Values of keys: their types, unknown keys and hints at the one that was meant, rules of `optim.groups`."""

from functools import cache
from typing import Literal

import pytest

from tests.helpers.paths import ROOT
from tests.zoo.config.recipe_files import SMALL, build, message_of
from zoo.config import loader
from zoo.config.schema import Duration, GroupRule
from zoo.config.suggestions import SYNONYMS, suggestion
from zoo.data.convert import convert, plain
from zoo.run.request import FIND


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
    assert "r.yaml:9: optim.momentm: unknown key for optim.name=sgd; did you mean optim.momentum?" in message


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
        ("optim.schedule=1", "constant, cosine, exponential, linear, one_cycle, poly, step"),
        ("model.depth=51", "18, 34, 50, 101, 152"),
        ("model.depth=50.0", "18, 34, 50, 101, 152"),
        ("model.depth='50'", "18, 34, 50, 101, 152"),
        ("train.precision=bf61", "did you mean bf16?"),
        ("model.pretrained=imagenett", "did you mean imagenet?"),
        ("train.compile=reduce_overhead", "reduce-overhead, max-autotune"),
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
        ("train.compile=true", "train.compile", True),
        ("train.compile=reduce-overhead", "train.compile", "reduce-overhead"),
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
    assert "optim: a section, which has keys such as optim.lr" in message_of(build, tmp_path, SMALL + "optim: 3\n")


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


Workers = int | Literal["auto"]


def test_a_number_or_a_word():
    assert convert(3, Workers) == 3 and convert("auto", Workers) == "auto"


@pytest.mark.parametrize("value", ["fast", "", None, True, 1.5, [1]])
def test_neither_a_number_nor_the_word(value):
    with pytest.raises(ValueError) as caught:
        convert(value, Workers)
    assert str(caught.value) == f"expected a whole number or auto, got {value!r}"


def test_null_is_accepted_where_the_type_says_so():
    assert convert(None, int | None) is None and convert("", int | None) is None and convert(2, int | None) == 2
    with pytest.raises(ValueError, match="^expected a whole number or null, got 'x'$"):
        convert("x", int | None)


RULES = tuple[GroupRule, ...]


def test_rules_are_read_and_written_again():
    written = [{"match": "layer[12].*", "lr": 0.1}, {"match": "fc.*", "decay": 0.0, "freeze": True}]
    rules = convert([written[0], {**written[1], "lr": "1e0"}], RULES)
    assert rules == (GroupRule("layer[12].*", 0.1), GroupRule("fc.*", 1.0, 0.0, True))
    assert plain(rules) == written and convert(plain(rules), RULES) == rules


def test_a_pattern_is_one_of_whole_names():
    rule = GroupRule("layer[12].*")
    assert rule.matches("layer1.0.conv1.weight") and not rule.matches("layer3.0.conv1.weight")
    assert not rule.matches("aux.layer1.0.conv1.weight")


@pytest.mark.parametrize(
    "rule, message",
    [
        ("layer1", "expected keys such as"),
        ({"lr": 0.1}, "expected keys such as"),
        ({"match": "("}, "changes nothing"),
        ({"match": "(", "lr": 0.1}, "'\\('.* is no regular expression"),
        ({"match": "a", "lr": -1}, "lr: must be at least 0, got -1"),
        ({"match": "a", "decay": float("nan")}, "decay: must be finite and at least 0, got nan"),
        ({"match": "a", "lr": True}, "lr: expected a number"),
        ({"match": "a", "freeze": 1}, "freeze: expected true or false, got 1"),
        ({"match": "a", "freze": True}, "unknown key 'freze'; did you mean freeze?"),
    ],
)
def test_mistakes_of_a_rule(rule, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        convert([rule], RULES)


RECIPES = ("tsm_demo", "resnet50_demo", "deeplabv3plus_demo", "arcface_demo")


@cache
def keys(recipe):
    """Return the entries of a shipped recipe, and with those of the schema."""
    entries = loader.read(str(ROOT / f"configs/{recipe}.yaml"))
    return entries, loader.build(entries, FIND)[1]


def unknown(recipe, key):
    """Return the message about an unknown key of a shipped recipe."""
    return message_of(loader.build, {**keys(recipe)[0], **loader.overrides([f"{key}=1"])}, FIND)


@pytest.mark.parametrize("meant", SYNONYMS)
def test_names_of_other_projects(meant):
    recipe = next(name for name in RECIPES if meant in keys(name)[1])  # every key that is hinted at exists
    section = meant.rpartition(".")[0] or "train"
    for name in SYNONYMS[meant]:
        for key in (name, f"{section}.{name}", f"{section}.{name.upper()}"):
            assert f"did you mean {meant}?" in unknown(recipe, key)


def test_each_name_means_one_key():
    names = [name for names in SYNONYMS.values() for name in names]
    assert len(names) == len(set(names))


def test_the_same_name_comes_before_a_synonym_and_that_before_the_spelling():
    known = ["optim.lr", "train.learning_rat", "train.batch"]
    assert suggestion("optim.learning_rate", known) == "; did you mean optim.lr?"
    assert suggestion("optim.learning_rate", [*known, "model.learning_rate"]).endswith("model.learning_rate?")
    assert suggestion("optim.learning_rte", known) == "; did you mean optim.lr?"
    assert suggestion("train.bath", known) == "; did you mean train.batch?"


def test_a_synonym_of_a_key_that_the_recipe_has_not():
    assert "data.segments" not in unknown("resnet50_demo", "num_segments")
