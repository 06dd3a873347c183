"""YAML that asks for much by little text, and scalars that no Python value can hold."""

import pytest
import yaml

from tests.zoo.config.recipe_files import message_of, write
from zoo.config import budgeted_yaml, loader

ALIASES = "".join(f"k{n}: &k{n} [{', '.join([f'*k{n - 1}'] * 9)}]\n" for n in range(1, 9))


def test_values_within_the_budget():
    text = "a: &a [1, 2.5, null]\nb: [*a, *a]\nc: {d: 2020-01-02}\n"
    assert budgeted_yaml.safe_load(text) == yaml.safe_load(text)


@pytest.mark.parametrize("levels, fits", [(budgeted_yaml.MAX_DEPTH, True), (budgeted_yaml.MAX_DEPTH + 1, False)])
def test_depth(levels, fits):
    text = "[" * levels + "]" * levels
    if fits:
        assert budgeted_yaml.safe_load(text) == yaml.safe_load(text)
    else:
        with pytest.raises(yaml.YAMLError, match="line 1: more than 20 levels"):
            budgeted_yaml.safe_load(text)


@pytest.mark.parametrize("values, fits", [(budgeted_yaml.MAX_NODES - 1, True), (budgeted_yaml.MAX_NODES, False)])
def test_number_of_values(values, fits):
    text = "- 1\n" * values
    if fits:
        assert budgeted_yaml.safe_load(text) == [1] * values
    else:
        with pytest.raises(yaml.YAMLError, match=f"line {values}: more than 20000 values"):
            budgeted_yaml.safe_load(text)


@pytest.mark.parametrize("text, reason", [("k0: &k0 [x]\n" + ALIASES, "values, with those of aliases"),
                                          ("a: " + "[" * 100_000, "levels of nested lists")])  # fmt: skip
def test_a_recipe_beyond_the_budget(tmp_path, text, reason):
    message = message_of(loader.read, write(tmp_path, text))
    assert "r.yaml: not valid YAML: line " in message and reason in message


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
