"""YAML that asks for much by little text, and scalars that no Python value can hold."""

import pytest
import yaml

from tests.zoo.config.recipe_files import message_of, write
from zoo.config import budgeted_yaml, loader


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
        ("1:" * 4000 + "1.0", "too large to convert to float"),
        ("!!int x", "invalid literal"),
    ],
)
def test_scalars_without_a_value(tmp_path, scalar, reason):
    message = message_of(loader.read, write(tmp_path, f"seed: 1\ntrain.batch: {scalar}\n"))
    assert "r.yaml:2: train.batch: " in message and reason in message
    message = message_of(loader.overrides, [f"train.batch={scalar}"])
    assert message.startswith("-o train.batch=") and reason in message and "quote it" in message


@pytest.mark.parametrize("scalar", ['"a\\0b"', '"a\\ud800b"', '["a", {b: "\\udfff"}]'])
def test_characters_that_no_file_can_have(tmp_path, scalar):
    message = message_of(loader.read, write(tmp_path, f"seed: 1\nout: {scalar}\n"))
    assert "r.yaml: not valid YAML: line 2: " in message and "is no text" in message
    assert "is no text" in message_of(loader.overrides, [f"out={scalar}"])
