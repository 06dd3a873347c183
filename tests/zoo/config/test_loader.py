"""Recipes in files: values, their origins, bases, YAML that is invalid or asks for much, where paths are found."""

import pytest
import yaml

from tests.helpers.paths import ROOT
from tests.zoo.config.recipe_files import SMALL, message_of, values, write
from zoo.config import budgeted_yaml, loader
from zoo.run.request import FIND


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


@pytest.mark.parametrize(
    "base, answer",
    [
        ("nowhere", "nowhere: there is no such recipe; zoo train --list shows those of the zoo"),
        ("tsm_dmo", "tsm_dmo: there is no such recipe; did you mean tsm_demo?"),
        ("commom.yaml", "commom.yaml: there is no such recipe; did you mean {}/common.yaml?"),
    ],
)
def test_a_missing_base_is_named(tmp_path, base, answer):
    write(tmp_path, "seed: 1\n", "common.yaml")
    path = write(tmp_path, f"seed: 2\nbase: {base}\n")
    assert message_of(loader.read, path) == f"{path}:2: base: {tmp_path}/{answer.format(tmp_path)}"


@pytest.mark.parametrize("base", ["tsm_demo", "tsm_demo.yaml", "configs/tsm_demo.yaml", "mine", "./mine.yaml"])
def test_a_base_is_found_as_a_recipe_of_the_command_line(tmp_path, monkeypatch, base):
    """A file beside the recipe comes first, and one in the current folder does not count."""
    path, elsewhere = write(tmp_path, f"base: {base}\nseed: 3\n", "recipes/r.yaml"), tmp_path / "elsewhere"
    write(tmp_path, "seed: 4\nout: mine\n", "recipes/mine.yaml")
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for name in ("tsm_demo", "tsm_demo.yaml", "mine.yaml"):
        write(elsewhere, "seed: 5\nout: elsewhere\n", name)
    shipped = values(loader.read(str(ROOT / "configs/tsm_demo.yaml")))
    expected = {"seed": 4, "out": "mine"} if "mine" in base else shipped
    assert values(loader.read(path)) == {**expected, "seed": 3}
    write(tmp_path, "seed: 6\nout: beside\n", f"recipes/{base}")
    assert values(loader.read(path)) == {"seed": 3, "out": "beside"}


def test_a_recipe_of_the_same_name_changes_that_of_the_zoo(tmp_path):
    path = write(tmp_path, "base: tsm_demo\nseed: 3\n", "tsm_demo.yaml")
    assert values(loader.read(path)) == {**values(loader.read(str(ROOT / "configs/tsm_demo.yaml"))), "seed": 3}


def test_a_base_is_one_name(tmp_path):
    path = write(tmp_path, "base: [tsm_demo, mine]\n")
    assert message_of(loader.read, path).startswith(f"{path}:1: base: expected the name of one recipe, got [")
    assert values(loader.read(write(tmp_path, "base: null\nseed: 1\n"))) == {"seed": 1}
    assert "another recipe is named by -c" in message_of(loader.overrides, ["base=tsm_demo"])


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


@pytest.mark.parametrize("path", ["tsm_demo", "tsm_demo.yaml", "configs/tsm_demo.yaml"])
def test_shipped_recipes_are_found_from_any_folder(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    shipped = str(ROOT / "zoo/configs/tsm_demo.yaml")
    assert loader.find_recipe(path) == shipped
    assert loader.read(path) == loader.read(shipped)
    (tmp_path / "tsm_demo").mkdir()  # a folder is no recipe
    assert loader.find_recipe(path) == shipped
    (tmp_path / "tsm_demo").rmdir()
    write(tmp_path, "seed: 7\n", path)
    assert loader.find_recipe(path) == path and values(loader.read(path)) == {"seed": 7}


def test_every_recipe_is_listed_in_a_line():
    lines = loader.shipped_recipes()
    assert {"tsm_demo", "reports/tsm_torch_airank"} <= lines.keys() and all(map(str.strip, lines.values()))


def test_the_nearest_recipe_is_named():
    assert "did you mean tsm_demo?" in message_of(loader.read, "tsm_dmo")


@pytest.mark.parametrize("path", ["other/tsm_demo.yaml", "../tsm_demo.yaml", "/nowhere/tsm_demo.yaml", "configs"])
def test_other_paths_are_not_looked_up(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    assert loader.find_recipe(path) == path and "there is no such recipe" in message_of(loader.read, path)


def test_a_missing_file(tmp_path):
    message = message_of(loader.read, str(tmp_path / "no.yaml"))
    assert message == f"{tmp_path}/no.yaml: there is no such recipe; zoo train --list shows those of the zoo"
    assert "cannot read" in message_of(loader.read, str(tmp_path))  # a folder


def test_values_within_the_budget():
    text = "a: [1, 2.5, null]\nb: []\nc: {d: 2020-01-02}\n"
    assert budgeted_yaml.safe_load(text) == yaml.safe_load(text)
    assert budgeted_yaml.safe_load("") is None


@pytest.mark.parametrize("levels, fits", [(budgeted_yaml.MAX_DEPTH, True), (budgeted_yaml.MAX_DEPTH + 1, False)])
def test_depth(levels, fits):
    text = "[" * levels + "]" * levels
    if fits:
        assert budgeted_yaml.safe_load(text) == yaml.safe_load(text)
    else:
        with pytest.raises(yaml.YAMLError, match="line 1: more than 20 levels"):
            budgeted_yaml.safe_load(text)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("a: &a [x]\nb: [*a, *a]\n", "line 2: the alias *a; write its value out"),
        ("a: &a [*a]\n", "the alias *a"),
        ("train:\n  epochs: 010\n", "line 2: 010 is an octal or sexagesimal number"),
        ("train:\n  epochs: 1:30\n", "line 2: 1:30 is an octal or sexagesimal number"),
        ("a: " + "[" * 100_000, "levels of nested lists"),
        ("# " + "x" * budgeted_yaml.MAX_TEXT, "more than 262144 characters"),
    ],
)
def test_a_recipe_beyond_the_budget(tmp_path, text, reason):
    message = message_of(loader.read, write(tmp_path, text))
    assert "r.yaml: not valid YAML: " in message and reason in message


@pytest.mark.parametrize(
    "scalar, reason",
    [
        ("2020-13-45", "month must be in 1..12"),
        ("[1, 1" + "0" * 5000 + "]", "4300 digits"),
        ("!!int x", "invalid literal"),
    ],
)
def test_scalars_without_a_value(tmp_path, scalar, reason):
    message = message_of(loader.read, write(tmp_path, f"seed: 1\ntrain.batch: {scalar}\n"))
    assert "r.yaml:2: train.batch: " in message and reason in message
    message = message_of(loader.overrides, [f"train.batch={scalar}"])
    assert "train.batch=" in message and reason in message and "quote it" in message


@pytest.mark.parametrize("scalar", ['"a\\0b"', '"a\\ud800b"', '["a", {b: "\\udfff"}]'])
def test_characters_that_no_file_can_have(tmp_path, scalar):
    message = message_of(loader.read, write(tmp_path, f"seed: 1\nout: {scalar}\n"))
    assert "r.yaml: not valid YAML: line 2: " in message and "is no text" in message
    assert "is no text" in message_of(loader.overrides, [f"out={scalar}"])
