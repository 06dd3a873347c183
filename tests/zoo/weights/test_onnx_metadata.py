"""Metadata of exported models: they survive a round trip, and those of a stranger's file are checked."""

import json
from dataclasses import replace

import pytest

from zoo.data.errors import UserError
from zoo.weights.onnx_file import Input, OnnxMetadata, Output, State, Weights

METADATA = OnnxMetadata(
    record={"recipe": "model:\n  name: deeplabv3plus\n", "classes": ["road", "Gebäude"], "step": 500},
    model="deeplabv3plus",
    task="segment",
    arch={"depth": 18, "rates": [2, 4, 6], "crop": None},
    protocol="streets/whole@160x320",
    classes=("road", "Gebäude"),
    palette=((128, 64, 128), (70, 70, 70)),
    weights=Weights("runs/streets/checkpoints/best", "0123456789abcdef" * 4),
    framework="mindspore",
    precision="fp32",
    opset=18,
    max_difference=1.5e-06,
    input=Input("input", "NCHW", "float32", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), True),
    output=Output("output", "logits"),
    preprocessing={"base_size": [160, 320]},
)


def read(**changes):
    """Read the metadata with some properties replaced; None leaves one out."""
    properties = {**METADATA.to_properties(), **changes}
    return OnnxMetadata.from_properties(
        {key: value for key, value in properties.items() if value is not None}, "a.onnx"
    )


def test_round_trip():
    properties = METADATA.to_properties()
    assert all(isinstance(value, str) for value in properties.values())
    assert OnnxMetadata.from_properties(properties, "a.onnx") == METADATA
    assert (properties["format"], properties["format_version"]) == ("vision-zoo", "1")
    assert (properties["model"], properties["precision"], properties["opset"]) == ("deeplabv3plus", "fp32", "18")
    assert json.loads(properties["classes"]) == ["road", "Gebäude"]
    assert json.loads(properties["input"])["mean"] == [0.485, 0.456, 0.406]


def test_states_are_two_names_and_a_shape():
    metadata = replace(METADATA, states=(State("state_0", "next_state_0", (1, 8, 56, 56)),))
    properties = metadata.to_properties()
    assert properties["states"] == '[["state_0", "next_state_0", [1, 8, 56, 56]]]'
    assert OnnxMetadata.from_properties(properties, "a.onnx") == metadata


def test_properties_of_other_programs_are_left_alone():
    assert read(author="somebody", onnx_version="?") == METADATA


@pytest.mark.parametrize("changes", [{"format": None}, {"format": "mmdeploy"}])
def test_a_file_of_another_program_is_named(changes):
    with pytest.raises(UserError, match="a.onnx has no metadata of this zoo"):
        read(**changes)


def test_another_version_is_named():
    with pytest.raises(UserError, match="version 2, and this zoo reads 1"):
        read(format_version="2")


@pytest.mark.parametrize("name", [name for name in METADATA.to_properties() if not name.startswith("format")])
def test_a_missing_property_is_named(name):
    with pytest.raises(UserError, match=f"a.onnx: its metadata are damaged .{name}: is missing"):
        read(**{name: None})


HOSTILE = {
    "model": ["", "../../etc/passwd", "x" * 100_000],
    "task": ["detect", "", "t" * 100_000],
    "protocol": ["p" * 100_000],
    "framework": ["jax"],
    "precision": ["fp8"],
    "opset": ["-1", "true", "1.5", '"18"', "9" * 5000, "null"],
    "max_difference": ["-1", "NaN", "Infinity", "1e999", '"0"', "true"],
    "classes": [
        "{}",
        "[1, 2]",
        '["a"',
        "[[]]",
        f'["{"x" * 2000}", "b"]',
        "[" * 100_000,
        r'["a", "\u001b[31mb"]',
        r'["a", "b\n"]',
    ],
    "palette": ["[[0, 0, 256], [0, 0, 0]]", "[[0, 0], [0, 0]]", "[[0, 0, 0]]", "[0]", "[[0, 0, -1], [0, 0, 0]]"],
    "weights": ["{}", '{"name": "a", "sha256": "abc"}', '{"name": 1, "sha256": "' + "0" * 64 + '"}', "[]"],
    "record": ["[]", "{}", '{"recipe": 1, "classes": [], "step": 0}', '{"recipe": "", "classes": [1], "step": 0}'],
    "arch": ["[]", "3"],
    "preprocessing": ["null", "[" + "[]," * 1_000_001 + "[]]"],
    "output": ["{}", '{"name": "", "kind": "logits"}', '{"name": "output", "kind": "embedding"}', '{"name": "o"}'],
    "states": [
        '[["a", "next_a"]]',
        '[["a", "next_b", [1, 3]]]',
        '[["a", "next_a", [0]]]',
        '[["a", "next_a", [-1, 3]]]',
        f'[["a", "next_a", [{2**40}]]]',
        '[["a", "next_a", [67108864]], ["c", "next_c", [67108864]]]',
        '[["a", "next_a", []]]',
        '["abc"]',
        "[[[], {}, [1]]]",
    ],
}


@pytest.mark.parametrize("name, value", [(name, value) for name, values in HOSTILE.items() for value in values])
def test_a_hostile_value_is_refused(name, value):
    with pytest.raises(UserError, match="a.onnx: its metadata are damaged") as caught:
        read(**{name: value})
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float64"},
        {"dtype": ["float32"]},
        {"layout": "NHWC"},
        {"normalized": False},
        {"normalized": 1},
        {"color_order": "BGR"},
        {"mean": [0.5, 0.5]},
        {"mean": None},
        {"mean": ["0.5", 0.5, 0.5]},
        {"std": [0.2, 0.2, 0]},
        {"name": 3},
        {"size": 224},
    ],
)
def test_a_wrong_input_is_refused(changes):
    fields = {**json.loads(METADATA.to_properties()["input"]), **changes}
    with pytest.raises(UserError, match="its metadata are damaged"):
        read(input=json.dumps(fields))
